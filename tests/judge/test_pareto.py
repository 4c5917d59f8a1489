"""The frontier of random points compared with its definition, and what a slack excludes."""

from __future__ import annotations

import numpy as np
import pytest

from planner.judge.pareto import Point, pareto_frontier
from tests.testing.seeds import seeds


@pytest.mark.parametrize("seed", seeds(20))
def test_the_frontier_is_what_no_other_point_is_no_worse_than(seed: int) -> None:
    random = np.random.default_rng(seed)
    points = list(enumerate(Point(*map(int, random.integers(1, 6, 3))) for _ in range(30)))
    wanted = {
        point
        for _, point in points
        if not any(other != point and all(a <= b for a, b in zip(other, point, strict=True)) for _, other in points)
    }
    found = pareto_frontier(points)
    assert {points[key][1] for key in found} == wanted
    assert len(found) == len(wanted), "equal points stand once"


def test_a_slack_forgives_a_share_of_cost_and_time_and_no_device() -> None:
    known = Point(8, 100.0, 10.0)
    assert known.is_no_worse(Point(8, 99.0, 9.9), slack=0.01)
    assert not known.is_no_worse(Point(8, 98.0, 9.9), slack=0.01)
    assert not known.is_no_worse(Point(4, 200.0, 20.0), slack=0.5)
