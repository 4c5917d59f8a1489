"""A parameter that two stages read has a copy in each: the plan is the best of both options, and copies stay equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest

from planner.choose.cost import CostModel
from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.pipelines import dump_pipeline, load_stages, parse_pipeline, run_document
from planner.documents.schemas import GraphDocument
from planner.errors import InvalidRequest
from planner.frontends.zoo import import_zoo
from planner.ir.graph import Graph, Op
from planner.ir.mesh import Mesh
from planner.ir.sharding import held_bounds
from planner.ops import bind_op
from planner.pipeline_stages.pipeline_plan import PipelinePlan, PlannedStage, simulate_stages
from planner.pipeline_stages.plan_pipeline import plan_pipeline
from planner.pipeline_stages.request import PipelineRequest
from planner.pipeline_stages.schedules import PipelineSchedule, ScheduleName
from planner.pipeline_stages.simulate import StageTimes, SumExchange, simulate
from planner.pipeline_stages.stage_costs import StageCosts
from planner.pipeline_stages.tied_parameters import list_units
from planner.pipeline_stages.validate import list_programs, list_tasks, validate_pipeline
from planner.planning.deadline import Deadline
from planner.planning.plan_types import Request
from planner.rewrite.accumulate import accumulate_gradients
from planner.run.executor import run_whole
from planner.run.inputs import random_inputs, random_later_data
from planner.run.pipeline import PipelineRun, run_tasks
from tests.testing.seeds import seeds

MESH, HARDWARE = Mesh.parse("2"), load_profile("h100-sxm")
SCHEDULES: list[ScheduleName] = ["1f1b", "gpipe", "zb-h1"]
EMBEDDING = "transformer.wte.weight"


def gpt2(layers: int = 2, **sizes: Any) -> Graph:
    wanted = {"width": 16, "heads": 2, "feed_forward": 32, "vocabulary": 24, "batch": 2, "seq": 8} | sizes
    return load_zoo("gpt2", layers=layers, **{"train": "adam"} | wanted)


def load_zoo(name: str, **sizes: Any) -> Graph:
    return load_graph(GraphDocument.model_validate(import_zoo(name, dtype="f32", **sizes)), MESH)


def share(graph: Graph, kept: str, dropped: str) -> Graph:
    """Return a step in which two layers have one parameter, whose gradients are added in the backward pass."""
    update = {op.inputs[0]: op for op in graph.ops if op.phase == "update" and op.inputs}
    gradients = tuple(update[name].inputs[1] for name in (kept, dropped))
    kind = graph.types[kept]
    total = Op(
        "shared", "add", gradients, (kind,), bind_op("add", (kind,) * 2, (kind,), attrs={}, notation=None),
        phase="backward",
    )  # fmt: skip
    gone, ops = set(update[dropped].values), list[Op]()
    for op in graph.ops:
        if op is update[kept]:
            ops += [total, replace(op, inputs=(kept, "shared", *op.inputs[2:]))]
        elif op is not update[dropped]:
            ops.append(replace(op, inputs=tuple(kept if value == dropped else value for value in op.inputs)))
    inputs = tuple(entry for entry in graph.inputs if entry.next not in gone)
    outputs = tuple(value for value in graph.outputs if value not in gone)
    return replace(graph, inputs=inputs, ops=tuple(ops), outputs=outputs)


def shared_llama(random: np.random.Generator) -> Graph:
    """A model of three layers, two neighbours of which share the gate of their feed-forward networks."""
    sizes = {"width": 16 * int(random.integers(1, 3)), "heads": 4, "feed_forward": 32 * int(random.integers(1, 9))}
    graph = load_zoo(
        "llama-7b", train="adam", layers=3, vocabulary=24, batch=4, seq=8 * int(random.integers(1, 5)), **sizes
    )
    first = int(random.integers(0, 2))
    names = [entry.id for entry in graph.inputs if entry.kind == "parameter" and "gate" in entry.id]
    return share(graph, names[first], names[first + 1])


def plan_of(graph: Graph, pipeline: PipelineRequest, **request: Any) -> PipelinePlan:
    wanted = Request(**{"microbatches": 4, "gap": 0.3} | request)
    return plan_pipeline(graph, MESH, HARDWARE, pipeline=pipeline, request=wanted)


def try_everything(graph: Graph, schedule: PipelineSchedule, request: Request) -> list[float]:
    """Return the least step in ps of each option: no copies, then with them, over all partitions."""
    model, least = CostModel(MESH, HARDWARE), []
    for units in list_units(graph):
        costs = StageCosts(units, model, request, schedule.microbatches, schedule.is_split, 1, Deadline())
        steps = [float("inf")]
        for inner in combinations(range(1, units.count), schedule.stages - 1):
            spans = list(pairwise((0, *inner, units.count)))
            if any(first <= low and high < last for low, high in units.tied_units for first, last in spans):
                continue
            held = [schedule.others_in_flight(stage) for stage in range(schedule.stages)]
            plans = [costs.plan(*span, flying) for span, flying in zip(spans, held, strict=True)]
            stages = [PlannedStage(costs.stage(*span), plan) for span, plan in zip(spans, plans, strict=True)]
            steps.append(simulate_stages(schedule, stages).step_ps)
        least.append(min(steps))
    return least


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(6))
def test_the_plan_is_the_best_of_both_options_over_every_partition(seed: int) -> None:
    graph = shared_llama(np.random.default_rng(seed))
    schedule = PipelineSchedule(SCHEDULES[seed % 3], 2, 1 + seed % 4)
    request = Request(microbatches=schedule.microbatches, gap=0.0)
    together, apart = try_everything(graph, schedule, request)
    assert np.isfinite([together, apart]).all()
    planned = plan_pipeline(graph, MESH, HARDWARE, pipeline=PipelineRequest(2, schedule.name), request=request)
    # It may be shorter than that of stages which each take the least time for their own work.
    assert planned.timeline.step_ps <= min(together, apart)
    assert len(planned.ties) == (apart < together) or abs(apart - together) < 0.01 * together
    assert 0 < planned.certificate.bound_s <= planned.step_s


@pytest.mark.slow
def test_tied_embeddings_are_planned_as_trying_every_partition() -> None:
    graph, schedule = gpt2(layers=1, train="sgd"), PipelineSchedule("1f1b", 2, 3)
    request = Request(microbatches=3, gap=0.0)
    planned = plan_of(graph, PipelineRequest(2), microbatches=3, gap=0.0)
    assert planned.timeline.step_ps == min(try_everything(graph, schedule, request))
    assert 0 < planned.certificate.bound_s <= planned.step_s


RUNS = [
    (PipelineRequest(2), 4),
    (PipelineRequest(2), 1),
    (PipelineRequest(3, "zb-h1"), 3),
    (PipelineRequest(2, "interleaved", 2), 2),
    (PipelineRequest(3, meshes=(MESH, Mesh.parse("2x2"), Mesh.parse("3"))), 3),
]


@pytest.mark.slow
@pytest.mark.parametrize(("pipeline", "microbatches"), RUNS)
def test_stages_with_copies_equal_the_graph_run_whole(pipeline: PipelineRequest, microbatches: int) -> None:
    planned = plan_of(gpt2(), pipeline, microbatches=microbatches)
    assert [tie.parameter for tie in planned.ties] == [EMBEDDING]
    assert {(each.source, each.target) for each in planned.exchanges} == {
        (0, len(planned.stages) - 1),
        (len(planned.stages) - 1, 0),
    }
    verdict = validate_pipeline(planned).verdict
    assert verdict is not None
    assert verdict.verdict == "equal", verdict
    assert verdict.counted_sent_bytes == verdict.predicted_sent_bytes == planned.sent_bytes
    for counts, stage in zip(verdict.stages, planned.stages, strict=True):
        assert counts.counted_peak_bytes == counts.predicted_peak_bytes == stage.analysis.peak_bytes
    document = parse_pipeline(dump_pipeline(planned, pipeline), "plan")
    assert document.tied == [EMBEDDING]
    assert document.cost is not None
    assert document.cost.sent_bytes == planned.sent_bytes
    assert [stage.received_sums for stage, _ in load_stages(document)] == [
        one.stage.received_sums for one in planned.stages
    ]
    assert run_document(document).verdict == "equal"


def whole_of(run: PipelineRun, stage: int, value: str) -> np.ndarray:
    """Return what the devices of a stage hold of an output, put together."""
    program = run.stages[stage].program
    held = program.values[program.outputs[program.graph.outputs.index(value)]]
    whole = np.zeros(held.type.shape)
    bounds = held_bounds(held.sharding, held.type.shape, program.mesh).tolist()
    for device, shard in run.executors[stage].shards_of(value).items():
        whole[tuple(slice(*ends) for ends in bounds[device])] = shard
    return whole


def next_inputs(graph: Graph, arrays: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    return arrays | {entry.id: after[entry.next] for entry in graph.inputs if entry.next is not None}


def test_copies_stay_equal_over_two_steps() -> None:
    planned = plan_of(gpt2(layers=1), PipelineRequest(2), microbatches=3)
    assert planned.schedule is not None
    stages = list_programs([(one.stage, one.analysis.program) for one in planned.stages], 2)
    graph, tasks = accumulate_gradients(planned.graph, 3), list_tasks(planned.timeline)
    later = random_later_data(graph, np, "f64", seed=0)
    arrays = random_inputs(graph, np, "f64", seed=0)
    (tie,) = planned.ties
    copies = {copy: arrays[original] for copy, original in tie.copies.items() if original in arrays}
    ours: dict[str, Any] = arrays | copies
    for _ in range(2):
        data = {name: arrays[name] for name in graph.data}
        whole = run_whole(graph, arrays, np, precision="f64", later=later)
        run = run_tasks(stages, tasks, arrays=ours, batches=[data, *later])
        results = join_results(run, stages)
        for name, value in results.items():
            original = tie.copies.get(name, name)
            if original in whole:
                np.testing.assert_allclose(value, whole[original], rtol=1e-9, atol=1e-12)
            if name in tie.copies:
                np.testing.assert_array_equal(value, results[original])
        arrays = next_inputs(graph, arrays, whole)
        for stage in stages:
            ours = next_inputs(stage.program.graph, ours, results)


def join_results(run: PipelineRun, stages: Sequence[Any]) -> dict[str, Any]:
    return {v: whole_of(run, n, v) for n, stage in enumerate(stages) for v in stage.program.graph.outputs}


def test_an_exchange_ends_the_update_when_the_other_gradient_has_arrived() -> None:
    schedule = PipelineSchedule("gpipe", 2, 1)
    times = [StageTimes(1, 1, 0, 20), StageTimes(1, 1, 0, 8)]
    alone = simulate(schedule, times)
    assert alone.update_ends_ps == (24, 11)
    tied = simulate(schedule, times, [SumExchange(0, 1, 3, 10, 2), SumExchange(1, 0, 1, 10, 4)])
    # Rank 0 begins its update at 4 and sends at 7; rank 1 begins at 3 and sends at 4.
    assert tied.update_ends_ps == (24, 19)


def test_an_update_over_all_parameters_leaves_tied_ones_together() -> None:
    graph = gpt2(clip_grad_norm=1.0)
    assert [units.count for units in list_units(graph)] == [1]
    with pytest.raises(InvalidRequest, match=r"more stages than parts of the graph.*wanted at most 1"):
        plan_of(graph, PipelineRequest(2))
