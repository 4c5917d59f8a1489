"""Partitions found by dynamic programming are those of trying all."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest

from planner.pipeline_stages.partition import (
    Cuts,
    find_cheapest,
    find_partition,
    list_all,
    list_partitions,
    sum_intervals,
)
from tests.testing.seeds import seeds


def all_cuts(units: int, positions: int) -> list[Cuts]:
    return [(0, *inner, units) for inner in combinations(range(1, units), positions - 1)]


@pytest.mark.parametrize("seed", seeds(40))
def test_the_partition_is_the_best_of_all(seed: int) -> None:
    random = np.random.default_rng(seed)
    units, positions = int(random.integers(1, 8)), int(random.integers(1, 4))
    costs = [random.integers(1, 30, (units + 1, units + 1)).astype(float) for _ in range(positions)]
    for cost in costs:
        cost[random.random(cost.shape) < 0.2] = np.inf
    second = [random.integers(1, 30, (units + 1, units + 1)).astype(float) for _ in range(positions)]

    def priced(cuts: Cuts, by: list[np.ndarray]) -> list[float]:
        return [float(cost[span]) for cost, span in zip(by, pairwise(cuts), strict=True)]

    best = min(
        ((max(priced(cuts, costs)), sum(priced(cuts, second))) for cuts in all_cuts(units, positions)), default=None
    )
    found = find_partition(costs, second)
    if best is None or not np.isfinite(best[0]):
        assert found is None
        return
    assert found is not None
    assert (found.largest, found.total) == best
    assert (max(priced(found.cuts, costs)), sum(priced(found.cuts, second))) == best
    cheapest = find_cheapest(costs)
    assert cheapest is not None
    assert cheapest[1] == min(sum(priced(cuts, costs)) for cuts in all_cuts(units, positions))
    for most in (best[0], best[0] + 1, 100.0):
        wanted = [cuts for cuts in all_cuts(units, positions) if max(priced(cuts, costs)) < most]
        assert sorted(list_partitions(costs, most)) == sorted(wanted)


@pytest.mark.parametrize("seed", seeds(20))
def test_all_partitions_into_intervals_that_are_left_are_listed_with_their_sums(seed: int) -> None:
    random = np.random.default_rng(seed)
    units, positions = int(random.integers(2, 8)), int(random.integers(1, 4))
    costs = [random.integers(1, 30, (units + 1, units + 1)).astype(float) for _ in range(positions)]
    wanted = [cuts for cuts in all_cuts(units, positions) if random.random() < 0.7]
    is_left = [np.zeros((units + 1, units + 1), bool) for _ in range(positions)]
    for cuts in wanted:
        for left, span in zip(is_left, pairwise(cuts), strict=True):
            left[span] = True
    listed = list_all(is_left, 1000)
    assert listed is not None
    found = [tuple(cuts) for cuts in listed.tolist()]
    assert set(wanted) <= set(found) <= set(all_cuts(units, positions))
    sums = [sum(cost[span] for cost, span in zip(costs, pairwise(cuts), strict=True)) for cuts in found]
    assert sum_intervals(costs, listed).tolist() == sums
    assert list_all(is_left, len(found) - 1) is None or not found
