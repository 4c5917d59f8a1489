"""Lower bounds of a step from a mean of paths, by what is known of intervals of units.

Of each stage j the mean (`planner.pipeline_stages.mixed_paths`) takes at least n_j P_j + u_j U_j, where n_j is how
often it meets the passes, which take P_j, and u_j how often the update, which takes U_j. Steps of m and of K m
micro-batches, which take at least S and L, bound that: where n_j <= u_j m it is at least S n_j / m, and otherwise the
sum of u_j steps, some of them long, and of passes beyond. The least sum over all partitions bounds the step, and the
least sum over those in which stage j is one interval bounds the steps with that stage there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.pipeline_stages.interval_bounds import Matrix
from planner.pipeline_stages.mixed_paths import MAX_SIZE, SMALL_SIZE, MixedPath, TimeShares, mix_paths, mix_ranks
from planner.pipeline_stages.partition import find_cheapest
from planner.pipeline_stages.paths import has_long_paths, split_parts
from planner.pipeline_stages.rank_costs import RankCosts
from planner.pipeline_stages.schedules import PipelineSchedule
from planner.pipeline_stages.stage_plans import Held

Masks = Sequence[NDArray[np.bool_]]
DIGITS = 2
"""Digits of shares of time: with fewer, more graphs have the same weights."""


@dataclass(frozen=True)
class MixedBounds:
    """The bounds of a schedule's steps from means of paths; `held`: the micro-batches in flight in each stage."""

    schedule: PipelineSchedule
    costs: RankCosts
    held: Sequence[Held]

    def bound_step(self) -> float:
        """Return a bound of all partitions that is found soon, infinite where there is none."""
        is_left = [self.costs.units.may_be_stages] * self.schedule.stages
        passes = [self.costs.matrix(number, "passes") for number in range(self.schedule.stages)]
        found = [find_cheapest(sums) for sums in self.list_sums(is_left, passes, SMALL_SIZE)]
        return max(np.inf if each is None else each[1] for each in found)

    def list_sums(self, is_left: Masks, passes: Sequence[Matrix], size: int = MAX_SIZE) -> Iterator[list[Matrix]]:
        """Yield what each mean takes at each position and interval.

        is_left  which intervals count at each position
        passes   bounds of the passes of an interval at each position
        size     as in `mix_paths`
        """
        for mixed in self._list_mixed(size):
            parts = np.transpose(split_parts(mixed.met)).tolist()
            sums = [
                self._bound_stage(number, part, update, passes=one)
                for number, (part, update, one) in enumerate(zip(parts, mixed.update.tolist(), passes, strict=True))
            ]
            yield [np.where(left, one, np.inf) for left, one in zip(is_left, sums, strict=True)]

    def _bound_stage(self, number: int, parts: Sequence[float], update: float, *, passes: Matrix) -> Matrix:
        """Return what a mean takes in a stage at least; `parts`: how often it meets those of `split_parts`."""
        (met, through, forward), count, held = parts, self.schedule.microbatches, self.held[number]
        step, beyond = self.costs.matrix(number, "step", held), met - count * update
        longer = self.costs.first.times_longer - 1
        others = [(through, self.costs.matrix(number, "through"))] if through else []
        others += [(forward, self.costs.matrix(number, "forward"))] if forward else []
        if beyond <= 0:
            return _sum_weighted([(met / count, step), *others], step.shape)
        bound = _sum_weighted([(update, step), (beyond, passes), *others], step.shape)
        if not longer:
            return bound
        share = min(update, beyond / (longer * count))
        long, rest = (share, self.costs.matrix(number, "long", held)), (beyond - share * longer * count, passes)
        return np.maximum(bound, _sum_weighted([long, (update - share, step), rest, *others], step.shape))

    def _list_mixed(self, size: int) -> Iterator[MixedPath]:
        yield mix_ranks(self.schedule)
        if (shares := self._find_shares()) is not None:
            yield mix_paths(self.schedule, shares, size)

    def _find_shares(self) -> TimeShares | None:
        """Return how stages may share the time of passes, rounded down; None where that tells nothing.

        Shares are those on the mesh of the first rank, and each stage's least share on its own.
        """
        stages = self.schedule.stages
        by_stage = [self.costs.matrix(number, "passes") for number in range(stages)]
        passes = by_stage[0]
        total, end = passes[0, -1], len(passes) - 1
        if stages == 1 or has_long_paths(self.schedule) or not 0 < total < np.inf:
            return None
        may_be = [np.where(self.costs.units.may_be_stages, own, np.inf) for own in by_stage]
        least = [
            own[n : end - stages + n + 1, n + 1 : end - stages + n + 2].min() * (total / by_stage[n][0, -1])
            for n, own in enumerate(may_be)
        ]
        if not sum(least) <= total:
            return None
        step = self.costs.matrix(0, "step", self.held[0])[0, -1]
        update = max(0.0, step / total - self.schedule.microbatches)
        through = self.costs.matrix(0, "through")[0, -1] if self.schedule.is_split else total
        forward = self.costs.matrix(0, "forward")[0, -1]
        shares = _round_down(min(forward, through, total) / total), _round_down(min(through, total) / total)
        smallest = tuple(_round_down(each / total * stages) / stages for each in least)
        return TimeShares(*shares, update=_round_down(update), least=smallest)


def _sum_weighted(terms: Sequence[tuple[float, Matrix]], shape: tuple[int, ...]) -> Matrix:
    """Return the sum of what has a weight above 0: what no stage can be is infinite."""
    return sum((weight * bounds for weight, bounds in terms if weight > 0), np.zeros(shape))


def _round_down(share: float) -> float:
    return float(np.floor(share * 10**DIGITS) / 10**DIGITS)
