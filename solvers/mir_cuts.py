"""Limits that the limit implies: the usage at a moment rounded, so that no part of a strategy can be taken cheaply.

At a moment sum_i u_i(x_i) <= L: a knapsack, and its linear relaxation packs it with parts of strategies. For any base
b_i of each node, sum_i (u_i(x_i) - b_i) <= C = L - sum_i b_i, and for any divisor d the mixed-integer rounding

    F(z) = floor(z / d) (d - r) + max(0, z mod d - r),    r = C mod d

never falls and has F(a) + F(b) <= F(a + b) (Gomory 1960; Nemhauser and Wolsey 1990), so that
sum_i F(u_i(x_i) - b_i) <= F(C) holds of every feasible choice. As every node takes exactly one strategy any base will
do, where a knapsack of binaries has to complement. All in integers: nothing has to be trusted.

Implied limits become usage at further moments of their own: each node's least is taken off, the rest scaled to the
limit, and the first node, whatever it takes, fills what is left. So whatever prices, searches or proves with limits
does so with these. Usage on edges, never negative, is left out of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from solvers.problem import Problem
from solvers.problem_arrays import ProblemArrays, compute_offsets

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

# Moments looked at, divisors tried for each base, roundings taken of each; the least violation, in lengths of the row.
MAX_STEPS, MAX_DIVISORS, CUTS_PER_BASE = 60, 160, 3
MIN_VIOLATION = 1e-4
# A moment is looked at where the point fills this part of the limit.
MIN_FILL = 0.7
# Strategies of a share below this are not in the point.
SUPPORT_TOLERANCE = 1e-7


@dataclass(frozen=True, slots=True, eq=False)
class MirCut:
    """Of the usage at a moment: a base for each node (bytes), a divisor (bytes, at least 1)."""

    time_step: int
    base: Integers
    divisor: int

    def __post_init__(self) -> None:
        if self.divisor < 1:
            raise ValueError(f"divisor of a rounding: got {self.divisor}, wanted at least 1")

    def row(self, arrays: ProblemArrays, limit: int) -> tuple[Integers, int]:
        """What each strategy (flat) and the whole limit come to."""
        room = limit - int(self.base.sum())
        over = usage_at(arrays, self.time_step) - np.repeat(self.base, np.diff(arrays.node_start))
        return _apply_mir(over, room, self.divisor), int(_apply_mir(np.array(room), room, self.divisor))


def _apply_mir(sizes: Integers, room: int, divisor: int | Integers) -> Integers:
    rest = room % divisor
    rounded: Integers = (sizes // divisor) * (divisor - rest) + np.maximum(sizes % divisor - rest, 0)
    return rounded


def usage_at(arrays: ProblemArrays, time_step: int) -> Integers:
    """What each strategy (flat) uses at a moment."""
    used = np.zeros(arrays.cost.size, np.int64)
    spans = np.flatnonzero((arrays.span_start <= time_step) & (time_step < arrays.span_stop))
    sizes = np.diff(arrays.node_start)[arrays.span_node[spans]]
    within = np.arange(int(sizes.sum())) - np.repeat(compute_offsets(sizes)[:-1], sizes)
    at, place = (np.repeat(a[b], sizes) + within for a, b in
                 ((arrays.node_start, arrays.span_node[spans]), (arrays.span_at, spans)))  # fmt: skip
    used[at] = arrays.span_usage[place]
    return used


def expected_usage(arrays: ProblemArrays, point: Floats) -> Floats:
    """The usage at each moment, on nodes, of these shares of the strategies (flat)."""
    sizes, change = np.diff(arrays.node_start)[arrays.span_node], np.zeros(arrays.time_steps + 1)
    own = np.repeat(arrays.node_start[arrays.span_node] - arrays.span_at, sizes) + np.arange(arrays.span_usage.size)
    span = np.repeat(np.arange(sizes.size), sizes)
    used = np.bincount(span, arrays.span_usage * point[own], sizes.size)
    np.add.at(change, arrays.span_start, used)
    np.add.at(change, arrays.span_stop, -used)
    return np.cumsum(change)[:-1]


def separate_mir(problem: Problem, point: Floats, most: int, *, time_steps: int) -> list[MirCut]:
    """The roundings that a point (the share of each strategy, flat) breaks most; of the first `moments` moments.

    One of each moment comes before two of any: those of a moment say much the same."""
    arrays, limit = problem.arrays, problem.limit or 0
    profile = expected_usage(arrays, point)[:time_steps]
    fullest = np.argsort(-profile, kind="stable")[:MAX_STEPS]
    found = list[tuple[int, float, MirCut]]()
    for t in fullest[profile[fullest] > MIN_FILL * limit].tolist():
        here = sorted(_separate_at(arrays, limit, point, time_step=t), key=lambda pair: -pair[0])
        found += [(place, -broken, rounding) for place, (broken, rounding) in enumerate(here)]
    found.sort(key=lambda each: each[:2])
    taken, seen = list[MirCut](), set[bytes]()
    for _, _, rounding in found:
        key = rounding.row(arrays, limit)[0].tobytes()
        if key not in seen and len(taken) < most:
            seen.add(key)
            taken.append(rounding)
    return taken


def _separate_at(arrays: ProblemArrays, limit: int, point: Floats, *, time_step: int) -> list[tuple[float, MirCut]]:
    used, found = usage_at(arrays, time_step), list[tuple[float, MirCut]]()
    some = np.flatnonzero(point > SUPPORT_TOLERANCE)
    node = np.repeat(np.arange(arrays.node_start.size - 1), np.diff(arrays.node_start))
    for base in _candidate_bases(arrays, point, used, node=node):
        room, over = limit - int(base.sum()), (used - base[node])[some]
        divisors = _candidate_divisors(over, room)
        if not divisors.size:
            continue
        rows = _apply_mir(over[None, :], room, divisors[:, None])
        ends = _apply_mir(np.full(divisors.size, room), room, divisors)
        length = np.sqrt((rows.astype(np.float64) ** 2).sum(axis=1)) + 1e-9
        broken = (rows @ point[some] - ends) / length
        best = np.argsort(-broken, kind="stable")[:CUTS_PER_BASE]
        found += [
            (float(broken[k]), MirCut(time_step, base, int(divisors[k]))) for k in best if broken[k] > MIN_VIOLATION
        ]
    return found


def _candidate_bases(arrays: ProblemArrays, point: Floats, used: Integers, *, node: Integers) -> list[Integers]:
    """Each node's least usage, that of its likeliest strategy, and the median of its usage."""
    first = arrays.node_start[:-1]
    likeliest = np.lexsort((-point, node))[first]
    order = np.lexsort((used, node))
    share = np.cumsum(point[order])
    before = np.concatenate([[0.0], share])[first]
    half = share - before[node] < 0.5
    middle = order[np.minimum(first + np.add.reduceat(half, first, dtype=np.int64), arrays.node_start[1:] - 1)]
    return [np.minimum.reduceat(used, first), used[likeliest], used[middle]]


