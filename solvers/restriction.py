"""A problem restricted to some of each node's strategies, with matrices cut down to the classes that remain.

Everything works on the flat arrays (solvers/problem_arrays.py). A restricted matrix is identified by (matrix, rows
kept, columns kept), so edges that shared a matrix and keep the same part of it still share one.
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
    """A restricted problem and the correspondence of its strategies with the original's.

    Flat strategy y here is strategy kept_strategies[y] of its node in the original. Strategy x of node i in the
    original is strategy strategy_at[offsets[i] + x] of the node here, or -1 if it was not kept.
    """

    problem: Problem
    kept_strategies: Integers
    strategy_at: Integers
    offsets: Integers

    @staticmethod
    def identity(problem: Problem) -> Restriction:
        """Return the restriction that keeps everything."""
        own = ragged_arange(problem.arrays.node_start)
        return Restriction(problem, own, own, problem.arrays.node_start[:-1])

    def restricted_to(self, allowed: Mask) -> Restriction:
        """Restrict further, to the strategies flagged in `allowed` (flat; at least one of each node)."""
        arrays = _restrict_arrays(self.problem.arrays, allowed)
        kept = self.kept_strategies[allowed]
        strategy_at = np.full(self.strategy_at.size, -1, np.int64)
        strategy_at[np.repeat(self.offsets, np.diff(arrays.node_start)) + kept] = ragged_arange(arrays.node_start)
        return Restriction(Problem.from_arrays(arrays, self.problem.limit), kept, strategy_at, self.offsets)

    def postsolve(self, assignment: Integers) -> Integers:
        """Return the assignment of the original that corresponds to one here."""
        original: Integers = self.kept_strategies[self.problem.arrays.node_start[:-1] + assignment]
        return original

    def crush(self, assignment: Integers) -> Integers | None:
        """Return the assignment here that corresponds to one of the original; None if a strategy of it was not kept."""
        crushed = self.strategy_at[self.offsets + assignment]
        return crushed if crushed.min(initial=0) >= 0 else None

    def select_at_ends(self, allowed: Mask, values: Integers) -> Integers:
        """Select the values at allowed strategies from one value per strategy at each edge's source, then target."""
        return values[np.concatenate(_flags_at_ends(self.problem.arrays, allowed))]


def _flags_at_ends(arrays: ProblemArrays, allowed: Mask) -> tuple[Mask, Mask]:
    """Return the flags of the strategies at the source of each edge, and those at the target."""
    ends = ((arrays.source, arrays.source_start), (arrays.target, arrays.target_start))
    sources, targets = (
        allowed[np.repeat(arrays.node_start[nodes], np.diff(starts)) + ragged_arange(starts)] for nodes, starts in ends
    )
    return sources, targets


def _restrict_arrays(arrays: ProblemArrays, allowed: Mask) -> ProblemArrays:
    counts = np.add.reduceat(allowed, arrays.node_start[:-1], dtype=np.int64) if allowed.size else np.zeros(0, np.int64)
    sizes = np.diff(arrays.node_start)
    # From the position of a usage in span_usage to the flat index of its strategy.
    shift = np.repeat(arrays.node_start[arrays.span_node] - arrays.span_at, sizes[arrays.span_node])
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
        span_usage=arrays.span_usage[allowed[shift + np.arange(shift.size)]],
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
    """The classes that are left at one end of every edge.

    flags: one per old class of each edge, laid end to end from `starts`. count: how many are left per edge.
    of_strategy: the new class of each kept strategy at that end.
    """

    flags: Mask
    starts: Integers
    count: Integers
    of_strategy: Integers

    @staticmethod
    def of(classes: Integers, strategy_start: Integers, sizes: Integers, kept: Mask) -> _KeptClasses:
        """Find the classes of the strategies flagged in `kept`; sizes: the number of old classes per edge."""
        starts = compute_offsets(sizes)
        flat_class = np.repeat(starts[:-1], np.diff(strategy_start)) + classes
        flags = np.zeros(int(starts[-1]), bool)
        flags[flat_class[kept]] = True
        rank = compute_offsets(flags)
        first = np.repeat(rank[starts[:-1]], np.diff(strategy_start))
        return _KeptClasses(flags, starts, np.diff(rank[starts]), (rank[flat_class] - first)[kept])

    def keys(self) -> list[bytes]:
        """Return each edge's flags as bytes, for use in dictionary keys."""
        flags, bounds = self.flags.tobytes(), self.starts.tolist()
        return [flags[a:b] for a, b in pairwise(bounds)]

    def left(self, edge: int) -> Integers:
        """Return the old numbers of the classes that are left of an edge."""
        return np.flatnonzero(self.flags[self.starts[edge] : self.starts[edge + 1]])


def _restrict_matrices(
    places: Integers, values: Integers, edges: Integers, rows: _KeptClasses, columns: _KeptClasses
) -> tuple[Integers, Integers]:
    """Cut down the matrices that begin at `places` of `values` and belong to `edges`, storing equal ones once.

    Returns where each restricted matrix begins, and the array that holds them.
    """
    row_keys, column_keys, widths = rows.keys(), columns.keys(), np.diff(columns.starts)
    offsets: dict[tuple[int, bytes, bytes], int] = {}
    parts: list[Integers] = []
    size, starts = 0, np.zeros(places.size, np.int64)
    for i, (place, e) in enumerate(zip(places.tolist(), edges.tolist(), strict=True)):
        key = (place, row_keys[e], column_keys[e])
        if key not in offsets:
            offsets[key] = size
            cells = place + rows.left(e)[:, None] * widths[e] + columns.left(e)[None, :]
            parts.append(values[cells].ravel())
            size += parts[-1].size
        starts[i] = offsets[key]
    return starts, np.concatenate(parts) if parts else np.zeros(0, np.int64)
