"""Bounds of parts: what several parts need counts in none of them, so that no sum exceeds the bound of the whole."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from planner import pipeline
from planner.choose.cost import CostModel
from planner.choose.hardware import load_profile
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.pipeline_stages.cuts import find_units
from planner.pipeline_stages.schedules import PipelineSchedule
from planner.pipeline_stages.stage_costs import Part, StageCosts
from planner.planning.deadline import Deadline
from planner.planning.plan_types import Request
from tests.testing.exhaustive_stages import ExhaustiveStages
from tests.testing.micro_steps import PhasedSketch
from tests.testing.random_trainings import random_training
from tests.testing.stage_choices import Integers

MESH, HARDWARE = Mesh.parse("2"), load_profile("cpu")
LAYERS, BATCH, WIDTH = 4, 4, 8


def masked_layers() -> Graph:
    """Return a step of layers that all multiply by one mask, which is computed of data, and a counter of steps."""
    s = PhasedSketch()
    x, raw, step = s.input(BATCH, WIDTH), s.input(BATCH, WIDTH), s.input(1)
    weights = [s.input(WIDTH, WIDTH, kind="parameter") for _ in range(LAYERS)]
    mask = s.op("exp", [s.op("exp", [raw], (BATCH, WIDTH))], (BATCH, WIDTH))
    entered = [x]
    for w in weights:
        product = s.op("matmul", [entered[-1], w], (BATCH, WIDTH))
        entered.append(s.op("multiply", [product, mask], (BATCH, WIDTH)))
    s.phase = "backward"
    dy, gradients = s.op("multiply", [entered[-1]], (BATCH, WIDTH), scalar=2), []
    for w, before in zip(reversed(weights), reversed(entered[:-1]), strict=True):
        dp = s.op("multiply", [dy, mask], (BATCH, WIDTH))
        turned = s.op("transpose", [before], (WIDTH, BATCH), permutation=[1, 0])
        gradients.append(s.op("matmul", [turned, dp], (WIDTH, WIDTH)))
        dy = s.op("matmul", [dp, s.op("transpose", [w], (WIDTH, WIDTH), permutation=[1, 0])], (BATCH, WIDTH))
    s.phase = "update"
    after = s.op("add", [step], (1,), scalar=1.0)
    rate = s.op("exp", [after], (1,))
    follows = {step: after}
    for w, gradient in zip(reversed(weights), gradients, strict=True):
        scaled = s.op("multiply", [gradient, rate], (WIDTH, WIDTH))
        follows[w] = s.op("subtract", [w, scaled], (WIDTH, WIDTH))
    graph = s.graph(entered[-1], *follows.values())
    return replace(graph, inputs=tuple(replace(entry, next=follows.get(entry.id)) for entry in graph.inputs))


@pytest.mark.parametrize("part", ["step", "loop", "passes", "forward"])
def test_no_sum_of_parts_exceeds_the_bound_of_the_whole(part: Part) -> None:
    units, model, request = find_units(masked_layers()), CostModel(MESH, HARDWARE), Request(gap=0.0)
    assert units.count >= LAYERS
    costs = StageCosts(units, model, request, 4, False, 1, Deadline())
    summed = costs.matrix(part)
    for first, last in combinations(range(units.count + 1), 2):
        graph = costs.stage(first, last).make_step(4, (0, 0), is_split=False)
        if part == "loop":
            graph = costs.stage(first, last).make_loop(4, (0, 0), is_split=False)
        elif part != "step":
            graph = costs.stage(first, last).make_passes(lambda op, _late: part == "passes" or op.phase == "forward")
        whole = pipeline.solve_choice(graph, model, replace(request, microbatches=1)).solution
        assert 0 < summed[first, last] <= whole.cost


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("is_limited", [False, True])
def test_no_choice_of_a_stage_takes_less_than_the_bounds_of_its_parts(seed: int, *, is_limited: bool) -> None:
    model, count = CostModel(MESH, load_profile("h100-sxm")), 5
    graph, schedule = random_training(seed, 2), PipelineSchedule("1f1b", 2, count)
    held = sum(kind.bytes for kind in graph.types.values())
    limit = int(held * (0.5 + 0.1 * seed)) if is_limited else None
    everything = ExhaustiveStages(graph, [model], limit)
    costs = StageCosts(everything.units, model, Request(limit, gap=0.0), count, False, 1, Deadline())
    for number, span in enumerate([(0, 1), (1, 2)]):
        flying, times = (
            schedule.others_in_flight(number),
            everything.list_choices(schedule, number, costs.stage(*span)).times,
        )
        passes, update = times[:, :3].sum(axis=1), times[:, 3]
        parts: list[tuple[Part, Integers]] = [("loop", count * passes), ("step", count * passes + update)]
        parts += [(k, k * passes + update) for k in (2, 4)]
        for part, least in parts:
            costs.certify(part, *span, held=flying)
            assert costs.matrix(part, flying)[span] <= min(least.tolist(), default=np.inf)
