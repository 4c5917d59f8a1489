"""Plans of convolutional networks: images are split with halos where that pays, priced, counted and run exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import solvers
from planner import Request, pipeline
from planner.choose.cost import PICO, CostModel
from planner.choose.formulate import formulate
from planner.choose.hardware import load_profile
from planner.choose.options import distinct_options
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.ir.program import OpCall
from planner.judge.analysis import Analysis
from planner.pipeline import write_program
from planner.run.validate import validate
from tests.testing.convnets import stack, unet
from tests.testing.graphs import Sketch
from tests.testing.hardware import EAGER
from tests.testing.op_options import priced
from tests.testing.random_strategies import random_strategies

Net = tuple[Callable[..., Graph], tuple[int, ...], str]
H100 = load_profile("h100-sxm")


def shown(net: Net) -> str:
    return f"{net[0].__name__} {net[1]} on {net[2]}"


def line() -> Graph:
    """Two convolutions along one dim, the first result read twice."""
    sketch = Sketch()
    x, weight = sketch.input(1, 2, 9), sketch.input(2, 2, 3)
    made = sketch.op("convolution", [x, weight], (1, 2, 9), padding=[1])
    again = sketch.op("convolution", [made, weight], (1, 2, 7))
    return sketch.graph(again, made)


SPLIT: list[Net] = [
    (stack, (16, 4), "4"),
    (stack, (19, 3), "2x2"),
    (unet, (16, 4), "4"),
    (unet, (16, 4), "2x2"),
    (unet, (20, 2), "2x2"),
    (unet, (32, 2), "2x4"),
]


@pytest.mark.parametrize("net", SPLIT, ids=shown)
def test_an_image_alone_is_split_with_halos_and_runs_as_planned(net: Net) -> None:
    make, sizes, mesh = net
    plan = pipeline.plan(make(*sizes), Mesh.parse(mesh), EAGER, request=Request())
    assert plan.analysis is not None
    assert plan.certificate.objective_s is not None
    assert round(plan.certificate.objective_s / PICO) == plan.analysis.step_ps
    assert all(plan.analysis.step_ps <= round(figures.step_s / PICO) for figures in plan.baselines)
    program = plan.analysis.program
    assert any(any(value.sharding.halo_sizes) for value in program.values.values())
    assert validate(program, shrinking="none").verdict == "equal"


CHOICES: list[Net] = [
    (line, (), "2"),
    (line, (), "2x2"),
    (line, (), "3"),
    (stack, (13, 2), "2x2"),
    (stack, (8, 3), "3"),
    (unet, (8, 2, 1), "2x2"),
]


@pytest.mark.parametrize("net", CHOICES, ids=shown)
def test_any_choice_of_windows_costs_what_its_program_does_and_runs_right(net: Net) -> None:
    make, sizes, mesh = net
    question = formulate(make(*sizes), CostModel(Mesh.parse(mesh), H100))
    random = np.random.default_rng(0)
    for _ in range(8):
        chosen = random_strategies(question, random)
        program = write_program(question, question.decode(chosen))
        assert solvers.evaluate(question.problem, chosen).cost == Analysis(program, question.model).step_ps
        assert validate(program, shrinking="none").verdict == "equal"


@pytest.mark.parametrize("mesh", ["2", "2x2", "3"])
def test_operand_options_have_halos_and_their_price(mesh: str) -> None:
    model = CostModel(Mesh.parse(mesh), replace(H100, peak_flops={"f32": 1e30}, launch_s=0.0, op_times=None))
    graph = line()
    for op in graph.ops:
        kinds = tuple(graph.types[value] for value in op.inputs)
        offered = distinct_options(op, kinds, model)
        assert any(any(state.halo_sizes) for state in offered.operands[0].states)
        for option, cost, operands, results in priced(offered):
            run = OpCall(op, option, (), ())
            assert operands == tuple(run.operand_sharding(i, model.mesh) for i in range(len(kinds)))
            sides = zip((*operands, *results), (*kinds, *op.results), strict=True)
            moved = sum(model.shard_bytes(kind, sharding) for sharding, kind in sides)
            assert cost == round(moved / model.hardware.bytes_rate / PICO)
