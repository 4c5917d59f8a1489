"""Among plans of equal cost, axes that split one dim come in the mesh's order, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

import solvers
from planner.choose.cost import CostModel
from planner.choose.formulate import Choice, Formulation, formulate
from planner.choose.hardware import load_profile
from planner.choose.plain_orders import order_axes
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument, validate_document
from planner.frontends.zoo import import_zoo
from planner.ir.graph import Annotation
from planner.ir.mesh import Mesh
from planner.ir.sharding import Sharding
from planner.judge.baselines import encode_baseline
from planner.judge.program_choice import encode_choice
from planner.judge.standard_layouts import list_baselines

SIZES: Any = {"layers": 1, "width": 32, "heads": 2, "feed_forward": 128, "vocabulary": 256, "batch": 16, "seq": 16}
MESHES = ["dp=2,tp=2", "dp=4,tp=2", "2x2x2"]
PINNED = "transformer.wte.weight"


@cache
def question(mesh: str, pinned: bool = False) -> Formulation:
    """A training step; `pinned`: the axes of a parameter against the mesh's order."""
    parsed = Mesh.parse(mesh)
    document = import_zoo("gpt2", train="adam", **SIZES)
    graph = load_graph(validate_document(GraphDocument, document, "gpt2"), parsed)
    if pinned:
        pin = Annotation(PINNED, Sharding(((1, 0), ())), required=True)
        graph = replace(graph, annotations=(pin,))
    return formulate(graph, CostModel(parsed, load_profile("h100-sxm")), 1 << 40)


def fully_sharded(mesh: str) -> tuple[int, ...]:
    """Every parameter split over all axes, in the mesh's order."""
    asked = question(mesh)
    (layout,) = (each for each in list_baselines(asked.graph, asked.model.mesh) if each.name == "FSDP")
    return tuple(encode_baseline(asked, layout) or ())


def turned(asked: Formulation, choice: Choice) -> tuple[int, ...]:
    """The assignment of a choice with every list of axes the other way round."""

    def back(sharding: Sharding) -> Sharding:
        return replace(sharding, split_axes=tuple(axes[::-1] for axes in sharding.split_axes))

    turned_choice = Choice(
        {name: back(each) for name, each in choice.inputs.items()},
        {op: tuple(axes[::-1] for axes in option) for op, option in choice.options.items()},
        {name: back(each) for name, each in choice.shared.items()},
        tuple(map(back, choice.outputs)),
    )
    return tuple(encode_choice(asked, turned_choice))


def unordered(choice: Choice) -> list[str]:
    lists = {name: sharding.split_axes for name, sharding in (choice.inputs | choice.shared).items()} | choice.options
    return [name for name, split in lists.items() if any(list(axes) != sorted(axes) for axes in split)]


@pytest.mark.parametrize("mesh", MESHES)
def test_a_plan_of_equal_cost_has_its_axes_in_the_mesh_s_order(mesh: str) -> None:
    asked, plain = question(mesh), fully_sharded(mesh)
    other = turned(asked, asked.decode(plain))
    before = solvers.evaluate(asked.problem, other)
    assert before.cost == solvers.evaluate(asked.problem, plain).cost
    assert unordered(asked.decode(other))
    ordered = order_axes(asked, other)
    assert solvers.evaluate(asked.problem, ordered).cost == before.cost
    assert not unordered(asked.decode(ordered))
    assert order_axes(asked, ordered) == ordered
    assert order_axes(asked, other, is_time_up=lambda: True) == other


def test_an_order_that_is_required_stays() -> None:
    asked = question("dp=4,tp=2", pinned=True)
    free = question("dp=4,tp=2").decode(fully_sharded("dp=4,tp=2"))
    other = turned(asked, free)
    ordered = order_axes(asked, other)
    assert asked.decode(ordered).inputs[PINNED].split_axes[0] == (1, 0)
    assert solvers.evaluate(asked.problem, ordered).cost == solvers.evaluate(asked.problem, other).cost


def test_the_memory_limit_holds_whatever_the_order() -> None:
    asked = question("2x2x2")
    other = turned(asked, asked.decode(fully_sharded("2x2x2")))
    peak = solvers.evaluate(asked.problem, other).peak
    problem = asked.problem
    tight = replace(asked, problem=solvers.Problem(problem.nodes, problem.edges, peak))
    assert solvers.evaluate(tight.problem, order_axes(tight, other)).feasible


def test_placements_of_dtensor_need_no_strides() -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")
    from planner.export.dtensor import placements

    asked = question("dp=4,tp=2")
    other = turned(asked, asked.decode(fully_sharded("dp=4,tp=2")))

    def shown(assignment: tuple[int, ...]) -> set[str]:
        inputs, types = asked.decode(assignment).inputs, asked.graph.types
        return {str(placements(each, types[name].shape, asked.model.mesh)[0]) for name, each in inputs.items()}

    assert any("Strided" in each for each in shown(other))
    assert not any("Strided" in each for each in shown(order_axes(asked, other)))


def test_a_partition_spec_names_the_axes_in_the_mesh_s_order() -> None:
    pytest.importorskip("jax", reason="jax is not installed: pip install shardplan[jax]")
    from planner.export.partition_spec import partition_spec

    asked = question("dp=4,tp=2")
    other = turned(asked, asked.decode(fully_sharded("dp=4,tp=2")))
    inputs, types = asked.decode(order_axes(asked, other)).inputs, asked.graph.types
    shown = [str(partition_spec(each, types[name].shape, asked.model.mesh)[0]) for name, each in inputs.items()]
    assert any("('dp', 'tp')" in each for each in shown)
    assert not any("('tp', 'dp')" in each for each in shown)
