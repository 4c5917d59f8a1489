"""Explain a pipeline: why each cut is where it is, what takes the step's time, and what its bound rests on.

Each cut is moved by one unit, to an earlier and to a later place. The two stages beside it are planned, as far as there
is time, and the step is simulated with the other stages' plans as they are; beside that figure stands a lower bound of
every step with these cuts (`planner.pipeline_stages.step_bounds`).

The step is the sum of three parts: the passes and updates of the rank that computes longest; what filling and draining
the pipeline adds; and what sends add, in the simulation with and without them. Times are whole picoseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from planner.choose.cost import PICO
from planner.pipeline_stages.cuts import Units
from planner.pipeline_stages.interval_bounds import Matrix, Span
from planner.pipeline_stages.pipeline_plan import PipelinePlan, PlannedStage, list_sends, simulate_stages
from planner.pipeline_stages.rank_costs import RankCosts
from planner.pipeline_stages.schedules import PipelineSchedule
from planner.pipeline_stages.simulate import simulate
from planner.pipeline_stages.stage_costs import StageCosts
from planner.pipeline_stages.step_bounds import StepBounds
from planner.pipeline_stages.tied_parameters import find_tied_units
from planner.planning.deadline import Deadline, ProgressReporter
from planner.planning.infeasible import describe_limits
from planner.planning.plan_types import Plan
from planner.planning.step_graph import build_step

BOUNDS_SHARE = 0.5
"""Share of a limited time that is left for bounds and simulations when stages beside moved cuts are planned."""


@dataclass(frozen=True, slots=True)
class StepParts:
    """The parts of a step: `slowest_ps` of the rank `slowest_rank` + `fill_ps` + `sends_ps` = `step_ps`.

    idle_ps  of each rank: the time in which it computes nothing
    """

    step_ps: int
    slowest_rank: int
    slowest_ps: int
    fill_ps: int
    sends_ps: int
    idle_ps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MovedCut:
    """A step with one cut moved by `units`: +1 gives the stage before it one unit more, -1 the stage after it.

    step_ps    with the best plans known of the two stages that change; None: no such plan is known
    bound_ps   no step with these cuts is shorter; None: nothing fits, which is proven
    is_solved  whether both plans are proven within the gap that was asked for
    slowest    the stage that computes longest
    reason     why there is no step; empty where there is one, or may be
    """

    units: int
    step_ps: int | None
    bound_ps: int | None
    is_solved: bool
    slowest: int | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ExplainedCut:
    """The cut before `stage`, at a unit of the graph and its layer.

    values      sent over it in each micro-batch, up and down
    sent_bytes  what all devices receive of them in each micro-batch
    send_ps     the time of both sends
    """

    stage: int
    unit: int
    layer: str
    values: tuple[str, ...]
    sent_bytes: int
    send_ps: int
    moves: tuple[MovedCut, ...]


@dataclass(frozen=True, slots=True)
class PipelineBound:
    """What the bound rests on: `bound_ps` of all partitions; of steps with the plan's cuts none is below `cuts_ps`.

    path_stage  the stage whose path through the tasks is the longest in the bound of these cuts
    stages_ps   what the passes and the update of each stage take at least, with any layouts that fit
    """

    bound_ps: int
    cuts_ps: int
    path_stage: int
    stages_ps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PipelineExplanation:
    """Why a pipeline is as it is."""

    parts: StepParts
    stages_ps: tuple[int, ...]
    cuts: tuple[ExplainedCut, ...]
    bound: PipelineBound


def explain_pipeline(
    plan: PipelinePlan, deadline: Deadline | None = None, report: ProgressReporter | None = None
) -> PipelineExplanation:
    """Explain a feasible pipeline's plan. At the deadline figures of stages that are not planned are left out."""
    deadline = deadline or Deadline()
    assert plan.schedule is not None, "an infeasible plan has no cuts"
    moves = _CutMoves(plan, plan.schedule, deadline, report or ProgressReporter(deadline, None))
    moves.plan_stages()
    return PipelineExplanation(split_step(plan), plan.timeline.work_ps, tuple(moves.list_cuts()), moves.explain_bound())


