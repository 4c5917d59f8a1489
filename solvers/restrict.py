"""A problem with fewer strategies: some of each node's are kept, and matrices shrink to the classes that remain.

All on the flat arrays (solvers/layout.py). A matrix of the restricted problem belongs to (matrix, rows kept, columns
kept): edges that shared one and keep the same of it share it still.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from solvers.layout import Layout, begins, numbered
from solvers.problem import Problem

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Restricted:
    """Strategy y of the problem, in its flat numbering, stands for strategy kept[y] of its node in the original.

    place: for every strategy of the original, in its flat numbering (node i's begin at begins[i]), the strategy of its
    node here, or -1.
    """

    problem: Problem
    kept: Integers
    place: Integers
    begins: Integers

    @staticmethod
    def nothing(problem: Problem) -> Restricted:
        """The problem itself."""
        own = numbered(problem.layout.node_start)
        return Restricted(problem, own, own, problem.layout.node_start[:-1])

    def narrowed(self, allowed: Mask) -> Restricted:
        """Only the allowed strategies of this one (a flag per strategy, flat; at least one of every node)."""
        layout = _narrowed(self.problem.layout, allowed)
        kept = self.kept[allowed]
        place = np.full(self.place.size, -1, np.int64)
        place[np.repeat(self.begins, np.diff(layout.node_start)) + kept] = numbered(layout.node_start)
        return Restricted(Problem.flat(layout, self.problem.limit), kept, place, self.begins)

    def lift(self, choice: Integers) -> Integers:
        """The original's choice."""
        full: Integers = self.kept[self.problem.layout.node_start[:-1] + choice]
        return full

    def lower(self, choice: Integers) -> Integers | None:
        """The restricted problem's choice for one of the original, if all of it was kept."""
        places = self.place[self.begins + choice]
        return places if places.min(initial=0) >= 0 else None

    def at_ends(self, allowed: Mask, values: Integers) -> Integers:
        """Of one value per strategy at each end of each edge (sources, then targets), those at allowed strategies."""
        return values[np.concatenate(_at_ends(self.problem.layout, allowed))]


def _at_ends(layout: Layout, allowed: Mask) -> tuple[Mask, Mask]:
    """A flag for each strategy at the source of each edge, and at the target."""
    ends = ((layout.source, layout.source_start), (layout.target, layout.target_start))
    sources, targets = (
        allowed[np.repeat(layout.node_start[nodes], np.diff(starts)) + numbered(starts)] for nodes, starts in ends
    )
    return sources, targets


def _narrowed(layout: Layout, allowed: Mask) -> Layout:
    counts = np.add.reduceat(allowed, layout.node_start[:-1], dtype=np.int64) if allowed.size else np.zeros(0, np.int64)
    sizes = np.diff(layout.node_start)
    own = np.repeat(layout.node_start[layout.span_node] - layout.span_at, sizes[layout.span_node])
    sources, targets = _at_ends(layout, allowed)
    rows = _Classes.of(layout.source_class, layout.source_start, layout.height, sources)
    columns = _Classes.of(layout.target_class, layout.target_start, layout.width, targets)
    pair_start, pair_cost = _blocks(layout.pair_start, layout.pair_cost, np.arange(layout.source.size), rows, columns)
    on_edges = (layout.edge_usage_pair_start, layout.pair_usage, layout.edge_usage_edge)
    usage_start, pair_usage = _blocks(*on_edges, rows, columns)
    return replace(
        layout,
        node_start=begins(counts),
        cost=layout.cost[allowed],
        usage=layout.usage[allowed],
        span_at=begins(counts[layout.span_node])[:-1],
        span_usage=layout.span_usage[allowed[own + np.arange(own.size)]],
        source_start=begins(counts[layout.source]),
        target_start=begins(counts[layout.target]),
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
class _Classes:
    """What is left of the classes at one end of every edge: flags of all, flat, and the kept strategies' new ones."""

    flags: Mask
    starts: Integers
    count: Integers
    of_strategy: Integers

    @staticmethod
    def of(classes: Integers, strategy_start: Integers, sizes: Integers, kept: Mask) -> _Classes:
        starts = begins(sizes)
        at = np.repeat(starts[:-1], np.diff(strategy_start)) + classes
        flags = np.zeros(int(starts[-1]), bool)
        flags[at[kept]] = True
        before = begins(flags)
        first = np.repeat(before[starts[:-1]], np.diff(strategy_start))
        return _Classes(flags, starts, np.diff(before[starts]), (before[at] - first)[kept])

    def keys(self) -> list[bytes]:
        """The flags of every edge."""
        flags, bounds = self.flags.tobytes(), self.starts.tolist()
        return [flags[a:b] for a, b in pairwise(bounds)]

    def left(self, edge: int) -> Integers:
        """The classes that are left of an edge."""
        return np.flatnonzero(self.flags[self.starts[edge] : self.starts[edge + 1]])


def _blocks(
    places: Integers, values: Integers, edges: Integers, rows: _Classes, columns: _Classes
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
