"""Mixed-integer rounding (MIR) cuts of the capacity rows, added to the problem as further time steps.

At a time step sum_i u_i(x_i) <= L is a knapsack, whose linear relaxation packs fractions of strategies. For any base
b_i of each node, sum_i (u_i(x_i) - b_i) <= C = L - sum_i b_i, and for any divisor d the mixed-integer rounding function

    F(z) = floor(z / d) (d - r) + max(0, z mod d - r),    r = C mod d

is non-decreasing and superadditive, F(a) + F(b) <= F(a + b) (Gomory 1960; Nemhauser and Wolsey 1990), so that every
feasible assignment satisfies sum_i F(u_i(x_i) - b_i) <= F(C). Each node takes exactly one strategy, so any base is
valid, where a knapsack of binaries would have to complement variables. All of it is integer arithmetic, so that a cut
is valid without any tolerance.

A cut becomes the usage at a time step of its own: the least of each node is subtracted, the rest is scaled to the
limit, and every strategy of the first node also uses what scaling leaves over. Thus all methods that handle capacity
rows handle cuts as well. Usage on edges is left out, which is valid because it is never negative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from solvers.jit import cached_njit
from solvers.problem import Problem
from solvers.problem_arrays import ProblemArrays, compute_offsets, segment_positions

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

# Time steps tried, divisors tried per base, cuts kept per base.
MAX_STEPS, MAX_DIVISORS, CUTS_PER_BASE = 60, 160, 3
# The least violation of a cut, divided by the Euclidean norm of its row.
MIN_VIOLATION = 1e-4
# A time step is tried where the point uses at least this share of the limit.
MIN_FILL = 0.7
# Strategies with a smaller value are not in the point's support.
SUPPORT_TOLERANCE = 1e-7


@dataclass(frozen=True, slots=True, eq=False)
class MirCut:
    """A MIR cut of the capacity row of a time step: a base for each node and a divisor of at least 1, both in bytes."""

    time_step: int
    base: Integers
    divisor: int

    def __post_init__(self) -> None:
        if self.divisor < 1:
            raise ValueError(f"divisor of a MIR cut: got {self.divisor}, wanted at least 1")

    def row(self, arrays: ProblemArrays, limit: int) -> tuple[Integers, int]:
        """Return the coefficient of each strategy (flat) and the right-hand side."""
        room = limit - int(self.base.sum())
        over = usage_at(arrays, self.time_step) - self.base[arrays.node_of]
        return _apply_mir(over, room, self.divisor), int(_apply_mir(np.array(room), room, self.divisor))


def _apply_mir(sizes: Integers, room: int, divisor: int | Integers) -> Integers:
    """Return F(sizes) for C = room and d = divisor, as in the module's formula."""
    rest = room % divisor
    rounded: Integers = (sizes // divisor) * (divisor - rest) + np.maximum(sizes % divisor - rest, 0)
    return rounded


def usage_at(arrays: ProblemArrays, time_step: int) -> Integers:
    """Return the bytes that each strategy (flat) uses at a time step, edges left out."""
    used = np.zeros(arrays.cost.size, np.int64)
    spans = np.flatnonzero((arrays.span_start <= time_step) & (time_step < arrays.span_stop))
    nodes = arrays.span_node[spans]
    places = segment_positions(arrays.span_at[spans], arrays.counts[nodes])
    used[arrays.strategies_at(nodes)] = arrays.span_usage[places]
    return used


def expected_usage(arrays: ProblemArrays, point: Floats) -> Floats:
    """Return the bytes in use at each time step, edges left out, for these values of the strategies (flat)."""
    change = np.zeros(arrays.time_steps + 1)
    add_usage(
        arrays.node_start, arrays.span_node, arrays.span_start, arrays.span_stop, arrays.span_at, arrays.span_usage,
        np.asarray(point, np.float64), change,
    )  # fmt: skip
    return np.cumsum(change)[:-1]


@cached_njit(nogil=True, error_model="numpy")
def add_usage(node_start, span_node, starts, stops, span_at, span_usage, point, change):  # type: ignore[no-untyped-def]
    """Add what each span uses to `change` where it starts, and then subtract it where it stops."""
    used = np.zeros(span_node.size)
    for q in range(span_node.size):
        first = node_start[span_node[q]]
        for x in range(node_start[span_node[q] + 1] - first):
            used[q] += span_usage[span_at[q] + x] * point[first + x]
        change[starts[q]] += used[q]
    for q in range(span_node.size):
        change[stops[q]] -= used[q]


def price_usage(arrays: ProblemArrays, multipliers: Mapping[int, float]) -> Floats:
    """Return what each strategy's usage (flat), edges left out, costs at these multipliers (by time step)."""
    prefix = np.zeros(arrays.time_steps + 1)
    prefix[np.array(list(multipliers), np.int64) + 1] = list(multipliers.values())
    prefix = np.cumsum(prefix)
    of_span = np.repeat(prefix[arrays.span_stop] - prefix[arrays.span_start], arrays.counts[arrays.span_node])
    prices: Floats = np.bincount(
        arrays.strategies_at(arrays.span_node), of_span * arrays.span_usage, arrays.cost.size
    ).astype(np.float64)
    return prices


def separate_mir(problem: Problem, point: Floats, most: int, *, time_steps: int) -> list[MirCut]:
    """Return the cuts of the first `time_steps` time steps that a point (the value of each strategy, flat) violates
    most, at most `most`.

    The best cut of each time step comes before the second of any: cuts of one time step are much alike.
    """
    arrays, limit = problem.arrays, problem.limit or 0
    profile = expected_usage(arrays, point)[:time_steps]
    fullest = np.argsort(-profile, kind="stable")[:MAX_STEPS]
    candidates = list[tuple[int, float, MirCut]]()
    for t in fullest[profile[fullest] > MIN_FILL * limit].tolist():
        violated = sorted(_separate_at(arrays, limit, point, time_step=t), key=lambda pair: -pair[0])
        candidates += [(rank, -violation, cut) for rank, (violation, cut) in enumerate(violated)]
    candidates.sort(key=lambda each: each[:2])
    cuts, seen = list[MirCut](), set[bytes]()
    for _, _, cut in candidates:
        # Different bases and divisors can give the same row.
        key = cut.row(arrays, limit)[0].tobytes()
        if key not in seen and len(cuts) < most:
            seen.add(key)
            cuts.append(cut)
    return cuts


def _separate_at(arrays: ProblemArrays, limit: int, point: Floats, *, time_step: int) -> list[tuple[float, MirCut]]:
    """Return the cuts of a time step that the point violates, with their violations relative to the rows' norms."""
    used, cuts = usage_at(arrays, time_step), list[tuple[float, MirCut]]()
    support = np.flatnonzero(point > SUPPORT_TOLERANCE)
    node = arrays.node_of
    for base in _candidate_bases(arrays, point, used, node=node):
        room, over = limit - int(base.sum()), (used - base[node])[support]
        divisors = _candidate_divisors(over, room)
        if not divisors.size:
            continue
        rows = _apply_mir(over[None, :], room, divisors[:, None])
        right_sides = _apply_mir(np.full(divisors.size, room), room, divisors)
        norm = np.sqrt((rows.astype(np.float64) ** 2).sum(axis=1)) + 1e-9
        violation = (rows @ point[support] - right_sides) / norm
        best = np.argsort(-violation, kind="stable")[:CUTS_PER_BASE]
        cuts += [
            (float(violation[k]), MirCut(time_step, base, int(divisors[k])))
            for k in best
            if violation[k] > MIN_VIOLATION
        ]
    return cuts


def _candidate_bases(arrays: ProblemArrays, point: Floats, used: Integers, *, node: Integers) -> list[Integers]:
    """Return three bases: each node's least usage, the usage of its strategy of largest value, and its median usage
    under the point. node: the node of each strategy (flat)."""
    first = arrays.node_start[:-1]
    likeliest = np.lexsort((-point, node))[first]
    order = np.lexsort((used, node))
    share = np.cumsum(point[order])
    before = np.concatenate([[0.0], share])[first]
    half = share - before[node] < 0.5
    middle = order[np.minimum(first + np.add.reduceat(half, first, dtype=np.int64), arrays.node_start[1:] - 1)]
    return [np.minimum.reduceat(used, first), used[likeliest], used[middle]]


def _candidate_divisors(over: Integers, room: int) -> Integers:
    """Return the divisors to try: item sizes, their halves and thirds, and fractions of the room; the largest ones."""
    sizes = np.unique(np.abs(over))
    parts = [sizes, sizes // 2 + 1, sizes // 3 + 1, np.array([max(room, 0) // k + 1 for k in range(1, 9)])]
    divisors = np.unique(np.concatenate(parts))
    return divisors[divisors > 1][-MAX_DIVISORS:]


def with_cuts(problem: Problem, cuts: Sequence[MirCut]) -> tuple[Problem, list[int]]:
    """Return the problem with the cuts as further time steps, and each cut's time step (-1: it cannot be scaled)."""
    arrays, limit = problem.arrays, problem.limit or 0
    nodes, usages, cut_steps = list[Integers](), list[Integers](), list[int]()
    time_steps = arrays.time_steps
    starts, stops = list[Integers](), list[Integers]()
    sizes = arrays.counts
    for cut in cuts:
        scaled = _scale_row(arrays, *cut.row(arrays, limit), limit)
        if scaled is None:
            cut_steps.append(-1)
            continue
        uses = np.maximum.reduceat(scaled, arrays.node_start[:-1]) > 0
        nodes.append(np.flatnonzero(uses))
        usages.append(scaled[np.repeat(uses, sizes)])
        starts.append(np.full(nodes[-1].size, time_steps))
        stops.append(starts[-1] + 1)
        cut_steps.append(time_steps)
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
    return Problem.from_arrays(stronger, problem.limit), cut_steps


def _scale_row(arrays: ProblemArrays, row: Integers, right_side: int, limit: int) -> Integers | None:
    """Return non-negative usages [strategies] whose sum is within the limit if and only if the row is within its
    right-hand side; None if the latter, less the nodes' least coefficients, is negative or above the limit."""
    first = arrays.node_start[:-1]
    least = np.minimum.reduceat(row, first)
    row, right_side = row - least[arrays.node_of], right_side - int(least.sum())
    if not 0 <= right_side <= limit:
        return None
    times = limit // max(right_side, 1)
    # Whatever exceeds the right-hand side alone may as well exceed it by one: large coefficients would overflow.
    row = np.minimum(row, right_side + 1) * times
    row[: arrays.node_start[1]] += limit - right_side * times
    return row
