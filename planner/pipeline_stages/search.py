"""The search for stages: partitions by lower bounds, plans for the best, and a bound for all of them.

A table of lower bounds says for each interval and position how long a step takes at least with that stage there
(`planner.pipeline_stages.paths`). The partition whose largest bound is least bounds all partitions from below. Its
stages are planned, which makes their bounds larger, and so on until the best of all does not change; it is simulated
with each new partition. Then all other partitions whose bounds leave room for a better step are tried in turn, until
the gap is closed or WORK is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from planner.pipeline_stages.partition import Costs, Cuts, Partition, find_cheapest, find_partition, list_partitions
from planner.pipeline_stages.paths import StagePath, list_paths
from planner.pipeline_stages.pipeline_plan import PlannedStage, simulate_stages
from planner.pipeline_stages.schedules import PipelineSchedule
from planner.pipeline_stages.stage_costs import LONG, StageCosts
from planner.planning.deadline import TimeLimitReached

WORK = 20_000
"""Ops in the graphs that one search plans or bounds, after which it tries no further partition."""
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class StageSearchResult:
    """The best stages found for a schedule and their step in ps, and the lower bound of all; none: nothing fits."""

    schedule: PipelineSchedule
    stages: tuple[PlannedStage, ...]
    step_ps: float
    bound_ps: float
    is_complete: bool
    least_limit_bytes: int | None = None


@dataclass
class StageSearch:
    """A search over the partitions of units into the stages of a schedule."""

    schedule: PipelineSchedule
    costs: StageCosts
    gap: float
    best: tuple[PlannedStage, ...] = ()
    step_ps: float = np.inf
    tried: set[Cuts] = field(default_factory=set)
    is_cut_short: bool = False
    limits: list[int] = field(default_factory=list)
    known: int = -1
    least: Partition | None = None

    def __post_init__(self) -> None:
        self.paths = list_paths(self.schedule)
        ends = {path.stage: path for path in self.paths if path.ends_in_stage}
        self.pairs = [(ends[path.stage], path) for path in self.paths if not path.ends_in_stage and path.stage in ends]
        self.held = [self.schedule.others_in_flight(stage) for stage in range(self.schedule.stages)]

    def run(self) -> StageSearchResult:
        try:
            self._try_best()
            for cuts in self._list_others():
                self._try(cuts)
        except TimeLimitReached:
            self.is_cut_short = True
        return self.leave()

    def leave(self) -> StageSearchResult:
        """Return what is known so far."""
        bound, is_complete = min(self._bound(), self.step_ps), not self.is_cut_short
        least = min(self.limits, default=None)
        return StageSearchResult(self.schedule, self.best, self.step_ps, bound, is_complete, least)

    def least_device_ps(self) -> float:
        """Return a lower bound of the step times the number of ranks."""
        return self._bound() * self.schedule.ranks

    def _try_best(self) -> None:
        """Plan the partition with the least bound, until that is one which was tried."""
        while not self._is_closed():
            found = self._least()
            if found is None or found.cuts in self.tried:
                return
            if self.tried and self.costs.is_hopeless:
                return
            if self.tried and self.costs.solved_ops >= WORK:
                self.is_cut_short = True
                return
            self._try(found.cuts)

    def _list_others(self) -> Iterator[Cuts]:
        """Yield partitions that may be better, as long as there is work to do."""
        for cuts in list_partitions(self._tables(0.0), self.step_ps):
            if self._is_closed() or self.costs.is_hopeless:
                return
            if self.costs.solved_ops >= WORK:
                self.is_cut_short = True
                return
            if cuts not in self.tried and self._bound_of(cuts) < self.step_ps:
                yield cuts

    def _is_closed(self) -> bool:
        return bool(self.step_ps < np.inf and self.step_ps - self._bound() <= self.gap * self.step_ps)

    def _try(self, cuts: Cuts) -> None:
        """Plan all stages of a partition and keep them where their step is the best."""
        self.costs.deadline.check()
        self.tried.add(cuts)
        spans = list(pairwise(cuts))
        plans = [self.costs.plan(*span, held) for span, held in zip(spans, self.held, strict=True)]
        if any(plan.analysis is None for plan in plans):
            needed = [plan.certificate.least_limit_bytes for plan in plans if plan.analysis is None]
            self.limits += [max(filter(None, needed))] if all(needed) else []
            return
        stages = []
        for number, ((first, last), plan) in enumerate(zip(spans, plans, strict=True)):
            self.costs.certify("passes", first, last)
            self.costs.certify("long", first, last, held=self.held[number])
            if self.schedule.is_split:
                self.costs.certify("through", first, last)
            if not number:
                self.costs.certify("once", first, last)
            stages.append(PlannedStage(self.costs.stage(first, last), plan))
        step = simulate_stages(self.schedule, stages, self.costs.model).step_ps
        if step < self.step_ps:
            self.best, self.step_ps = tuple(stages), step

    def _bound(self) -> float:
        """Return the lower bound of all partitions."""
        if self.tried and self.costs.is_hopeless:
            return np.inf
        found, spread = self._least(), find_cheapest(self._own_work())
        shared = np.inf if spread is None else spread[1] / self.schedule.ranks
        return max(np.inf if found is None else found.largest, shared)

    def _least(self) -> Partition | None:
        """Return the partition whose largest bound is least; updates at the end of paths depend on the first stage."""
        if self.known != (state := len(self.costs.certified)):
            self.known, found = state, []
            for end in range(1, self.costs.units.count + 1):
                tables = self._tables(self._first_update(end))
                first = np.full_like(tables[0], np.inf)
                first[0, end] = tables[0][0, end]
                found.append(find_partition([first, *tables[1:]], self._own_work()))
            self.least = min(filter(None, found), key=lambda one: (one.largest, one.total), default=None)
        return self.least

    def _bound_of(self, cuts: Cuts) -> float:
        costs = self._tables(self._first_update(cuts[1]))
        return float(max(cost[span] for cost, span in zip(costs, pairwise(cuts), strict=True)))

    def _own_work(self) -> Costs:
        """Return the bounds of each stage's own work; a step takes at least their sum, shared by all ranks."""
        return [self.costs.matrix("step", held) for held in self.held]

    def _tables(self, update: float) -> Costs:
        """Return the bounds of a step by position and interval, for the stage at the position.

        `update`: what the update of stage 0 takes at least, beside passes.
        """
        tables = [self.costs.matrix("step", held).copy() for held in self.held]
        for path in self.paths:
            whole = self._along(path, ends=1.0 if path.ends_in_stage else 0.0, update=update)
            tables[path.stage] = np.maximum(tables[path.stage], whole)
        for own, other in self.pairs:
            mixed = self._along(own, ends=1 / LONG, update=update) / LONG
            mixed += (1 - 1 / LONG) * self._along(other, ends=1 / LONG, update=update)
            tables[own.stage] = np.maximum(tables[own.stage], mixed)
        return tables

    def _along(self, path: StagePath, *, ends: float, update: float) -> Matrix:
        """Return how long a path takes at least, by the interval of its stage.

        `ends`: which part of its stage's update is met, of this path and what it is mixed with.
        """
        count, stage = self.schedule.microbatches, path.stage
        total = np.zeros_like(self.costs.matrix("passes"))
        for part, (before, own, after) in path.meets:
            if not (before or own or after):
                continue
            row, inside = self.costs.row(part), self.costs.matrix(part)
            if part == "passes" and ends:
                inside = (
                    self.costs.matrix("step", self.held[stage])
                    if ends == 1
                    else self.costs.matrix("long", self.held[stage]) / LONG
                )
                inside = inside / count
            total = total + before * row[:, None] + own * inside + after * (row[-1] - row)[None, :]
        return total if path.ends_in_stage or not path.passes[0] else total + update

    def _first_update(self, end: int) -> float:
        """Return what a micro-batch and the update of the units before `end` take at least beyond their passes."""
        return max(0.0, float(self.costs.matrix("once")[0, end] - self.costs.row("passes")[end]))
