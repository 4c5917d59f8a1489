"""Pins hold in every stage that has what they are of, in each of two copies, and for all bounds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from planner.choose.axis_units import AxisUnits
from planner.choose.cost import CostModel
from planner.choose.hardware import load_profile
from planner.choose.liveness import Liveness
from planner.choose.rematerialization import GraphWithClones
from planner.choose.variables import PinnedVariables
from planner.documents.graphs import load_graph
from planner.documents.pipelines import dump_pipeline, load_pipeline, parse_pipeline
from planner.documents.schemas import GraphDocument
from planner.errors import InvalidRequest, InvalidSharding
from planner.frontends.zoo import import_zoo
from planner.ir.graph import OUTPUTS, Annotation, Graph
from planner.ir.mesh import Mesh
from planner.ir.program import OpCall
from planner.ir.sharding import Sharding
from planner.judge.standard_layouts import LAYOUTS, LayoutName, pin_layout
from planner.pipeline_stages.content import describe_content
from planner.pipeline_stages.cuts import find_units
from planner.pipeline_stages.interval_classes import IntervalClasses
from planner.pipeline_stages.pipeline_plan import PipelinePlan, PlannedStage
from planner.pipeline_stages.plan_pipeline import plan_pipeline
from planner.pipeline_stages.request import PipelineRequest
from planner.pipeline_stages.schedules import PipelineSchedule
from planner.pipeline_stages.stage_graph import extract_stage
from planner.pipeline_stages.tied_parameters import find_tied_units
from planner.pipeline_stages.validate import validate_pipeline
from planner.planning.deadline import Deadline
from planner.planning.plan_types import Request
from tests.testing.exhaustive_stages import ExhaustiveStages
from tests.testing.random_trainings import random_training
from tests.testing.seeds import seeds

MESH, HARDWARE = Mesh.parse("2"), load_profile("h100-sxm")
EMBEDDING = "transformer.wte.weight"


def step(name: str = "llama-7b", layers: int = 2) -> Graph:
    sizes: dict[str, Any] = {"width": 16, "heads": 4, "feed_forward": 32, "vocabulary": 24, "batch": 4, "seq": 8}
    document = import_zoo(name, train="adam", layers=layers, dtype="f32", **sizes)
    return load_graph(GraphDocument.model_validate(document), MESH)


def split(graph: Graph, value: str, dim: int | None, **use: Any) -> Annotation:
    rank = len(graph.types[value].shape)
    return Annotation(value, Sharding(tuple((0,) if each == dim else () for each in range(rank))), **use)


def list_random_pins(graph: Graph, random: np.random.Generator, count: int) -> Iterator[Annotation]:
    """Yield pins of definitions, of reads and of outputs, at most one for each op that could be asked for too much."""
    owner = {value: op.id for op in graph.ops for value in op.values}
    readers = {value: op.id for op in graph.ops if op.phase != "update" for value in op.inputs}
    states = {entry.next: entry.id for entry in graph.inputs}
    even = [value for value, kind in graph.types.items() if kind.shape and kind.shape[0] % 2 == 0]
    pinned: set[str] = set()
    for value in random.permutation(even).tolist():
        users = [None, readers.get(value), OUTPUTS if value in graph.outputs else None]
        user = users[int(random.integers(0, 3))]
        pin = split(graph, value, None if random.integers(0, 3) == 0 else 0, user=user)
        asked = states.get(value, value) if user == OUTPUTS else user or owner.get(value, value)
        if asked in pinned or not can_be(replace(graph, annotations=(pin,)), user or owner.get(value)):
            continue
        pinned.add(asked)
        yield pin
        if len(pinned) == count:
            return


def can_be(graph: Graph, op: str | None) -> bool:
    """Return whether an option of the op that a pin is for meets it."""
    variables = PinnedVariables(Liveness(GraphWithClones.of(graph, {})), CostModel(MESH, HARDWARE), AxisUnits.of(MESH))
    with suppress(InvalidSharding):
        for each in graph.ops:
            if each.id == op:
                variables.find_op(each)
        return True
    return False


def plan_of(graph: Graph, pipeline: PipelineRequest, **request: Any) -> PipelinePlan:
    asked = Request(**{"microbatches": 4, "gap": 0.0} | request)
    return plan_pipeline(graph, MESH, HARDWARE, pipeline=pipeline, request=asked)


def list_uses(one: PlannedStage) -> dict[tuple[str, str | None], Sharding]:
    """Return the layouts in which a stage's values are defined (no user), read and returned."""
    program = one.analysis.program
    root = {name: name for name, _ in program.arguments}
    uses: dict[tuple[str, str | None], Sharding] = {(name, None): sharding for name, sharding in program.arguments}
    for done in program.instructions:
        if isinstance(done, OpCall):
            for value, held in zip(done.op.values, done.results, strict=True):
                root[held] = value
                uses[value, None] = program.values[held].sharding
            for value, held in zip(done.op.inputs, done.operands, strict=True):
                uses[value, done.op.id] = program.values[held].sharding
        else:
            root[done.result] = root[done.operand]
    for value, held in zip(program.graph.outputs, program.outputs, strict=True):
        uses[value, OUTPUTS] = program.values[held].sharding
    return uses


