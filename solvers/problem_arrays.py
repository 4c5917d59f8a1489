"""A problem as flat arrays, built once, for evaluation and message passing.

* Strategy x of node i has the flat index node_start[i] + x.
* The class of edge e's source strategy x is source_class[source_start[e] + x], and likewise for targets.
* A span is an interval over which a node uses bytes: over [span_start[q], span_stop[q]) strategy x of node span_node[q]
  uses span_usage[span_at[q] + x]. Span i is node i's own interval (live_start, live_stop); the others follow.
* Pair (s, t) of edge e costs pair_cost[pair_start[e] + s * width[e] + t]. A matrix that edges share is stored once
  per multiplicity. Usages on edges are laid out in the same way, as pair_usage from edge_usage_pair_start on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from solvers.model import IMPOSSIBLE, Edge, EdgeUsage, Node, UsageIntervals

Integers = NDArray[np.int64]


def _nothing() -> Integers:
    return np.zeros(0, np.int64)


def _multiply_cost(cost: Integers, multiplicity: int) -> Integers:
    if multiplicity == 1:
        return np.minimum(cost, IMPOSSIBLE)
    return np.where(cost >= IMPOSSIBLE, IMPOSSIBLE, cost * multiplicity)


def compute_offsets(sizes: Sequence[int] | NDArray[np.generic]) -> Integers:
    """Return where each of the parts begins when they are laid end to end, followed by where the last one ends."""
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)


def ragged_arange(starts: Integers) -> Integers:
    """Return 0, 1, 2, ... counted within each part; `starts` are offsets as compute_offsets returns them."""
    return np.arange(int(starts[-1])) - np.repeat(starts[:-1], np.diff(starts))


def segment_positions(starts: Integers, sizes: Integers) -> Integers:
    """Return the positions start, ..., start + size - 1 of each segment, one segment after another."""
    return np.repeat(starts, sizes) + ragged_arange(compute_offsets(sizes))


def _concatenate(parts: Sequence[NDArray[np.integer]]) -> Integers:
    return np.concatenate(parts, dtype=np.int64) if parts else np.zeros(0, np.int64)


def sum_largest(values: Integers, starts: Integers) -> int:
    """Return the sum of the largest values of the segments that begin at `starts` and end where the next one begins.

    A segment that is there several times, such as a matrix that edges share, is scanned once and counted each time.
    """
    if not starts.size:
        return 0
    first, segment = np.unique(starts, return_inverse=True)
    # Sums of Python integers cannot overflow.
    return int(np.maximum.reduceat(values, first)[segment].sum(dtype=object))


class _MatrixPool:
    """Matrices laid end to end, each stored once.

    Matrices are recognised by identity, which is cheap and enough: callers share the object where they share the
    matrix. The multiplicity is part of the key because the stored costs are multiplied out.
    """

    def __init__(self) -> None:
        self._offsets: dict[tuple[int, int | None], int] = {}
        self._parts: list[Integers] = []
        self._size = 0

    def add(self, matrix: Integers, multiplicity: int | None) -> int:
        key = (id(matrix), multiplicity)
        if key not in self._offsets:
            self._offsets[key] = self._size
            self._parts.append((matrix if multiplicity is None else _multiply_cost(matrix, multiplicity)).ravel())
            self._size += matrix.size
        return self._offsets[key]

    def concatenate(self) -> Integers:
        return _concatenate(self._parts)


@dataclass(frozen=True, slots=True, eq=False)
class ProblemArrays:
    """The flat arrays (see the module). Costs include the multiplicities and are capped at IMPOSSIBLE."""

    node_start: Integers
    cost: Integers
    usage: Integers
    live_start: Integers
    live_stop: Integers
    span_node: Integers
    span_start: Integers
    span_stop: Integers
    span_at: Integers
    span_usage: Integers
    source: Integers
    target: Integers
    source_start: Integers
    target_start: Integers
    source_class: Integers
    target_class: Integers
    height: Integers
    width: Integers
    pair_start: Integers
    pair_cost: Integers
    time_steps: int
    edge_usage_edge: Integers = field(default_factory=_nothing)
    edge_usage_start: Integers = field(default_factory=_nothing)
    edge_usage_stop: Integers = field(default_factory=_nothing)
    edge_usage_pair_start: Integers = field(default_factory=_nothing)
    pair_usage: Integers = field(default_factory=_nothing)

    @staticmethod
    def of(nodes: Sequence[Node], edges: Sequence[Edge]) -> ProblemArrays:
        costs, usages = _MatrixPool(), _MatrixPool()
        live_start = np.array([node.interval[0] for node in nodes], np.int64)
        live_stop = np.array([node.interval[1] for node in nodes], np.int64)
        node_start = compute_offsets([node.cost.size for node in nodes])
        usage = _concatenate([node.usage for node in nodes])
        more_usages = [(i, node.more_usage) for i, node in enumerate(nodes) if node.more_usage is not None]
        span_node = np.concatenate([np.arange(len(nodes)), *(np.full(s.start.size, i) for i, s in more_usages)])
        span_stop = np.concatenate([live_stop, *(spans.stop for _, spans in more_usages)])
        on_edges = [(e, usage) for e, edge in enumerate(edges) for usage in edge.usages]
        edge_stop = np.array([usage.stop for _, usage in on_edges], np.int64)
        return ProblemArrays(
            node_start=node_start,
            cost=_concatenate([_multiply_cost(node.cost, node.multiplicity) for node in nodes]),
            usage=usage,
            live_start=live_start,
            live_stop=live_stop,
            span_node=span_node,
            span_start=np.concatenate([live_start, *(spans.start for _, spans in more_usages)]),
            span_stop=span_stop,
            span_at=compute_offsets(np.diff(node_start)[span_node].tolist())[:-1],
            span_usage=np.concatenate([usage, *(spans.usage.ravel() for _, spans in more_usages)]),
            source=np.array([edge.source for edge in edges], np.int64),
            target=np.array([edge.target for edge in edges], np.int64),
            source_start=compute_offsets([edge.source_class.size for edge in edges]),
            target_start=compute_offsets([edge.target_class.size for edge in edges]),
            source_class=_concatenate([edge.source_class for edge in edges]),
            target_class=_concatenate([edge.target_class for edge in edges]),
            height=np.array([edge.matrix.shape[0] for edge in edges], np.int64),
            width=np.array([edge.matrix.shape[1] for edge in edges], np.int64),
            pair_start=np.array([costs.add(edge.matrix, edge.multiplicity) for edge in edges], np.int64),
            pair_cost=costs.concatenate(),
            edge_usage_edge=np.array([e for e, _ in on_edges], np.int64),
            edge_usage_start=np.array([usage.start for _, usage in on_edges], np.int64),
            edge_usage_stop=edge_stop,
            edge_usage_pair_start=np.array([usages.add(usage.matrix, None) for _, usage in on_edges], np.int64),
            pair_usage=usages.concatenate(),
            time_steps=int(max(span_stop.max(initial=0), edge_stop.max(initial=0))),
        )

    @property
    def pairs(self) -> int:
        """The number of pairs of classes on all edges."""
        return int((self.height * self.width).sum())

    def largest_usage(self) -> int:
        """Return an upper bound of the bytes in use at any time step: the largest usages of all spans and edges."""
        return sum_largest(self.span_usage, self.span_at) + sum_largest(self.pair_usage, self.edge_usage_pair_start)

    def pair(self, assignment: Integers) -> Integers:
        """Return, for each edge, the position of the chosen pair of classes within its matrix (row major)."""
        source = self.source_class[self.source_start[:-1] + assignment[self.source]]
        target = self.target_class[self.target_start[:-1] + assignment[self.target]]
        pair: Integers = source * self.width + target
        return pair

    def parts(self) -> tuple[tuple[Node, ...], tuple[Edge, ...]]:
        """Return the nodes (named by their number) and edges; costs include the multiplicities, which become 1."""
        bounds, more_usage, on_edges = self.node_start[1:-1], self._more_intervals(), self._edge_usages()
        rows = zip(np.split(self.cost, bounds), np.split(self.usage, bounds), strict=True)
        intervals = zip(self.live_start.tolist(), self.live_stop.tolist(), strict=True)
        nodes = tuple(
            Node(str(i), cost, usage, interval, 1, more_usage.get(i))
            for i, ((cost, usage), interval) in enumerate(zip(rows, intervals, strict=False))
        )
        sources = np.split(self.source_class.astype(np.int32), self.source_start[1:-1])
        targets = np.split(self.target_class.astype(np.int32), self.target_start[1:-1])
        matrices: dict[tuple[int, ...], Integers] = {}
        edges = []
        keys = np.stack([self.pair_start, self.height, self.width], axis=1).tolist()
        for e, (i, j, key) in enumerate(zip(self.source.tolist(), self.target.tolist(), map(tuple, keys), strict=True)):
            start, height, width = key
            if key not in matrices:
                matrices[key] = self.pair_cost[start : start + height * width].reshape(height, width)
            edges.append(Edge(i, j, sources[e], targets[e], matrices[key], 1, tuple(on_edges.get(e, ()))))
        return nodes, tuple(edges)

    def _more_intervals(self) -> dict[int, UsageIntervals]:
        """Return the spans beyond each node's own interval, by node."""
        more = self.node_start.size - 1 + np.argsort(self.span_node[self.node_start.size - 1 :], kind="stable")
        nodes, first = np.unique(self.span_node[more], return_index=True)
        intervals = {}
        for node, spans in zip(nodes.tolist(), np.split(more, first)[1:], strict=True):
            strategies = np.arange(self.node_start[node + 1] - self.node_start[node])
            usage = self.span_usage[self.span_at[spans][:, None] + strategies]
            intervals[node] = UsageIntervals(self.span_start[spans], self.span_stop[spans], usage)
        return intervals

    def _edge_usages(self) -> dict[int, list[EdgeUsage]]:
        """Return the usages on edges, by edge."""
        usages: dict[int, list[EdgeUsage]] = {}
        columns = (self.edge_usage_edge, self.edge_usage_start, self.edge_usage_stop, self.edge_usage_pair_start)
        for e, start, stop, at in zip(*(column.tolist() for column in columns), strict=True):
            height, width = int(self.height[e]), int(self.width[e])
            matrix = self.pair_usage[at : at + height * width].reshape(height, width)
            usages.setdefault(e, []).append(EdgeUsage(start, stop, matrix))
        return usages
