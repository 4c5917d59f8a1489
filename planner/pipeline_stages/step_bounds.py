"""Lower bounds of a step by which interval of units a stage is, from paths through its tasks.

Along a path (`planner.pipeline_stages.paths`) that meets stage e most, the stages before and after it take at least the
least sum over all ways to part the units before and after. Three things make these sums large enough:

* The passes of a stage are bounded with all that a step holds in memory. Without memory they would often take less.
  Another bound is known where only steps shorter than a known one, T, are of interest: a stage whose step of K m
  micro-batches takes at least S_K has m P + U <= T and K m P + U >= S_K, so that P >= (S_K - T) / ((K - 1) m).
* A path that ends with the update of stage 0 meets few of its passes, and one on which stage 0 is the slowest meets
  many. With few passes its update can take less, with many its passes can. The mean of the two that meets k of its
  passes takes at least as long there as a step of k micro-batches, k P + U, which is solved as it is.
* An interval whose own bound is T or more is no stage, and so are those that no partition of the others is left for.
  The sums are taken over the rest, until no more intervals leave. Where few partitions are left, each is bounded by
  the sums of its own intervals.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.pipeline_stages.interval_bounds import Matrix
from planner.pipeline_stages.mixed_bounds import MixedBounds
from planner.pipeline_stages.partition import (
    Costs,
    Cuts,
    Integers,
    Partition,
    find_partition,
    join_prefixes,
    join_suffixes,
    list_all,
    sum_intervals,
)
from planner.pipeline_stages.paths import PathPart, StagePath, has_long_paths, list_paths
from planner.pipeline_stages.rank_costs import RankCosts
from planner.pipeline_stages.schedules import PipelineSchedule

ROUNDS = 3
MAX_LISTED = 20_000
"""Partitions of which each is bounded for itself."""
OWN_SHARE = 0.25
"""Share of a gap from which on better plans of the same stages are worth more than bounds of others."""
Mask = NDArray[np.bool_]
Row = NDArray[np.float64]
Meets = tuple[tuple[PathPart, float], ...]
"""How often each part of the passes is met."""


@dataclass
class StepBounds:
    """The bounds of a schedule's steps below `most`, from what is known of intervals.

    counts  the micro-batches of the short steps by which stage 0 is bounded
    """

    schedule: PipelineSchedule
    costs: RankCosts
    counts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.counts = self.counts or self.costs.first.few

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
        return [
            np.where(may_be, self.costs.matrix(number, "step", held), np.inf) for number, held in enumerate(self.held)
        ]

    def list_tables(self, most: float) -> list[Matrix]:
        """Return the bounds by position and interval; infinite for an interval that no step below `most` has there."""
        return self._narrow(most)[0]

    def _narrow(self, most: float) -> tuple[list[Matrix], _Round]:
        """Return the bounds by position and interval, and what they are sums of."""
        is_left = [self.costs.units.may_be_stages for _ in self.held]
        now = _Round(self, most, is_left)
        tables = now.list_tables()
        for _ in range(ROUNDS if np.isfinite(most) else 0):
            before, is_left = is_left, _find_left(tables, most)
            if all(np.array_equal(one, other) for one, other in zip(is_left, before, strict=True)):
                break
            now = _Round(self, most, is_left)
            tables = now.list_tables()
        return [np.where(left, table, np.inf) for left, table in zip(is_left, tables, strict=True)], now

    def find_least(self, most: float) -> Partition | None:
        """Return the partition whose bound is the least, or None where no step is below `most`.

        Of many partitions, the largest bound of an interval counts as that of the partition.
        """
        tables, now = self._narrow(most)
        own_work = self.list_own_work()
        listed = list_all([np.isfinite(table) for table in tables], MAX_LISTED) if np.isfinite(most) else None
        if listed is None:
            return find_partition(tables, own_work)
        if not len(listed):
            return None
        bounds = now.bound_all(listed)
        total = sum_intervals(own_work, listed)
        best = int(np.lexsort((total, bounds))[0])
        return Partition(tuple(listed[best].tolist()), float(bounds[best]), float(total[best]))

    def bound_cuts(self, cuts: Cuts, most: float) -> float:
        """Return the bound of the steps below `most` of one partition."""
        is_left = [self.costs.units.may_be_stages for _ in self.held]
        return float(_Round(self, most, is_left).bound_all(np.array([cuts]))[0])

    def is_own_gap(self, cuts: Cuts, step: float, bound: float) -> bool:
        """Return whether OWN_SHARE of the gap from a partition's step to the bound of all is above its own bound."""
        return step - self.bound_cuts(cuts, step) >= OWN_SHARE * (step - bound)


