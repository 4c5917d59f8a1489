"""Lower bounds of a step by which interval of units a stage is, from paths through its tasks.

Along a path (`planner.pipeline_stages.paths`) that meets stage e most, the stages before and after it take at least the
least sum over all ways to part the units before and after. Three things make these sums large enough:

* Only steps shorter than a known one, T, are of interest. A stage whose step of K m micro-batches takes at least S_K
  has m P + U <= T and K m P + U >= S_K, so that its passes take P >= (S_K - T) / ((K - 1) m), with all that the stage
  holds in memory. Without memory P would often be smaller.
* Likewise, where a path that ends with the update of stage 0 takes n P + U <= C there, and a step of k < n
  micro-batches at least S_k, it takes P + U >= ((n - 1) S_k - (k - 1) C) / (n - k).
* An interval whose own bound is T or more is no stage, and so are those that no partition of the others is left for.
  The sums are taken over the rest, until no more intervals leave.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.pipeline_stages.interval_bounds import Matrix
from planner.pipeline_stages.mixed_bounds import MixedBounds
from planner.pipeline_stages.partition import Costs, join_prefixes, join_suffixes
from planner.pipeline_stages.paths import StagePath, has_long_paths, list_paths
from planner.pipeline_stages.schedules import PipelineSchedule
from planner.pipeline_stages.stage_costs import Part, StageCosts

ROUNDS = 3
FEW: tuple[Part, ...] = ("short", "middle")
"""The steps of few micro-batches."""
Mask = NDArray[np.bool_]
Sides = tuple[Matrix, Matrix]
"""Least sums of the stages before each unit, and of those after it, by their number."""


@dataclass(frozen=True)
class StepBounds:
    """The bounds of a schedule's steps below `most`, from what is known of intervals."""

    schedule: PipelineSchedule
    costs: StageCosts

    @cached_property
    def paths(self) -> list[StagePath]:
        is_limited = self.costs.deadline.seconds is not None
        return [] if is_limited and has_long_paths(self.schedule) else list_paths(self.schedule)

    @cached_property
    def held(self) -> list[tuple[int, int]]:
        return [self.schedule.others_in_flight(stage) for stage in range(self.schedule.stages)]

    @cached_property
    def mixed(self) -> MixedBounds:
        return MixedBounds(self.schedule, self.costs, self.held)

    def list_own_work(self) -> list[Matrix]:
        """Return the bounds of each stage's own work."""
        may_be = self.costs.units.may_be_stages
        return [np.where(may_be, self.costs.matrix("step", held), np.inf) for held in self.held]

    def list_tables(self, most: float) -> list[Matrix]:
        """Return the bounds by position and interval; infinite for an interval that no step below `most` has there."""
        is_left = [self.costs.units.may_be_stages for _ in self.held]
        tables = _Round(self, most, is_left).list_tables()
        for _ in range(ROUNDS if np.isfinite(most) else 0):
            before, is_left = is_left, _find_left(tables, most)
            if all(np.array_equal(one, other) for one, other in zip(is_left, before, strict=True)):
                break
            tables = _Round(self, most, is_left).list_tables()
        return [np.where(left, table, np.inf) for left, table in zip(is_left, tables, strict=True)]


def _find_left(tables: Costs, most: float) -> list[Mask]:
    """Return which intervals are in a partition whose bounds are all below `most`."""
    below = [np.where(table < most, 0.0, np.inf) for table in tables]
    before, after = join_prefixes(below, np.add)[0], join_suffixes(below, np.add)
    forward = np.triu(np.ones_like(tables[0], bool), 1)
    return [
        forward & np.isfinite(before[k][:, None] + one + after[len(tables) - k - 1][None, :])
        for k, one in enumerate(below)
    ]


