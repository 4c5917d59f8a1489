"""The search for stages: partitions by lower bounds, plans for the best, and a bound for all of them.

A table of lower bounds says for each interval and position how long a step takes at least with that stage there
(`planner.pipeline_stages.step_bounds`). The partition whose largest bound is least bounds all partitions from below.
Its stages are planned, which makes their bounds larger, and so on until the best of all does not change. Plans for
other shares of passes and update are tried once a good part of the gap is above the best partition's own bound. At last
all others whose bounds leave room are tried, until the gap is closed or WORK or the time is up.

Where time is limited, the first partition balances the least times of the stages' ops, with stages in standard layouts
(`StageSearch.try_standard`), so that there is an answer before anything is solved. Every partition is first tried with
one plan for all stages of equal content, that of the one with most micro-batches in flight, and then with a plan for
each, before bounds of others are solved. The best so far is tried with what stages receive in parts (`received_parts`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from planner.pipeline_stages.cuts import Units
from planner.pipeline_stages.partition import Cuts, Partition, find_cheapest, list_partitions
from planner.pipeline_stages.path_parts import certify_cuts, list_inwards, weigh_first
from planner.pipeline_stages.pipeline_plan import PlannedStage, join_cuts, simulate_stages
from planner.pipeline_stages.rank_costs import RankCosts
from planner.pipeline_stages.received_parts import PartsReceiver
from planner.pipeline_stages.schedules import PipelineSchedule
from planner.pipeline_stages.step_bounds import StepBounds
from planner.planning.deadline import Deadline, TimeLimitReached
from planner.planning.plan_types import Plan

WORK = 100_000
"""Ops in the graphs that one search without a time limit plans or bounds, before it tries no further partition."""
SHIFT = 0.01
"""The share by which plans for other shares of passes and update may make a step shorter."""
UNITS_SHARE = 0.5
"""Share of a limited time that is left after the first plan in which single units are bounded."""


@dataclass(frozen=True)
class StageSearchResult:
    """The best stages found for a schedule and their step in ps, and the lower bound of all; none: nothing fits."""

    schedule: PipelineSchedule
    units: Units
    stages: tuple[PlannedStage, ...]
    step_ps: float
    bound_ps: float
    is_complete: bool
    least_limit_bytes: int | None = None


@dataclass
class StageSearch:
    """A search over the partitions of units into the stages of a schedule.

    waiting     steps, cuts and plans of partitions whose time may be shifted
    fastest_ps  the work of all ranks in the fastest standard layouts, whether or not they fit; 0: not known
    """

    schedule: PipelineSchedule
    costs: RankCosts
    gap: float
    best: tuple[PlannedStage, ...] = ()
    step_ps: float = np.inf
    tried: set[Cuts] = field(default_factory=set)
    is_cut_short: bool = False
    is_planned: bool = False
    limits: list[int] = field(default_factory=list)
    least: Partition | None = None
    known: tuple[int, float, tuple[int, ...]] | None = None
    balanced: Cuts | None = None
    fastest_ps: float = 0.0
    waiting: list[tuple[float, Cuts, list[Plan]]] = field(default_factory=list)
    parts: PartsReceiver = field(default_factory=PartsReceiver)

    def __post_init__(self) -> None:
        self.bounds = StepBounds(self.schedule, self.costs)
        self.held = self.bounds.held

    def run(self) -> StageSearchResult:
        try:
            if self.balanced is not None:
                self._plan_balanced(self.balanced)
            self._try_best()
            self._shift_waiting()
            for cuts in self._list_others():
                self._try(cuts)
                self._shift_waiting()
        except TimeLimitReached:
            self.is_cut_short = True
        return self.leave()

    def leave(self) -> StageSearchResult:
        """Return what is known so far."""
        return self._make_result(self._bound())

    def leave_standard(self) -> StageSearchResult:
        """Return the stages in standard layouts, with a bound for which nothing is solved."""
        self.is_cut_short = True
        return self._make_result(self.bounds.mixed.bound_step())

    def _make_result(self, bound_ps: float) -> StageSearchResult:
        bound, is_complete = min(bound_ps, self.step_ps), not self.is_cut_short
        least = min(self.limits, default=None)
        return StageSearchResult(self.schedule, self.costs.units, self.best, self.step_ps, bound, is_complete, least)

    def least_device_ps(self) -> float:
        """Return a lower bound of the step times the number of ranks."""
        return self._bound() * self.schedule.ranks

    def try_standard(self, until: Deadline) -> None:
        """Take the partition into stages of about equal least times, in standard layouts where they fit in time."""
        found = find_cheapest([np.square(work) for work in self.bounds.list_own_work()])
        if found is None:
            return
        self.balanced = found[0]
        try:
            if standards := self.costs.find_standards(list(pairwise(found[0])), self.held, until):
                self._submit(found[0], standards[0], is_standard=True)
                self.fastest_ps = standards[1]
        except TimeLimitReached:
            self.is_cut_short = True

    def _plan_balanced(self, cuts: Cuts) -> None:
        """Plan the stages of the partition that is in standard layouts, alike and then each, and bound single units."""
        self.costs.deadline.check()
        plans = self._plan_alike(cuts)
        self._submit(cuts, plans)
        self.is_planned = bool(self.best)
        deadline = self.costs.deadline
        self.costs.bound_units(deadline.sooner((1 - UNITS_SHARE) * (deadline.left_s or 0.0)))
        if all(plan.analysis is not None for plan in plans):
            self.tried.add(cuts)
            self._plan_each(cuts, plans)

    def _try_best(self) -> None:
        """Plan the partition with the least bound, until that is one which was tried.

        After the first, bounds of its stages are solved before they are planned, which takes longer.
        """
        while not self._is_closed():
            found = self._least()
            if found is None or found.cuts in self.tried or self._is_over():
                return
            if self.waiting and self.bounds.is_own_gap(join_cuts(self.best), self.step_ps, found.largest):
                self._shift_waiting()
            elif not self.is_planned or not self._certify(found.cuts):
                self._try(found.cuts)

    def _certify(self, cuts: Cuts) -> bool:
        """Solve bounds of a partition, those of another than the best until they are as large as the best one's.

        Return whether any was not known yet.
        """
        best, bound = join_cuts(self.best), self.bounds.bound_cuts
        is_enough = None if cuts == best else lambda: bound(cuts, self.step_ps) >= bound(best, self.step_ps)
        return certify_cuts(self.bounds, cuts, is_enough)

    def _list_others(self) -> Iterator[Cuts]:
        """Yield partitions that may be better, as long as there is work to do."""
        for cuts in list_partitions(self.bounds.list_tables(self.step_ps), self.step_ps):
            self.costs.deadline.check()
            if self._is_closed() or self._is_over():
                return
            if cuts not in self.tried and self.bounds.bound_cuts(cuts, self.step_ps) < self.step_ps:
                yield cuts

    def _is_over(self) -> bool:
        """Return whether no further partition is tried: a unit fits in no stage, or WORK is done."""
        if not self.tried or self.costs.is_hopeless:
            return bool(self.tried)
        is_worked_out = self.costs.deadline.seconds is None and self.costs.solved_ops >= WORK
        self.is_cut_short |= is_worked_out
        return is_worked_out

    def _is_closed(self) -> bool:
        return bool(self.step_ps < np.inf and self.step_ps - self._bound() <= self.gap * self.step_ps)

    def _try(self, cuts: Cuts) -> None:
        """Plan all stages of a partition and keep them where their step is the best."""
        self.costs.deadline.check()
        self.tried.add(cuts)
        plans = self._plan_alike(cuts)
        self.costs.bound_units(self.costs.deadline)
        if any(plan.analysis is None for plan in plans):
            self._note_limits([plan for plan in plans if plan.analysis is None])
            return
        self._submit(cuts, plans)
        self.is_planned = True
        self._plan_each(cuts, plans)

    def _plan_each(self, cuts: Cuts, plans: list[Plan]) -> None:
        """Plan each stage of a partition, from plans that equal stages share, and solve bounds of them."""
        spans = list(pairwise(cuts))
        for number in list_inwards(len(spans)):
            self.costs.deadline.check()
            plans[number] = self.costs.of_stage(number).plan(*spans[number], self.held[number])
        step = self._submit(cuts, plans)
        if not self._is_closed():
            weigh_first(self.bounds, spans[0], plans[0])
            self._certify(cuts)
        self.waiting.append((step, cuts, plans))

    def _shift_waiting(self) -> None:
        """Try other shares of passes and update in the partitions that were planned, where the gap is still open."""
        waiting, self.waiting = sorted(self.waiting, key=lambda one: one[:2]), []
        for step, cuts, plans in waiting:
            if not self._is_closed() and step * (1 - SHIFT) < self.step_ps:
                self._shift_time(cuts, plans, step)

    def _shift_time(self, cuts: Cuts, plans: list[Plan], step: float) -> None:
        """Try plans that take more time for passes or for the update than those of the shortest work of each stage.

        A step meets few passes of some stages, and waits for the update of the last rank only.
        """
        spans, longer = list(pairwise(cuts)), self.costs.first.times_longer * self.schedule.microbatches
        for number in list_inwards(len(spans)):
            for count in (longer, *([] if number else self.bounds.counts)):
                self.costs.deadline.check()
                costs, held = self.costs.of_stage(number), self.held[number]
                other = costs.replan(*spans[number], held, plans[number], count)
                changed = [*plans[:number], other, *plans[number + 1 :]]
                if (shorter := self._submit(cuts, changed)) < step:
                    step, plans = shorter, changed

    def _plan_alike(self, cuts: Cuts) -> list[Plan]:
        """Return plans for the stages of a partition, one for all of equal content where it fits them.

        Those with most micro-batches in flight come first. Each content that is not planned yet has an equal share of
        the time, and so has what follows.
        """
        spans = list(pairwise(cuts))
        costs = [self.costs.of_stage(number) for number in range(len(spans))]
        content = [(id(own), own.classes.list_equal(*span)[0]) for own, span in zip(costs, spans, strict=True)]
        plans: dict[int, Plan] = {}
        for number in sorted(range(len(spans)), key=lambda number: self.held[number], reverse=True):
            known = costs[number].find_plan(*spans[number], self.held[number])
            left = {content[other] for other in range(len(spans)) if other not in plans}
            share, held = 1 / (1 + len(left)), self.held[number]
            plans[number] = known or costs[number].plan(*spans[number], held, share=share, is_coarse=True)
        return [plans[number] for number in range(len(spans))]

    def _note_limits(self, unfit: list[Plan]) -> None:
        """Keep the memory limit that would be enough for stages without a plan, where that is proven of all."""
        self.is_cut_short |= any(plan.certificate.status != "infeasible" for plan in unfit)
        needed = [plan.certificate.least_limit_bytes for plan in unfit]
        self.limits += [max(filter(None, needed))] if all(needed) else []

    def _submit(self, cuts: Cuts, plans: Sequence[Plan], *, is_standard: bool = False) -> float:
        """Keep the plans of all stages where their step is the best, and return it.

        Those in standard layouts are kept as they are. Others may receive in parts, which hides sends for work of the
        stages.
        """
        if any(plan.analysis is None for plan in plans):
            return np.inf
        made = zip(pairwise(cuts), plans, strict=True)
        stages = [PlannedStage(self.costs.first.stage(*span), plan) for span, plan in made]
        step = self._keep(stages)
        if is_standard or self.schedule.chunks > 1 or self._simulate(stages, slower_sends=0.0) >= self.step_ps:
            return step
        for name in ("received", "received_gradients"):
            split = [self._receive_in_parts(one, getattr(one.stage, name)) for one in stages]
            if (shorter := self._keep(split)) < step:
                stages, step = split, shorter
        return step

    def _simulate(self, stages: Sequence[PlannedStage], *, slower_sends: float = 1.0) -> int:
        return simulate_stages(self.schedule, stages, slower_sends=slower_sends).step_ps

    def _keep(self, stages: Sequence[PlannedStage]) -> int:
        """Keep stages where their step is the best, and return it."""
        step = self._simulate(stages)
        if step < self.step_ps:
            self.best, self.step_ps = tuple(stages), step
        return step

    def _receive_in_parts(self, one: PlannedStage, values: Sequence[str]) -> PlannedStage:
        self.costs.deadline.check()
        return replace(one, plan=self.parts.receive_in_parts(one.plan, values))

    def _bound(self) -> float:
        """Return the lower bound of all partitions whose steps are below the best."""
        if self.tried and self.costs.is_hopeless:
            return np.inf
        found = self._least()
        return np.inf if found is None else found.largest

    def _least(self) -> Partition | None:
        """Return the partition whose largest bound is least."""
        state = self.costs.count_known(), self.step_ps, self.bounds.counts
        if self.known != state:
            self.known, self.least = state, self.bounds.find_least(self.step_ps)
        return self.least