def check_pins(plan: PipelinePlan) -> None:
    """Check that each pin is met in all stages that compute, own or read its value, and in one at least."""
    for pin in plan.graph.annotations:
        wanted = pin.sharding.complete(len(plan.graph.types[pin.value].shape), MESH)
        met = []
        for one in plan.stages:
            stage, found = one.stage, list_uses(one).get((pin.value, pin.user))
            received = {*stage.received, *stage.received_gradients, *stage.received_sums}
            is_own = pin.user is not None or pin.value not in received
            if found is not None and is_own and (pin.user != OUTPUTS or pin.value in plan.graph.outputs):
                met.append(found == wanted)
        assert met, pin.where
        assert all(met), pin.where


@pytest.mark.parametrize("seed", seeds(6))
def test_random_pins_hold_in_the_stages_that_have_their_values(seed: int) -> None:
    random = np.random.default_rng(seed)
    graph = step()
    pins = list_random_pins(graph, random, 12)
    schedule = ("1f1b", "zb-h1", "gpipe")[seed % 3]
    plan = plan_of(replace(graph, annotations=tuple(pins)), PipelineRequest(2, schedule))  # type: ignore[arg-type]
    check_pins(plan)
    document = parse_pipeline(json.loads(json.dumps(dump_pipeline(plan, PipelineRequest(2)))), "plan")
    check_pins(loaded := load_pipeline(document))
    assert loaded.step_s == plan.step_s
    verdict = validate_pipeline(plan).verdict
    assert verdict is not None
    assert verdict.verdict == "equal"
    for stage in verdict.stages:
        assert (stage.counted_bytes, stage.counted_peak_bytes) == (stage.predicted_bytes, stage.predicted_peak_bytes)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))  # how long a seed takes differs too much for others every day
