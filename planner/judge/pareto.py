"""Which plans nobody would trade for another: fewest devices, least cost, least time.

A point is no worse than another where it has no more devices, costs no more and takes no longer. What is left when
every point that another is no worse than is taken away is the frontier. A floor is a point that nothing can be better
than; a plan rules it out where it is no worse than the floor but for a share of its cost and time, the slack: so no
plan that was ruled out unseen beats the frontier by more than that share.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple, TypeVar


class Point(NamedTuple):
    """Devices, and cost and seconds of a step or of a token."""

    devices: int
    cost: float
    time_s: float

    def is_no_worse(self, other: Point, slack: float = 0.0) -> bool:
        """Is this one no worse, but for a share of its cost and time?"""
        share = 1 - slack
        return self.devices <= other.devices and self.cost * share <= other.cost and self.time_s * share <= other.time_s


Key = TypeVar("Key", bound=Hashable)


def pareto_frontier(points: Iterable[tuple[Key, Point]]) -> list[Key]:
    """The keys of the points that no other is no worse than, by devices; of equal points the first."""
    left: list[tuple[Key, Point]] = []
    for key, point in sorted(points, key=lambda pair: pair[1]):
        if not any(other.is_no_worse(point) for _, other in left):
            left.append((key, point))
    return [key for key, _ in left]
