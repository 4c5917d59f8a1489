"""A problem restricted to some of each node's strategies, with matrices cut down to the classes that remain.

Everything works on the flat arrays (solvers/problem_arrays.py). A restricted matrix is identified by (matrix, rows
kept, columns kept), so edges that shared a matrix and keep the same part of it still share one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from solvers.jit import cached_njit
from solvers.model import Kinds
from solvers.problem import Problem
from solvers.problem_arrays import ProblemArrays, compute_offsets, ragged_arange, segment_positions

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

    def flags_of(self, assignment: Integers) -> Mask:
        """Return flags of the strategies of an assignment of the original that were kept."""
        here, flags = self.strategy_at[self.offsets + assignment], np.zeros(self.kept_strategies.size, bool)
        flags[(self.problem.arrays.node_start[:-1] + here)[here >= 0]] = True
        return flags

    def select_at_ends(self, allowed: Mask, values: Integers) -> Integers:
        """Select the values at allowed strategies from one value per strategy at each edge's source, then target."""
        return values[np.concatenate(_flags_at_ends(self.problem.arrays, allowed))]


def select_promising(arrays: ProblemArrays, min_marginals: Integers, known: Mask, *, pairs: int) -> Mask:
    """Return flags of the strategies that assignments near the bound may take.

    These are the known ones and, in order of their min-marginals, as many others as keep the pairs on edges at most
    `pairs`; each node's cheapest is always included.
    """
    first = arrays.node_start[:-1]
    flags: Mask = known.copy()
    flags[np.lexsort((min_marginals, arrays.node_of))[first]] = True
    levels = np.unique(min_marginals[min_marginals < np.iinfo(np.int64).max])
    # The number of pairs grows with the threshold: bisect for the largest one that fits.
    low, high = 0, levels.size
    while low < high:
        middle = (low + high) // 2
        counts = np.add.reduceat(flags | (min_marginals <= levels[middle]), first, dtype=np.int64)
        fits = (counts[arrays.source] * counts[arrays.target]).sum() <= pairs
        low, high = (middle + 1, high) if fits else (low, middle)
    return flags | (min_marginals <= levels[low - 1]) if low else flags


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

    @property
    def left(self) -> tuple[Integers, Integers]:
        """The old numbers of the classes that are left, edge after edge, and where each edge's begin."""
        own: Integers = np.flatnonzero(self.flags) - np.repeat(self.starts[:-1], self.count)
        return own, compute_offsets(self.count)


@dataclass(frozen=True, slots=True, eq=False)
class _KeptKinds:
    """The kinds of pairs that are left of every edge.

    start, count: as in ProblemArrays, of the kinds that are left, laid end to end in `flat`. pattern: the number of
    each edge's kinds among the distinct ones; old: the old numbers of those kinds, pattern after pattern, of which each
    begins at old_at and has old_count.
    """

    start: Integers
    count: Integers
    flat: Kinds
    pattern: Integers
    old: Integers
    old_at: Integers
    old_count: Integers

    @staticmethod
    def of(arrays: ProblemArrays, rows: _KeptClasses, columns: _KeptClasses) -> _KeptKinds:
        """Find the kinds of the pairs of the classes that are left. Edges that shared kinds and keep the same part of
        them still share it."""
        numbers: dict[tuple[int, int, bytes, bytes], int] = {}
        keys = zip(arrays.kind_start.tolist(), arrays.width.tolist(), rows.keys(), columns.keys(), strict=True)
        pattern = np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)
        edges = np.unique(pattern, return_index=True)[1].astype(np.int64)
        sizes, own = (rows.count * columns.count)[edges], arrays.kind_start[edges] == 0
        # Of edges with an entry for each pair, what is left has one too: they share the kinds 0, 1, 2, ...
        most = int(sizes[own].max(initial=1))
        at = most + compute_offsets(np.where(own, 0, sizes))
        flat = np.empty(int(at[-1]), arrays.pair_kind.dtype)
        flat[:most] = np.arange(most)
        old_at = compute_offsets(np.minimum(sizes, arrays.kind_count[edges]))
        old, old_count = np.empty(int(old_at[-1]), np.int64), np.empty(edges.size, np.int64)
        _restrict_kinds(
            edges, arrays.width, arrays.kind_start, arrays.kind_count, arrays.pair_kind, *rows.left, *columns.left,
            flat, at, old, old_at, old_count,
        )  # fmt: skip
        start = np.where(own, 0, at[:-1])
        return _KeptKinds(start[pattern], old_count[pattern], flat, pattern, old, old_at[:-1], old_count)

    def restrict(self, starts: Integers, values: Integers, edges: Integers) -> tuple[Integers, Integers]:
        """Cut down the matrices that begin at `starts` of `values` and belong to `edges`, storing equal ones once.

        Returns where each restricted matrix begins, and the array that holds them.
        """
        matrices, which = np.unique(starts * self.old_at.size + self.pattern[edges], return_inverse=True)
        first, pattern = np.divmod(matrices, max(self.old_at.size, 1))
        count = self.old_count[pattern]
        kept = np.repeat(first, count) + self.old[segment_positions(self.old_at[pattern], count)]
        return compute_offsets(count)[:-1][which], values[kept]


@cached_njit(nogil=True, error_model="numpy")
def _restrict_kinds(  # type: ignore[no-untyped-def]
    edges, width, kind_start, kind_count, pair_kind, row, row_at, column, column_at, flat, at, old, old_at, old_count
):
    """Write the kinds that are left of each edge's pairs, numbered anew, from `at` on in `flat` (where each pair has an
    entry of its own, they are not written), and the old numbers of these kinds from old_at on in `old`.

    row, column: the classes that are left, from row_at[e] and column_at[e] on for edge e.
    """
    number = np.empty(kind_count.max() if kind_count.size else 0, np.int64)
    for p in range(edges.size):
        e, to, found = edges[p], at[p], old_at[p]
        number[: kind_count[e]] = -1
        for r in row[row_at[e] : row_at[e + 1]]:
            for c in column[column_at[e] : column_at[e + 1]]:
                position = r * width[e] + c
                if kind_start[e] == 0:
                    old[found] = position
                    found += 1
                else:
                    flat[to] = pair_kind[kind_start[e] + position]
                    number[flat[to]] = 0
                    to += 1
        if kind_start[e] != 0:
            for kind in range(kind_count[e]):
                if number[kind] == 0:
                    number[kind] = found - old_at[p]
                    old[found] = kind
                    found += 1
            for q in range(at[p], to):
                flat[q] = number[flat[q]]
        old_count[p] = found - old_at[p]