@dataclass
class _Round:
    """The bounds while intervals are left at each position."""

    bounds: StepBounds
    most: float
    is_left: list[Mask]

    def __post_init__(self) -> None:
        self.costs, self.held, self.count = self.bounds.costs, self.bounds.held, self.bounds.schedule.microbatches
        self.passes = [self._bound_passes(held) for held in self.held]
        self.known: dict[object, Sides] = {}

    def list_tables(self) -> list[Matrix]:
        own_work = self.bounds.list_own_work()
        tables = [work.copy() for work in own_work]
        ends = {path.stage: path for path in self.bounds.paths if path.ends_in_stage}
        for path in self.bounds.paths:
            stage, met = path.stage, path.passes[1]
            around = self._sum_around(path)
            if path.ends_in_stage:
                tables[stage] = np.maximum(tables[stage], around + met / self.count * own_work[stage])
                continue
            tables[stage] = np.maximum(tables[stage], around + met * self.passes[stage])
            if stage in ends and self.costs.times_longer > 1:
                # A stage may take less for passes where it takes more for its update, which ends only one of two paths.
                one, share = ends[stage], 1 / self.costs.times_longer
                both = share * self._sum_around(one) + (1 - share) * around
                both += (share * one.passes[1] + (1 - share) * met) * self._spread_update(stage)
                tables[stage] = np.maximum(tables[stage], both)
        mixed = self.bounds.mixed.list_tables(self.is_left, self.passes)
        return [np.maximum(one, other) for one, other in zip(tables, mixed, strict=True)]

    def _spread_update(self, stage: int) -> Matrix:
        """Return a bound of P + U / (K m) of a stage."""
        return self.costs.matrix("long", self.held[stage]) / (self.costs.times_longer * self.count)

    def _bound_passes(self, held: tuple[int, int]) -> Matrix:
        passes, times = self.costs.matrix("passes"), self.costs.times_longer
        if not np.isfinite(self.most) or times == 1:
            return passes
        slack = (self.costs.matrix("long", held) - self.most) / ((times - 1) * self.count)
        return np.maximum(passes, slack)

    def _bound_first_update(self) -> Matrix:
        """Return a bound of P + U of stage 0."""
        short, count = self.costs.matrix("short", self.held[0]), self.count
        if self.costs.counts["short"] == 1:
            return short
        if not np.isfinite(self.most):
            return self.passes[0]
        own = next(path for path in self.bounds.paths if not path.stage and path.ends_in_stage)
        around = self._sum_around(own)
        around = np.where(np.isfinite(around), around, 0.0)
        # What the stage takes at most for so many passes and the update, and at least for fewer.
        limits = [(count, np.full_like(short, self.most)), (own.passes[1], self.most - around)]
        steps = [(self.costs.counts[part], self.costs.matrix(part, self.held[0])) for part in FEW]
        bounds = [((n - 1) * step - (k - 1) * most) / (n - k) for n, most in limits for k, step in steps if n > k]
        bound: Matrix = np.maximum.reduce(bounds)
        return bound

    def _sum_around(self, path: StagePath) -> Matrix:
        """Return what a path takes beside the passes that it meets in its stage."""
        stage = path.stage
        before, after = self._sum_sides(path, 0)[0], self._sum_sides(path, 2)[1]
        total: Matrix = before[stage][:, None] + after[len(self.held) - stage - 1][None, :]
        for part, (_, own, _) in path.meets:
            if own and part != "passes":
                total = total + own * self.costs.matrix(part)
        return total

    def _sum_sides(self, path: StagePath, side: int) -> Sides:
        """Return the least sums of the stages before and after a path's, which meets them as on one side of it."""
        meets = tuple((part, counts[side]) for part, counts in path.meets)
        has_update = side == 0 and not path.ends_in_stage and path.passes[0] > 0
        if (meets, has_update) not in self.known:
            each = []
            for stage, left in enumerate(self.is_left):
                total = np.where(left, 0.0, np.inf)
                for part, count in meets:
                    if count:
                        total += count * (self.passes[stage] if part == "passes" else self.costs.matrix(part))
                if has_update and not stage:
                    # The path ends with the update of stage 0, which is met with one of its passes.
                    total += np.maximum(self._bound_first_update() - self.passes[0], 0.0)
                each.append(total)
            self.known[meets, has_update] = join_prefixes(each, np.add)[0], join_suffixes(each, np.add)
        return self.known[meets, has_update]