def _candidate_divisors(over: Integers, room: int) -> Integers:
    """Sizes, their halves and thirds, and parts of the room."""
    sizes = np.unique(np.abs(over))
    parts = [sizes, sizes // 2 + 1, sizes // 3 + 1, np.array([max(room, 0) // k + 1 for k in range(1, 9)])]
    every = np.unique(np.concatenate(parts))
    return every[every > 1][-MAX_DIVISORS:]


def with_cuts(problem: Problem, roundings: Sequence[MirCut]) -> tuple[Problem, list[int]]:
    """The same problem with implied limits at further moments, and their moments (-1: one that cannot be scaled)."""
    arrays, limit = problem.arrays, problem.limit or 0
    nodes, usages, places = list[Integers](), list[Integers](), list[int]()
    time_steps = arrays.time_steps
    starts, stops = list[Integers](), list[Integers]()
    sizes = np.diff(arrays.node_start)
    for rounding in roundings:
        scaled = _scale_row(arrays, *rounding.row(arrays, limit), limit)
        if scaled is None:
            places.append(-1)
            continue
        takes = np.maximum.reduceat(scaled, arrays.node_start[:-1]) > 0
        nodes.append(np.flatnonzero(takes))
        usages.append(scaled[np.repeat(takes, sizes)])
        starts.append(np.full(nodes[-1].size, time_steps))
        stops.append(starts[-1] + 1)
        places.append(time_steps)
        time_steps += 1
    node = np.concatenate([arrays.span_node, *nodes])
    stronger = replace(
        arrays,
        span_node=node,
        span_start=np.concatenate([arrays.span_start, *starts]),
        span_stop=np.concatenate([arrays.span_stop, *stops]),
        span_at=compute_offsets(sizes[node])[:-1],
        span_usage=np.concatenate([arrays.span_usage, *usages]),
        time_steps=time_steps,
    )
    return Problem.from_arrays(stronger, problem.limit), places


def _scale_row(arrays: ProblemArrays, row: Integers, end: int, limit: int) -> Integers | None:
    first = arrays.node_start[:-1]
    least = np.minimum.reduceat(row, first)
    row, end = row - np.repeat(least, np.diff(arrays.node_start)), end - int(least.sum())
    if not 0 <= end <= limit:
        return None
    times = limit // max(end, 1)
    row = np.minimum(row, end + 1) * times
    row[: arrays.node_start[1]] += limit - end * times
    return row
