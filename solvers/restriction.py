"""A problem restricted to some of each node's strategies, with matrices cut down to the classes that remain.

Everything works on the flat arrays (solvers/problem_arrays.py). A restricted matrix is identified by (matrix, rows
kept, columns kept), so edges that shared a matrix and keep the same part of it still share one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from solvers.model import Kinds
from solvers.problem import Problem
from solvers.problem_arrays import PartPool, ProblemArrays, compute_offsets, ragged_arange

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
        strategy_at[self.offsets[arrays.node_of] + kept] = ragged_arange(arrays.node_start)
        return Restriction(Problem.from_arrays(arrays, self.problem.limit), kept, strategy_at, self.offsets)

    @property
    def flat_strategies(self) -> Integers:
        """The flat strategy of the original of each one here."""
        numbers: Integers = self.offsets[self.problem.arrays.node_of] + self.kept_strategies
        return numbers

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
    return allowed[arrays.strategies_at(arrays.source)], allowed[arrays.strategies_at(arrays.target)]


def _restrict_arrays(arrays: ProblemArrays, allowed: Mask) -> ProblemArrays:
    counts = np.add.reduceat(allowed, arrays.node_start[:-1], dtype=np.int64) if allowed.size else np.zeros(0, np.int64)
    sources, targets = _flags_at_ends(arrays, allowed)
    rows = _KeptClasses.of(arrays.source_class, arrays.source_start, arrays.height, sources)
    columns = _KeptClasses.of(arrays.target_class, arrays.target_start, arrays.width, targets)
    patterns = _KeptKinds.of(arrays, rows, columns)
    pair_start, pair_cost = patterns.restrict(arrays.pair_start, arrays.pair_cost, np.arange(arrays.source.size))
    usage_start, pair_usage = patterns.restrict(arrays.edge_usage_pair_start, arrays.pair_usage, arrays.edge_usage_edge)
    return replace(
        arrays,
        node_start=compute_offsets(counts),
        cost=arrays.cost[allowed],
        span_at=compute_offsets(counts[arrays.span_node])[:-1],
        span_usage=arrays.span_usage[allowed[arrays.strategies_at(arrays.span_node)]],
        source_start=compute_offsets(counts[arrays.source]),
        target_start=compute_offsets(counts[arrays.target]),
        source_class=rows.of_strategy,
        target_class=columns.of_strategy,
        height=rows.count,
        width=columns.count,
        kind_start=patterns.start,
        kind_count=patterns.count,
        pair_kind=patterns.flat,
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


@dataclass(frozen=True, slots=True, eq=False)
class _KeptKinds:
    """The kinds of pairs that are left of every edge.

    start, count: as in ProblemArrays, of the kinds that are left, laid end to end in `flat`. pattern: the number of
    each edge's kinds among the distinct ones; old: the old numbers of those kinds, by pattern.
    """

    start: Integers
    count: Integers
    flat: Kinds
    pattern: list[int]
    old: list[Integers]

    @staticmethod
    def of(arrays: ProblemArrays, rows: _KeptClasses, columns: _KeptClasses) -> _KeptKinds:
        """Find the kinds of the pairs of the classes that are left. Edges that shared kinds and keep the same part of
        them still share it."""
        row_keys, column_keys, widths = rows.keys(), columns.keys(), arrays.width.tolist()
        numbers: dict[tuple[int, int, bytes, bytes], int] = {}
        parts: list[Kinds] = []
        old, sizes, pattern = list[Integers](), list[int](), list[int]()
        for e, start in enumerate(arrays.kind_start.tolist()):
            number = numbers.setdefault((start, widths[e], row_keys[e], column_keys[e]), len(numbers))
            pattern.append(number)
            if number == len(old):
                cells = arrays.kinds_of(e)[np.ix_(rows.left(e), columns.left(e))].ravel()
                left, kinds = _renumber(cells, int(arrays.kind_count[e]))
                old.append(left)
                # Of edges with an entry for each pair, what is left has one too.
                parts.append(kinds if start else kinds[:0])
                sizes.append(cells.size)
        own = max((size for size, part in zip(sizes, parts, strict=True) if not part.size), default=1)
        flat = np.concatenate([np.arange(own, dtype=np.min_scalar_type(own)), *parts])
        ends = own + compute_offsets([part.size for part in parts])
        start = np.array([ends[number] if parts[number].size else 0 for number in pattern], np.int64)
        count = np.array([old[number].size for number in pattern], np.int64)
        return _KeptKinds(start, count, flat, pattern, old)

    def restrict(self, starts: Integers, values: Integers, edges: Integers) -> tuple[Integers, Integers]:
        """Cut down the matrices that begin at `starts` of `values` and belong to `edges`, storing equal ones once.

        Returns where each restricted matrix begins, and the array that holds them.
        """
        pool = PartPool(np.zeros(0, np.int64))

        def select(start: int, pattern: int) -> Integers:
            return values[start + self.old[pattern]]

        keys = [(start, self.pattern[e]) for start, e in zip(starts.tolist(), edges.tolist(), strict=True)]
        return np.array([pool.add(key, select, *key) for key in keys], np.int64), pool.concatenate()


def _renumber(kinds: Kinds, count: int) -> tuple[Integers, Kinds]:
    """Return which of `count` kinds occur, and the kinds numbered anew among these."""
    flags = np.zeros(count, bool)
    flags[kinds] = True
    left = np.flatnonzero(flags)
    return left, (np.cumsum(flags) - 1).astype(kinds.dtype)[kinds]
