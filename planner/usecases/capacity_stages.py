"""Candidates of a capacity search that have pipeline stages: their bounds, the order to plan them in, and their plans.

Time    All ranks together take at least the time of all ops on the devices of one stage, so one rank takes a p-th of
        it. Without virtual stages, and with the pass for parameters right after the backward pass, the stages before
        stage s also pass the first micro-batch up and the last one down: T >= P_0 + ... + P_(s-1) + m P_s for every s.
        The times P_s whose largest such sum is least make all of them equal, which is T >= P / (1 - (1 - 1/m)^p) for
        P = P_0 + ... + P_(p-1).
Memory  Each stage holds its parameters, states and accumulators, and at the end of its forward pass all that its
        backward pass reads: all devices together hold at least what those of one mesh would.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from planner.choose.hardware import Hardware
from planner.errors import InvalidRequest
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh, MeshAxis
from planner.judge.mesh_candidates import MeshCandidate, devices_per_tier
from planner.judge.roofline_bounds import Floor, min_memory_bytes, min_passes_s, min_step_s
from planner.pipeline_stages.pipeline_interval import find_pipeline_interval
from planner.pipeline_stages.pipeline_plan import PipelinePlan
from planner.pipeline_stages.plan_pipeline import plan_pipeline
from planner.pipeline_stages.request import PipelineRequest
from planner.pipeline_stages.schedules import PipelineSchedule
from planner.planning.plan_types import Request
from planner.usecases.capacity_question import CandidateResult, CandidateTask

MISFIT = 0.2
"""By which share of its bound a candidate is thought slower for each doubling away from the rule of thumb."""
CROWDED, CROWDED_MISFIT = 0.6, 0.5
"""The share of the memory from which on parameters and their gradients leave too little for activations, and by which
share a candidate is then thought slower, as it has to store or reduce them in parts."""


def list_candidate_schedules(
    pipeline: PipelineRequest | None, stages: int, microbatches: int, *, units: int
) -> list[PipelineSchedule]:
    """Return the schedules of a number of stages, for a graph of so many units; none where no schedule can be had."""
    try:
        return (pipeline or PipelineRequest(1)).list_schedules(stages, microbatches, units)
    except InvalidRequest:
        return []


def bound_candidate(
    graph: Graph, hardware: Hardware, one: MeshCandidate, *, schedules: Sequence[PipelineSchedule], recompute: bool
) -> Floor:
    """Return the lower bounds of a candidate; `graph`: a step of all micro-batches."""
    step_s = min_step_s(graph, hardware, one.mesh.devices) / one.stages
    if one.stages > 1 and all(map(is_plain, schedules)):
        filled = 1 - (1 - 1 / graph.microbatches) ** one.stages
        step_s = max(step_s, min_passes_s(graph, hardware, one.mesh.devices) / filled)
    return Floor(step_s, min_memory_bytes(graph, one.devices, recompute))


def is_plain(schedule: PipelineSchedule) -> bool:
    """Return whether a schedule has no virtual stages, and the pass for parameters right after the backward pass."""
    return schedule.chunks == 1 and not schedule.is_split


@dataclass(frozen=True)
class StepEstimate:
    """A guess of a candidate's step that says which one to price first, and proves nothing.

    The rule of thumb is that of Narayanan et al. (SC 2021): the last axis of the mesh joins the devices of a node, for
    tensor parallelism, and the others are for as much data parallelism as a micro-batch has sequences. The work is
    longer by the bubble of equal stages in the best of the schedules, where the bound of the step does not count it.

    least_s       the lower bound of the step
    batch         the sequences of a micro-batch; None: unknown
    stored_bytes  one copy of all parameters and of the sums of their gradients
    """

    least_s: float
    batch: int | None
    stored_bytes: int
    schedules: Sequence[PipelineSchedule]

    def estimate_s(self, one: MeshCandidate, hardware: Hardware, limit_bytes: int) -> float:
        """Return the guess for a candidate with a memory limit for each device."""
        node = devices_per_tier(Mesh((MeshAxis("all", one.devices),)), hardware)[0][0]
        within, *beyond = devices_per_tier(one.mesh, hardware)[-1]
        away = abs(math.log2(node / within)) + math.log2(math.prod(beyond))
        if self.batch is not None:
            away += abs(math.log2(self.batch / math.prod(one.mesh.shape[:-1])))
        crowded = self.stored_bytes > CROWDED * limit_bytes * within * one.stages
        bubble = min((schedule.bubble_overhead for schedule in self.schedules), default=math.inf)
        bubble = 0.0 if all(map(is_plain, self.schedules)) else bubble
        return self.least_s * (1 + bubble) * (1 + MISFIT * away + CROWDED_MISFIT * crowded)


def take_turns(
    numbers: Iterable[int], estimates: Mapping[int, float], devices: Mapping[int, int], *, planned: Mapping[int, int]
) -> list[int]:
    """Sort candidates so that numbers of devices take turns, those of which least were planned first.

    Candidates of as many devices are in the order of their estimates.
    """
    turns, by_turn = Counter(planned), []
    for number in sorted(numbers, key=lambda each: (estimates[each], each)):
        turns[devices[number]] += 1
        by_turn.append((turns[devices[number]], devices[number], number))
    return [number for *_, number in sorted(by_turn)]


def plan_stages_in_full(task: CandidateTask, graph: Graph, hardware: Hardware, *, request: Request) -> PipelinePlan:
    """Return the plan of a candidate in its stages."""
    assert task.pipeline is not None, "a candidate with stages"
    mesh = replace(task.mesh, device=hardware.name)
    return plan_pipeline(graph, mesh, hardware, pipeline=task.pipeline, request=request, is_standard=task.is_standard)


def plan_candidate_stages(
    task: CandidateTask, graph: Graph, hardware: Hardware, *, request: Request
) -> CandidateResult:
    """Plan a candidate in its stages, and return its figures."""
    plan = plan_stages_in_full(task, graph, hardware, request=request)
    proven, schedule = plan.certificate, plan.schedule
    low_s, high_s = find_pipeline_interval(plan) if schedule else (None, None)
    return CandidateResult(
        status=proven.status,
        step_s=proven.objective_s,
        objective_s=proven.objective_s,
        bound_s=proven.bound_s,
        gap=proven.gap,
        peak_bytes=max(map(plan.peak_bytes, range(schedule.ranks))) if schedule else None,
        least_limit_bytes=None,
        wall_s=proven.wall_s,
        schedule=schedule.name if schedule else None,
        bubble=plan.timeline.bubble if schedule else None,
        low_s=low_s,
        high_s=high_s,
        virtual_stages=schedule.chunks if schedule else None,
        is_searched=not task.is_standard,
    )
