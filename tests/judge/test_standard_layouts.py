"""A plan that keeps to a standard layout has what the layout says, is no slower than it, and runs as the model does."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from planner import Plan, pipeline
from planner.choose.cost import PICO, CostModel
from planner.choose.formulate import formulate
from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.errors import InvalidRequest
from planner.frontends.zoo import import_zoo
from planner.ir.graph import Annotation, Graph
from planner.ir.mesh import Mesh
from planner.ir.sharding import Sharding
from planner.judge.analysis import Analysis
from planner.judge.baselines import encode_baseline
from planner.judge.standard_layouts import LAYOUTS, LayoutName, build_layout, pin_layout
from planner.planning.plan_types import Request

MESH = Mesh.parse("dp=2,tp=2")
HARDWARE = load_profile("h100-sxm")
EVERYTHING, GAP = 10**12, 0.02

# Layout, and over how many devices it splits matrices of parameters and of optimizer states.
STORED: list[tuple[LayoutName, int, int]] = [("dp", 1, 1), ("zero1", 1, 4), ("fsdp", 4, 4), ("hsdp", 2, 2)]

# Layout, mesh, and words of the message.
WRONG: list[tuple[LayoutName, str, str]] = [
    ("hsdp", "4", "a mesh with 2 axes of two devices or more"),
    ("dp+tp", "1x4", "a mesh with 2 axes of two devices or more"),
    ("fsdp", "3", "a batch that 3 divides"),
    ("tp", "65536", "products with weights that 65536 devices can split"),
]


@cache
def step(mesh: Mesh = MESH) -> Graph:
    sizes = {"layers": 1, "heads": 4, "width": 64, "feed_forward": 128, "vocabulary": 128}
    document = import_zoo("gpt2", batch=8, seq=16, train="adamw", **sizes)  # type: ignore[arg-type]
    return load_graph(GraphDocument.model_validate(document), mesh)


@cache
def planned(layout: LayoutName | None) -> Plan:
    return pipeline.plan(step(), MESH, HARDWARE, request=Request(EVERYTHING, layout=layout, gap=GAP))


def as_written(layout: LayoutName) -> Analysis:
    """Return the layout itself, without anything left to plan."""
    question = formulate(step(), CostModel(MESH, HARDWARE), EVERYTHING)
    start = encode_baseline(question, build_layout(step(), MESH, layout))
    assert start is not None
    return Analysis(pipeline.write_program(question, question.decode(start)), question.model)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_plan_keeps_to_the_layout_and_is_no_slower_than_it(layout: LayoutName) -> None:
    plan, written, best = planned(layout), as_written(layout), planned(None)
    assert plan.analysis is not None
    assert plan.certificate.objective_s is not None
    assert dict(plan.analysis.program.arguments) == dict(written.program.arguments)
    assert plan.analysis.step_ps <= written.step_ps
    assert plan.certificate.objective_s == plan.analysis.step_ps * PICO
    assert plan.certificate.bound_s <= plan.certificate.objective_s
    assert (best.certificate.bound_s or 0.0) <= plan.certificate.objective_s
    pinned = {op.id: op.option for op in pin_layout(step(), MESH, layout).ops if op.option is not None}
    assert plan.choice is not None
    assert len(pinned) > 10
    assert {op: plan.choice.options[op] for op in pinned} == pinned


def test_layouts_store_parameters_and_states_as_their_names_say() -> None:
    def stored(layout: LayoutName, kind: str) -> set[int]:
        analysis = planned(layout).analysis
        assert analysis is not None
        held = dict(analysis.program.arguments)
        matrices = [entry for entry in step().inputs if entry.kind == kind and len(entry.type.shape) == 2]
        return {MESH.group_size([a for axes in held[entry.id].split_axes for a in axes]) for entry in matrices}

    for layout, parts, state_parts in STORED:
        assert stored(layout, "parameter") == {parts}, layout
        assert stored(layout, "optimizer_state") == {state_parts}, layout
    assert max(stored("fsdp+tp", "parameter")) == 4


@pytest.mark.parametrize("layout", ["zero1", "hsdp", "fsdp+tp"])
def test_a_plan_of_a_layout_computes_what_the_model_does(layout: LayoutName) -> None:
    verdict = pipeline.validate_plan(planned(layout)).verdict
    assert verdict is not None
    assert verdict.verdict == "equal"
    assert verdict.counted_bytes == verdict.predicted_bytes
    assert verdict.counted_peak_bytes == verdict.predicted_peak_bytes


def test_what_the_user_pins_stays() -> None:
    value = next(entry.id for entry in step().inputs if entry.kind == "parameter" and len(entry.type.shape) == 2)
    own = Annotation(value, Sharding(((), (1,))))
    graph = pin_layout(replace(step(), annotations=(own,)), MESH, "fsdp")
    assert [pin for pin in graph.annotations if pin.value == value] == [own]


@pytest.mark.parametrize(("layout", "mesh", "words"), WRONG)
def test_a_layout_that_the_mesh_cannot_have_is_refused(layout: LayoutName, mesh: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        pin_layout(step(), Mesh.parse(mesh), layout)


def test_an_unknown_layout_is_answered_with_the_known_ones() -> None:
    with pytest.raises(InvalidRequest, match="one of replicated, dp, zero1, fsdp, hsdp, tp, dp\\+tp, fsdp\\+tp"):
        Request(layout="zero7")  # type: ignore[arg-type]


def test_gradients_are_cast_as_they_are_stored_and_reduced_as_they_are_computed() -> None:
    sizes = {"layers": 1, "heads": 4, "width": 64, "feed_forward": 128, "vocabulary": 128}
    document = import_zoo("gpt2", batch=8, seq=16, train="adamw", precision="bf16-mixed", **sizes)  # type: ignore[arg-type]
    graph = load_graph(GraphDocument.model_validate(document), MESH)
    plain, stored = (build_layout(graph, MESH, name) for name in ("dp", "fsdp"))
    backward = [op for op in graph.ops if op.phase == "backward"]
    changed = {op.op for op in backward if plain.options[op.id] != stored.options[op.id]}
    assert changed == {"cast"}
