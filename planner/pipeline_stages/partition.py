"""Partitions of a row of units into intervals, by dynamic programming over cuts (Zheng et al., "Alpa", OSDI 2022).

Costs of an interval [a, b) at position k are given as `costs[k][a, b]`, infinite where it cannot be. Each takes
time of positions times units squared, but for the list of all partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Costs = Sequence[NDArray[np.float64]]
Integers = NDArray[np.intp]
Cuts = tuple[int, ...]
"""The units at which intervals begin, and the number of units: interval k is [cuts[k], cuts[k + 1])."""


@dataclass(frozen=True, slots=True)
class Partition:
    """Cuts, the largest cost of an interval, and the sum of a second cost over all intervals."""

    cuts: Cuts
    largest: float
    total: float


def find_partition(costs: Costs, second: Costs | None = None) -> Partition | None:
    """Return the partition whose largest cost is least and, of those, the one whose sum (of `second`) is least.

    None where no partition has a finite cost.
    """
    least = join_prefixes(costs, np.maximum)[-1, -1]
    if not np.isfinite(least):
        return None
    summed = second if second is not None else costs
    allowed = [np.where(cost <= least, other, np.inf) for cost, other in zip(costs, summed, strict=True)]
    cuts, total = find_cheapest(allowed) or ((), np.inf)
    return Partition(cuts, float(least), total)


def find_cheapest(costs: Costs) -> tuple[Cuts, float] | None:
    """Return the partition whose sum of costs is least, and the sum, or None where no sum is finite."""
    least = join_prefixes(costs, np.add)
    if not np.isfinite(least[-1, -1]):
        return None
    cuts = [costs[0].shape[0] - 1]
    for before, cost in zip(least[-2::-1], reversed(costs), strict=True):
        cuts.append(int(np.argmin(before[: cuts[-1]] + cost[: cuts[-1], cuts[-1]])))
    return tuple(reversed(cuts)), float(least[-1, -1])


def list_partitions(costs: Costs, most: float) -> Iterator[Cuts]:
    """Yield all partitions whose largest cost is below `most`, those with small first intervals first."""
    count = costs[0].shape[0] - 1
    rest = join_suffixes(costs, np.maximum)

    def extend(cuts: Cuts) -> Iterator[Cuts]:
        position = len(cuts) - 1
        if position == len(costs):
            if cuts[-1] == count:
                yield cuts
            return
        for end in range(cuts[-1] + 1, count + 1):
            after = rest[len(costs) - position - 1, end]
            if max(costs[position][cuts[-1], end], after) < most:
                yield from extend((*cuts, end))

    return extend((0,))


def list_all(is_left: Sequence[NDArray[np.bool_]], most: int) -> Integers | None:
    """Return all partitions into intervals that are left at their position, `[partitions, stages + 1]`.

    None where there are more than `most`. Every interval that is left has a partition.
    """
    cuts = np.zeros((1, 1), np.intp)
    for left in is_left:
        rows, ends = np.nonzero(left[cuts[:, -1]])
        if len(rows) > most:
            return None
        cuts = np.concatenate([cuts[rows], ends[:, None]], axis=1)
    return cuts


def sum_intervals(costs: Costs, listed: Integers) -> NDArray[np.float64]:
    """Return the sum of the costs of the intervals of each of several partitions `[partitions, stages + 1]`."""
    total: NDArray[np.float64] = np.sum(
        [cost[first, last] for cost, first, last in zip(costs, listed.T, listed.T[1:], strict=False)], axis=0
    )
    return total


def join_prefixes(costs: Costs, join: np.ufunc) -> NDArray[np.float64]:
    """Return, for each number of first intervals and each end, the least joined cost."""
    size = costs[0].shape[0]
    least = np.full((len(costs) + 1, size), np.inf)
    least[0, 0] = -np.inf if join is np.maximum else 0.0
    ends = np.arange(size)
    for position, cost in enumerate(costs, 1):
        begins = np.flatnonzero(least[position - 1] < np.inf)
        joined = np.where(begins[:, None] < ends, join(least[position - 1, begins, None], cost[begins]), np.inf)
        least[position] = joined.min(axis=0, initial=np.inf)
    return least


def join_suffixes(costs: Costs, join: np.ufunc) -> NDArray[np.float64]:
    """Return, for each number of intervals and each begin, the least joined cost of so many last intervals."""
    turned = [cost[::-1, ::-1].T for cost in reversed(costs)]
    least: NDArray[np.float64] = join_prefixes(turned, join)[:, ::-1]
    return least