def test_stages_under_pins_are_those_of_trying_everything(seed: int) -> None:
    random = np.random.default_rng(seed)
    graph = random_training(seed, 2 + seed % 2)
    graph = replace(graph, annotations=tuple(list_random_pins(graph, random, 2)))
    model, schedule = CostModel(MESH, HARDWARE), PipelineSchedule("1f1b", 2, 3)
    plan = plan_of(graph, PipelineRequest(2, "1f1b"), microbatches=3)
    everything = ExhaustiveStages(graph, [model])
    least, separate = (
        each.find_least_step(schedule) for each in (everything, replace(everything, is_separate=True, is_worst=True))
    )
    assert plan.certificate.bound_s <= least * 1e-12 * (1 + 1e-9)
    assert least <= plan.timeline.step_ps <= separate


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if LAYOUTS[name].least_axes == 0])
def test_a_layout_by_name_is_that_of_every_stage(layout: LayoutName) -> None:
    graph = step()
    plan = plan_of(graph, PipelineRequest(2, "1f1b"), layout=layout)
    pinned = pin_layout(graph, MESH, layout)
    check_pins(replace(plan, graph=pinned))
    wanted = {op.id: op.option for op in pinned.ops if op.option is not None}
    for one in plan.stages:
        assert one.plan.choice is not None
        own = {op: option for op, option in one.plan.choice.options.items() if op in wanted}
        assert own
        assert own == {op: wanted[op] for op in own}
    late = plan_pipeline(
        graph,
        MESH,
        HARDWARE,
        pipeline=PipelineRequest(2, "1f1b"),
        request=Request(microbatches=4, layout=layout, time_limit_s=1.0),
        deadline=Deadline(0.0),
    )
    check_pins(replace(late, graph=pinned))
    assert late.step_s >= plan.certificate.bound_s
    document = parse_pipeline(json.loads(json.dumps(dump_pipeline(plan, PipelineRequest(2)))), "plan")
    assert load_pipeline(document).step_s == plan.step_s


def test_both_copies_of_a_tied_parameter_have_its_pins() -> None:
    graph = step("gpt2")
    output = next(entry.next for entry in graph.inputs if entry.id == EMBEDDING)
    assert output is not None
    readers = [op.id for op in graph.ops if op.phase != "update" and EMBEDDING in op.inputs]
    pins = [split(graph, EMBEDDING, 1), split(graph, output, 1, user=OUTPUTS)]
    pins += [split(graph, EMBEDDING, 0, user=reader) for reader in readers]
    units = find_tied_units(replace(graph, annotations=tuple(pins)), [EMBEDDING])
    (tie,) = units.ties
    copy, next_copy = (next(new for new, old in tie.copies.items() if old == name) for name in (EMBEDDING, output))
    found = {(pin.value, pin.user): pin.sharding for pin in units.graph.annotations}
    assert found[copy, None] == found[EMBEDDING, None] == pins[0].sharding
    assert found[next_copy, OUTPUTS] == found[output, OUTPUTS] == pins[1].sharding
    read = {op.id: op.inputs for op in units.graph.ops}
    assert all((copy if copy in read[reader] else EMBEDDING, reader) in found for reader in readers)
    plan = plan_of(replace(graph, annotations=tuple(pins[:2])), PipelineRequest(2, "1f1b"))
    assert plan.ties
    check_pins(plan)


def test_layers_with_other_pins_are_of_other_classes() -> None:
    graph = step(layers=4)
    classes = IntervalClasses(find_units(graph))
    equal = classes.list_equal(1, 3)
    assert len(equal) > 2
    inside = extract_stage(classes.units, *equal[1]).graph
    for pin in (
        split(graph, next(entry.id for entry in inside.inputs if entry.kind == "parameter"), 0),
        split(graph, inside.ops[0].inputs[0], 0, user=inside.ops[0].id),
    ):
        units = find_units(replace(graph, annotations=(pin,)))
        found = IntervalClasses(units)
        assert found.list_equal(*equal[1]) == [equal[1]]
        assert found.list_equal(*equal[0]) == [equal[0], *equal[2:]]
        apart = [describe_content(extract_stage(units, *span).graph) for span in equal[:2]]
        assert apart[0] != apart[1]


def test_a_pin_that_no_option_meets_is_named() -> None:
    graph = step()
    root = next(op for op in graph.ops if op.op == "silu")
    pin = Annotation(root.id, Sharding(((),) * len(root.results[0].shape), partial=(0,)))
    with pytest.raises(InvalidSharding, match=root.id):
        plan_of(replace(graph, annotations=(pin,)), PipelineRequest(2))


def test_a_layout_that_the_mesh_cannot_have_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"layout.*fsdp\+tp"):
        plan_of(step(), PipelineRequest(2), layout="fsdp+tp")
