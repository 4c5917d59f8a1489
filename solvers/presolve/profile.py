"""A node's usage over time: intervals that ascend and do not overlap, a row of bytes per strategy in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Profile:
    """usage[q, x] bytes of strategy x over [start[q], stop[q]); bare: its strategies share nothing."""

    start: Integers
    stop: Integers
    usage: Integers
    bare: bool = False

    def of(self, strategies: Integers) -> Profile:
        """With these strategies in the place of its own."""
        return Profile(self.start, self.stop, self.usage[:, strategies])

    def at_moments(self, new: Integers) -> Profile | None:
        """With moment t renumbered new[t]; intervals without a moment left vanish."""
        start, stop = new[self.start], new[self.stop]
        left = start < stop
        return Profile(start[left], stop[left], self.usage[left], self.bare) if left.any() else None


def summed(parts: Sequence[Profile]) -> Profile:
    """Of usages of one node that may overlap."""
    start, stop = np.concatenate([part.start for part in parts]), np.concatenate([part.stop for part in parts])
    usage = np.concatenate([part.usage for part in parts])
    moments = np.unique(np.concatenate([start, stop]))
    change = np.zeros((moments.size, usage.shape[1]), np.int64)
    np.add.at(change, np.searchsorted(moments, start), usage)
    np.subtract.at(change, np.searchsorted(moments, stop), usage)
    return Profile(moments[:-1], moments[1:], np.cumsum(change, axis=0)[:-1])


def joined(start: Integers, stop: Integers, usage: Integers) -> Profile:
    """Of ascending intervals, of strategies that share nothing; equal neighbours become one, empty ones vanish."""
    if start.size == 0:
        return Profile(start, stop, usage, True)
    new = np.ones(start.size, bool)
    new[1:] = (usage[1:] != usage[:-1]).any(axis=1) | (start[1:] != stop[:-1])
    first = np.flatnonzero(new)
    last = np.append(first[1:], start.size) - 1
    used = usage[first].any(axis=1)
    return Profile(start[first][used], stop[last][used], usage[first][used], True)
