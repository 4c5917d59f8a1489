"""Count the memory that the layers of a stack use together at each time step, and drop time steps that cannot peak.

A *usage* is an array of bytes (per strategy, or per pair of classes) that an owner, a node or edge of the folded
problem, uses over an interval. Tied layers use equal arrays at different times, so that at each time step an owner uses
each of its arrays a number of times, the *count*. Usage is linear in the counts. So a time step is dropped where a
weighted mean of two others has no smaller count of any array: whatever is chosen, it is not the peak alone. What is
live at one step of a layer changes evenly from layer to layer of a stack (more activations kept for the backward pass,
fewer gradients), so that about two layers are left for each step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Counts = NDArray[np.int32]


@dataclass(eq=False)
class Usages:
    """Intervals over which owners use arrays; both are named by numbers."""

    rows: dict[tuple[int, int], int] = field(default_factory=dict)
    uses: list[tuple[int, int, int]] = field(default_factory=list)

    def add(self, owner: int, array: int, interval: tuple[int, int]) -> None:
        """Record that `owner` uses `array` over a half-open interval."""
        start, stop = interval
        if start < stop:
            self.uses.append((self.rows.setdefault((owner, array), len(self.rows)), start, stop))

    def profile(self) -> Profile:
        """Return the counts at the time steps that matter."""
        if not self.uses:
            return Profile({}, np.zeros((0, 0), np.int32), np.zeros(0, np.int64))
        row, start, stop = np.array(self.uses, np.int64).T
        moments = _last_moments(start, stop)
        change = np.zeros((len(self.rows), moments.size + 1), np.int32)
        np.add.at(change, (row, np.searchsorted(moments, start)), 1)
        np.subtract.at(change, (row, np.searchsorted(moments, stop)), 1)
        counts = np.cumsum(change, axis=1, out=change)[:, :-1]
        undominated = _undominated_moments(counts)
        return Profile(self.rows, counts[:, undominated], moments[undominated])


@dataclass(frozen=True, eq=False)
class Profile:
    """Counts `[rows, moments]`, with a row per (owner, array); `moments` are the original time steps."""

    rows: dict[tuple[int, int], int]
    counts: Counts
    moments: Integers

    def by_owner(self) -> dict[int, list[tuple[int, Counts]]]:
        """Return the arrays of each owner, with their counts over the time steps."""
        counts: dict[int, list[tuple[int, Counts]]] = defaultdict(list)
        for (owner, array), row in self.rows.items():
            counts[owner].append((array, self.counts[row]))
        return counts


def constant_segments(counts: list[Counts]) -> Iterator[tuple[int, int, list[int]]]:
    """Yield the half-open intervals of time steps over which counts are constant and not all 0."""
    if not counts:
        return
    stacked = np.stack(counts)
    starts = [0, *(np.flatnonzero((stacked[:, 1:] != stacked[:, :-1]).any(axis=0)) + 1).tolist()]
    for start, stop, times in zip(starts, [*starts[1:], stacked.shape[1]], stacked[:, starts].T.tolist(), strict=True):
        if any(times):
            yield start, stop, times


def _last_moments(start: Integers, stop: Integers) -> Integers:
    """Return the last time steps before some use ends, where one has begun since the previous such step.

    At all other steps no more is used.
    """
    # Until something ends usage only grows, so the step before an end is the largest since the last start.
    ends = np.unique(stop) - 1
    begun = np.searchsorted(np.sort(start), ends, side="right")
    last: Integers = ends[np.diff(begun, prepend=0) > 0]
    return last


def _undominated_moments(counts: Counts) -> Integers:
    """Return the time steps that no mean of two others dominates; only steps with the same live arrays are compared."""
    # Within such a group counts move linearly from layer to layer, so the first and the last step dominate most
    # others.
    held = np.ascontiguousarray(counts.T)
    groups: dict[bytes, list[int]] = defaultdict(list)
    for moment, live in enumerate(np.packbits(held > 0, axis=1)):
        groups[live.tobytes()].append(moment)
    undominated: list[int] = []
    for moments in groups.values():
        rows = _extreme_rows(held[moments].astype(np.int64)) if len(moments) > 1 else [0]
        undominated += [moments[row] for row in rows]
    return np.array(sorted(undominated), np.int64)


def _extreme_rows(held: Integers) -> list[int]:
    """Return the first and last row, unless the other dominates it, and the rows that no mean of these two dominates.

    A mean is p/q of the first row plus the rest of the last. Only that one is tried which equals the row in the column
    where the first and last differ most. Integer arithmetic keeps the comparison exact.
    """
    first, last = held[0], held[-1]
    widest = int(np.abs(first - last).argmax())
    sign = 1 if first[widest] > last[widest] else -1
    # Times the denominator q, so that all stays in integers: q * row <= p * first + (q - p) * last.
    p, q = sign * (held[:, widest] - last[widest]), sign * int(first[widest] - last[widest])
    p, q = (p, q) if q else (np.ones_like(p), 1)
    below = (p >= 0) & (p <= q) & (q * held <= p[:, None] * first + (q - p)[:, None] * last).all(axis=1)
    below[0] = bool((first <= last).all())
    below[-1] = not below[0] and bool((last <= first).all())
    return np.flatnonzero(~below).tolist()