def split_step(plan: PipelinePlan) -> StepParts:
    """Return the parts of a feasible plan's step."""
    schedule, timeline = plan.schedule, plan.timeline
    assert schedule is not None, "an infeasible plan has no step"
    times = [replace(each, send_forward_ps=0, send_backward_ps=0) for each in timeline.times]
    exchanges = [each._replace(send_ps=0) for each in timeline.exchanges]
    without_sends = simulate(schedule, times, exchanges).step_ps
    busy = [sum(timeline.work_ps[rank :: schedule.ranks]) for rank in range(schedule.ranks)]
    slowest = int(np.argmax(busy))
    return StepParts(
        step_ps=timeline.step_ps,
        slowest_rank=slowest,
        slowest_ps=busy[slowest],
        fill_ps=without_sends - busy[slowest],
        sends_ps=timeline.step_ps - without_sends,
        idle_ps=tuple(timeline.step_ps - each for each in busy),
    )


@dataclass
class _CutMoves:
    """The moves of all cuts of a plan, with the plans of the stages that change."""

    plan: PipelinePlan
    schedule: PipelineSchedule
    deadline: Deadline
    report: ProgressReporter

    def __post_init__(self) -> None:
        plan, schedule, tied = self.plan, self.schedule, [tie.parameter for tie in self.plan.ties]
        pinned = build_step(plan.graph, plan.model.mesh, layout=plan.request.layout)
        self.units: Units = find_tied_units(pinned, tied)
        sizes = schedule.microbatches, schedule.is_split, schedule.chunks
        models = [one.plan.model for one in plan.stages[: schedule.ranks]]
        self.costs = RankCosts.of(
            models, lambda model: StageCosts(self.units, model, plan.request, *sizes, self.deadline)
        )
        self.bounds = StepBounds(schedule, self.costs)
        self.spans = [(one.stage.first, one.stage.last) for one in plan.stages]
        for number, one in enumerate(plan.stages):
            self.costs.of_stage(number).keep(*self.spans[number], self.bounds.held[number], one.plan)
        self.plans: dict[tuple[int, Span], Plan] = {}

    def plan_stages(self) -> None:
        """Plan the stages beside all moved cuts, each in an equal part of the time that is left."""
        left_s = self.deadline.left_s or 0.0
        self.costs.end_at(self.deadline.sooner(BOUNDS_SHARE * left_s))
        wanted = list(dict.fromkeys(self._list_wanted()))
        for number, (stage, span) in enumerate(wanted):
            self.report.begin(f"planning stage {number + 1} of {len(wanted)} beside moved cuts")
            costs = self.costs.of_stage(stage)
            known = costs.find_plan(*span, self.bounds.held[stage])
            if self.costs.deadline.left_s != 0.0:
                share = 1 / (len(wanted) - number)
                known = costs.plan(*span, self.bounds.held[stage], share=share, is_coarse=True)
            if known is not None:
                self.plans[stage, span] = known
        self.report.begin("bounding moved cuts")
        self.costs.end_at(self.deadline)
        self.costs.bound_units(self.deadline.sooner(BOUNDS_SHARE * (self.deadline.left_s or 0.0)))

    def _list_wanted(self) -> list[tuple[int, Span]]:
        """Return the numbers and units of the stages beside moved cuts; those that may be stages."""
        moved = [(stage, self._move(stage, by)) for stage in range(1, len(self.spans)) for by in (-1, 1)]
        listed = [(number, spans[number]) for stage, spans in moved for number in (stage - 1, stage)]
        return [(number, span) for number, span in listed if self.units.may_be_stages[span]]

    def _move(self, stage: int, by: int) -> list[Span]:
        """Return the units of all stages with the cut before a stage moved."""
        cuts = [first for first, _ in self.spans] + [self.units.count]
        cuts[stage] += by
        return list(pairwise(cuts))

    def list_cuts(self) -> list[ExplainedCut]:
        return [self._explain_cut(stage) for stage in range(1, len(self.spans))]

    def _explain_cut(self, stage: int) -> ExplainedCut:
        sends = [each for each in self.plan.sends if {each.source, each.target} == {stage - 1, stage}]
        unit = self.spans[stage][0]
        return ExplainedCut(
            stage=stage,
            unit=unit,
            layer=self.units.name_unit(unit),
            values=tuple(each.value for each in sends),
            sent_bytes=sum(each.received_bytes for each in sends),
            send_ps=sum(each.reshard.time_ps for each in sends),
            moves=tuple(self._explain_move(stage, by) for by in (-1, 1)),
        )

    def _explain_move(self, stage: int, by: int) -> MovedCut:
        spans = self._move(stage, by)
        beside = [(number, spans[number]) for number in (stage - 1, stage)]
        for number, span in beside:
            if not self.units.may_be_stages[span]:
                empty = span[0] >= span[1]
                why = "would be empty" if empty else "would hold both copies of a tied parameter"
                return MovedCut(by, None, None, True, None, f"stage {number} {why}")
        plans = [self.plans.get(each) for each in beside]
        bound = max(table[span] for table, span in zip(self.tables, spans, strict=True))
        for (number, _), plan in zip(beside, plans, strict=True):
            if plan is not None and plan.certificate.status == "infeasible":
                needed = describe_limits(plan.certificate.least_limit_bytes, plan.certificate.least_limit_bound_bytes)
                return MovedCut(by, None, None, True, None, f"stage {number} fits in no plan: {needed}")
        if np.isinf(bound):
            return MovedCut(by, None, None, True, None, "a stage fits in no plan")
        fitting = [plan for plan in plans if plan is not None and plan.analysis is not None]
        if len(fitting) < len(plans) or self.deadline.left_s == 0.0:
            return MovedCut(by, None, int(bound), False, None, "no plan is known within the time limit")
        return self._simulate_move(stage, by, fitting, bound=int(bound))

    def _simulate_move(self, stage: int, by: int, plans: Sequence[Plan], *, bound: int) -> MovedCut:
        stages, spans = list(self.plan.stages), self._move(stage, by)
        for number, plan in zip((stage - 1, stage), plans, strict=True):
            stages[number] = PlannedStage(self.costs.first.stage(*spans[number]), plan)
        moved = {stage - 1, stage}
        sends = [each for each in self.plan.sends if moved.isdisjoint((each.source, each.target))]
        sends += list_sends(stages, self.schedule.ranks, among=moved)
        timeline = simulate_stages(self.schedule, stages, sends=sends)
        gaps = [plan.certificate.gap for plan in plans]
        is_solved = all(gap is not None and gap <= self.plan.request.gap for gap in gaps)
        return MovedCut(by, timeline.step_ps, min(bound, timeline.step_ps), is_solved, int(np.argmax(timeline.work_ps)))

    @cached_property
    def tables(self) -> list[Matrix]:
        """Lower bounds of steps by position and interval, whatever the step is."""
        return self.bounds.list_tables(np.inf)

    def explain_bound(self) -> PipelineBound:
        """Return what the plan's bound rests on."""
        held = self.bounds.held
        own = [self.costs.matrix(number, "step", held[number])[span] for number, span in enumerate(self.spans)]
        paths = [float(table[span]) for table, span in zip(self.tables, self.spans, strict=True)]
        step, proven = self.plan.timeline.step_ps, round(self.plan.certificate.bound_s / PICO)
        largest = int(np.argmax(paths))
        cuts = min(step, max(int(paths[largest]), proven))
        return PipelineBound(proven, cuts, largest, tuple(int(each) for each in own))
