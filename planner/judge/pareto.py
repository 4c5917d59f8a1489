"""Pareto frontier of plans by number of devices, cost and time.

A point is no worse than another where it has no more devices, costs no more and takes no longer. The frontier consists
of the points that no other point is no worse than. A candidate's lower bounds form a point that none of its plans can
beat; a known plan rules the candidate out where it is no worse than that point, up to a share of cost and time, the
slack. So no plan of a candidate that was ruled out beats the frontier by more than that share.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple, TypeVar


class Point(NamedTuple):
    """Number of devices, and cost and seconds of a step or a token."""

    devices: int
    cost: float
    time_s: float

    def is_no_worse(self, other: Point, slack: float = 0.0) -> bool:
        """Return whether this point is no worse, with cost and time reduced by the share `slack`."""
        share = 1 - slack
        return self.devices <= other.devices and self.cost * share <= other.cost and self.time_s * share <= other.time_s


Key = TypeVar("Key", bound=Hashable)


def pareto_frontier(points: Iterable[tuple[Key, Point]]) -> list[Key]:
    """Return the keys of the frontier's points in the order of devices; of equal points the first."""
    frontier: list[tuple[Key, Point]] = []
    for key, point in sorted(points, key=lambda pair: pair[1]):
        if not any(other.is_no_worse(point) for _, other in frontier):
            frontier.append((key, point))
    return [key for key, _ in frontier]
