"""A problem with fewer strategies: some of each node's are kept, and matrices shrink to the classes that remain.

All on the flat arrays (solvers/problem_arrays.py). A matrix of the restricted problem belongs to (matrix, rows kept,
columns kept): edges that shared one and keep the same of it share it still.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from solvers.problem import Problem
from solvers.problem_arrays import ProblemArrays, compute_offsets, ragged_arange

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Restriction:
    """Strategy y of the problem, in its flat numbering, stands for strategy kept[y] of its node in the original.

    place: for every strategy of the original, in its flat numbering (node i's begin at begins[i]), the strategy of its
    node here, or -1.
    """

    problem: Problem
    kept_strategies: Integers
    strategy_at: Integers
    offsets: Integers

    @staticmethod
    def identity(problem: Problem) -> Restriction:
        """The problem itself."""
        own = ragged_arange(problem.arrays.node_start)
        return Restriction(problem, own, own, problem.arrays.node_start[:-1])

    def restricted_to(self, allowed: Mask) -> Restriction:
        """Only the allowed strategies of this one (a flag per strategy, flat; at least one of every node)."""
        arrays = _restrict_arrays(self.problem.arrays, allowed)
        kept = self.kept_strategies[allowed]
        place = np.full(self.strategy_at.size, -1, np.int64)
        place[np.repeat(self.offsets, np.diff(arrays.node_start)) + kept] = ragged_arange(arrays.node_start)
        return Restriction(Problem.from_arrays(arrays, self.problem.limit), kept, place, self.offsets)

    def postsolve(self, assignment: Integers) -> Integers:
        """The original's choice."""
        full: Integers = self.kept_strategies[self.problem.arrays.node_start[:-1] + assignment]
        return full

    def crush(self, assignment: Integers) -> Integers | None:
        """The restricted problem's choice for one of the original, if all of it was kept."""
        places = self.strategy_at[self.offsets + assignment]
        return places if places.min(initial=0) >= 0 else None

    def select_at_ends(self, allowed: Mask, values: Integers) -> Integers:
        """Of one value per strategy at each end of each edge (sources, then targets), those at allowed strategies."""
        return values[np.concatenate(_flags_at_ends(self.problem.arrays, allowed))]


def _flags_at_ends(arrays: ProblemArrays, allowed: Mask) -> tuple[Mask, Mask]:
    """A flag for each strategy at the source of each edge, and at the target."""
    ends = ((arrays.source, arrays.source_start), (arrays.target, arrays.target_start))
    sources, targets = (
        allowed[np.repeat(arrays.node_start[nodes], np.diff(starts)) + ragged_arange(starts)] for nodes, starts in ends
    )
    return sources, targets


def _restrict_arrays(arrays: ProblemArrays, allowed: Mask) -> ProblemArrays:
    counts = np.add.reduceat(allowed, arrays.node_start[:-1], dtype=np.int64) if allowed.size else np.zeros(0, np.int64)
    sizes = np.diff(arrays.node_start)
    own = np.repeat(arrays.node_start[arrays.span_node] - arrays.span_at, sizes[arrays.span_node])
    sources, targets = _flags_at_ends(arrays, allowed)
    rows = _KeptClasses.of(arrays.source_class, arrays.source_start, arrays.height, sources)
    columns = _KeptClasses.of(arrays.target_class, arrays.target_start, arrays.width, targets)
    pair_start, pair_cost = _restrict_matrices(
        arrays.pair_start, arrays.pair_cost, np.arange(arrays.source.size), rows=rows, columns=columns
    )
    on_edges = (arrays.edge_usage_pair_start, arrays.pair_usage, arrays.edge_usage_edge)
    usage_start, pair_usage = _restrict_matrices(*on_edges, rows, columns)
    return replace(
        arrays,
        node_start=compute_offsets(counts),
        cost=arrays.cost[allowed],
        usage=arrays.usage[allowed],
        span_at=compute_offsets(counts[arrays.span_node])[:-1],
        span_usage=arrays.span_usage[allowed[own + np.arange(own.size)]],
        source_start=compute_offsets(counts[arrays.source]),
        target_start=compute_offsets(counts[arrays.target]),
        source_class=rows.of_strategy,
        target_class=columns.of_strategy,
        height=rows.count,
        width=columns.count,
        pair_start=pair_start,
        pair_cost=pair_cost,
        edge_usage_pair_start=usage_start,
        pair_usage=pair_usage,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _KeptClasses:
    """What is left of the classes at one end of every edge: flags of all, flat, and the kept strategies' new ones."""

    flags: Mask
    starts: Integers
    count: Integers
    of_strategy: Integers

    @staticmethod
    def of(classes: Integers, strategy_start: Integers, sizes: Integers, kept: Mask) -> _KeptClasses:
        starts = compute_offsets(sizes)
        at = np.repeat(starts[:-1], np.diff(strategy_start)) + classes
        flags = np.zeros(int(starts[-1]), bool)
        flags[at[kept]] = True
        before = compute_offsets(flags)
        first = np.repeat(before[starts[:-1]], np.diff(strategy_start))
        return _KeptClasses(flags, starts, np.diff(before[starts]), (before[at] - first)[kept])

    def keys(self) -> list[bytes]:
        """The flags of every edge."""
        flags, bounds = self.flags.tobytes(), self.starts.tolist()
        return [flags[a:b] for a, b in pairwise(bounds)]

    def left(self, edge: int) -> Integers:
        """The classes that are left of an edge."""
        return np.flatnonzero(self.flags[self.starts[edge] : self.starts[edge + 1]])


def _restrict_matrices(
    places: Integers, values: Integers, edges: Integers, rows: _KeptClasses, columns: _KeptClasses
) -> tuple[Integers, Integers]:
    """Where the restricted matrices at `places`, of these edges, begin in one array of all of them, and that array."""
    row_keys, column_keys, widths = rows.keys(), columns.keys(), np.diff(columns.starts)
    found: dict[tuple[int, bytes, bytes], int] = {}
    parts: list[Integers] = []
    size, starts = 0, np.zeros(places.size, np.int64)
    for i, (place, e) in enumerate(zip(places.tolist(), edges.tolist(), strict=True)):
        key = (place, row_keys[e], column_keys[e])
        if key not in found:
            found[key] = size
            at = place + rows.left(e)[:, None] * widths[e] + columns.left(e)[None, :]
            parts.append(values[at].ravel())
            size += parts[-1].size
        starts[i] = found[key]
    return starts, np.concatenate(parts) if parts else np.zeros(0, np.int64)