def _find_left(tables: Costs, most: float) -> list[Mask]:
    """Return which intervals are in a partition whose bounds are all below `most`."""
    below = [np.where(table < most, 0.0, np.inf) for table in tables]
    before, after = join_prefixes(below, np.add), join_suffixes(below, np.add)
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
        self.passes = [self._bound_passes(stage) for stage in range(len(self.held))]
        self.sums: dict[tuple[int, Meets], Matrix] = {}

    def list_tables(self) -> list[Matrix]:
        """Return the bounds by position and interval: a path takes the least sum over all partitions with it there."""
        tables = [work.copy() for work in self.bounds.list_own_work()]
        for terms in self._list_paths():
            before, after = join_prefixes(terms, np.add), join_suffixes(terms, np.add)
            for stage, term in enumerate(terms):
                around = before[stage][:, None] + after[len(terms) - stage - 1][None, :]
                tables[stage] = np.maximum(tables[stage], around + term)
        return tables

    def bound_all(self, listed: Integers) -> Row:
        """Return the bound of each of several partitions `[partitions, stages + 1]`: that of its longest path."""
        own = [
            work[first, last]
            for work, first, last in zip(self.bounds.list_own_work(), listed.T, listed.T[1:], strict=False)
        ]
        paths = [sum_intervals(terms, listed) for terms in self._list_paths()]
        bound: Row = np.maximum.reduce([*own, *paths])
        return bound

    def _list_paths(self) -> Iterator[list[Matrix]]:
        """Yield what each path, or mean of paths, takes at each position and interval."""
        own_work = self.bounds.list_own_work()
        ends = {path.stage: path for path in self.bounds.paths if path.ends_in_stage}
        for path in self.bounds.paths:
            stage, met = path.stage, path.passes[1]
            around = self._sum_around(path)
            if path.ends_in_stage:
                yield _add_to(around, stage, self._bound_met(stage, met, own_work[stage]))
                continue
            yield _add_to(around, stage, met * self.passes[stage])
            yield from self._list_means(path, ends[0])
            if stage in ends and (longer := self.costs.first.times_longer) > 1:
                # A stage may take less for passes where it takes more for its update, which ends only one of two paths.
                one, share = ends[stage], 1 / longer
                pairs = zip(self._sum_around(one), around, strict=True)
                both = [share * other + (1 - share) * term for other, term in pairs]
                spread = (share * one.passes[1] + (1 - share) * met) * self._spread_update(stage)
                yield _add_to(both, stage, spread)
        yield from self.bounds.mixed.list_sums(self.is_left, self.passes)

    def _bound_met(self, stage: int, met: int, own_work: Matrix) -> Matrix:
        """Return a bound of the passes of a stage that a path meets and its update, `met` P + U."""
        bound: Matrix = met / self.count * own_work
        for count in self.bounds.counts:
            if count <= met:
                short = self.costs.matrix(stage, count, self.held[stage])
                bound = np.maximum(bound, short + (met - count) * self.passes[stage])
        return bound

    def _spread_update(self, stage: int) -> Matrix:
        """Return a bound of P + U / (K m) of a stage."""
        return self.costs.matrix(stage, "long", self.held[stage]) / (self.costs.first.times_longer * self.count)

    def _bound_passes(self, stage: int) -> Matrix:
        passes, times, held = self.costs.matrix(stage, "passes"), self.costs.first.times_longer, self.held[stage]
        passes = np.maximum(passes, self.costs.matrix(stage, "loop", held) / self.count)
        if not np.isfinite(self.most) or times == 1:
            return passes
        slack = (self.costs.matrix(stage, "long", held) - self.most) / ((times - 1) * self.count)
        return np.maximum(passes, slack)

    def _list_means(self, path: StagePath, own: StagePath) -> Iterator[list[Matrix]]:
        """Yield the means of two paths to the end of the first rank, that of a stage and that of stage 0.

        Each meets as many passes of stage 0 as a short step has, and its update.
        """
        few, most = path.passes[0], own.passes[1]
        for count in self.bounds.counts:
            if not few <= count <= most or (few == most and count > few):
                continue
            share = (count - few) / max(most - few, 1)
            pairs = list(zip(self._list_meets(path), self._list_meets(own), strict=True))
            mean = [_mix_meets(met, alone, share) for met, alone in pairs]
            first = tuple((part, times) for part, times in mean[0] if part != "passes")
            terms = [self._sum_parts(number, first if not number else met) for number, met in enumerate(mean)]
            yield _add_to(terms, 0, self.costs.matrix(0, count, self.held[0]))

    def _sum_around(self, path: StagePath) -> list[Matrix]:
        """Return what a path takes at each position beside the passes that it meets in its stage, and the update."""
        meets = self._list_meets(path)
        meets[path.stage] = tuple((part, times) for part, times in meets[path.stage] if part != "passes")
        return [self._sum_parts(number, met) for number, met in enumerate(meets)]

    def _list_meets(self, path: StagePath) -> list[Meets]:
        """Return how often a path meets the parts of each stage."""
        sides = [1 + (number > path.stage) - (number < path.stage) for number in range(len(self.held))]
        return [tuple((part, met[side]) for part, met in path.meets) for side in sides]

    def _sum_parts(self, stage: int, meets: Meets) -> Matrix:
        """Return what each interval takes at a position for parts by how often they are met."""
        if (stage, meets) not in self.sums:
            total = np.where(self.is_left[stage], 0.0, np.inf)
            for part, times in meets:
                if times:
                    total += times * (self.passes[stage] if part == "passes" else self.costs.matrix(stage, part))
            self.sums[stage, meets] = total
        return self.sums[stage, meets]


def _add_to(terms: Sequence[Matrix], stage: int, added: Matrix) -> list[Matrix]:
    return [term + added if number == stage else term for number, term in enumerate(terms)]


def _mix_meets(one: Meets, other: Meets, share: float) -> Meets:
    """Return how often the mean of two paths meets the parts of a stage, `share` of it the other path."""
    return tuple(
        (part, share * more + (1 - share) * times) for (part, times), (_, more) in zip(one, other, strict=True)
    )
