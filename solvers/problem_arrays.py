"""A problem as flat arrays, built once, for evaluation and message passing.

* Strategy x of node i has the flat index node_start[i] + x.
* The class of edge e's source strategy x is source_class[source_start[e] + x], and likewise for targets.
* A span is an interval over which a node uses bytes: over [span_start[q], span_stop[q]) strategy x of node span_node[q]
  uses span_usage[span_at[q] + x].
* Pair (s, t) of edge e is of kind k = pair_kind[kind_start[e] + s * width[e] + t], one of kind_count[e], and costs
  pair_cost[pair_start[e] + k]. A matrix that edges share is stored once per multiplicity. Usages on edges are laid out
  in the same way, as pair_usage from edge_usage_pair_start on. Edges whose pairs each have an entry of their own share
  the kinds 0, 1, 2, ..., which begin at 0; those of other edges do not begin there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solvers.model import IMPOSSIBLE, Edge, Kinds, Node

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


def own_kinds(height: Integers, width: Integers) -> dict[str, Any]:
    """Return the arrays of kinds of edges whose pairs each have an entry of their own."""
    sizes = height * width
    largest = int(sizes.max(initial=0))
    return {
        "kind_start": np.zeros(sizes.size, np.int64),
        "kind_count": sizes,
        "pair_kind": np.arange(largest, dtype=np.min_scalar_type(largest)),
    }


def _lay_out_kinds(edges: Sequence[Edge]) -> dict[str, Any]:
    """Lay kinds end to end, each array of them stored once, after those of edges without kinds."""
    size = max((edge.matrix.size for edge in edges if edge.kinds is None), default=1)
    pool = PartPool(np.arange(size, dtype=np.min_scalar_type(size)))
    # Arrays are recognised by identity, which is cheap and enough: callers share the object where they share the array.
    starts = [0 if edge.kinds is None else pool.add(id(edge.kinds), np.asarray, edge.kinds) for edge in edges]
    return {
        "kind_start": np.array(starts, np.int64),
        "kind_count": np.array([edge.matrix.size for edge in edges], np.int64),
        "pair_kind": pool.concatenate(),
    }


class PartPool:
    """Parts of an array laid end to end after `first`; the part of each key is stored once."""

    def __init__(self, first: NDArray[Any]) -> None:
        self._offsets, self._parts, self._end = dict[Hashable, int](), [first], first.size

    def add(self, key: Hashable, make: Callable[..., NDArray[Any]], *arguments: Any) -> int:
        """Return where the part of this key begins; it is make(*arguments), called where the key is new."""
        offset = self._offsets.setdefault(key, self._end)
        if offset == self._end:
            self._parts.append(make(*arguments).ravel())
            self._end += self._parts[-1].size
        return offset

    def add_matrices(self, cells: Integers, sizes: Integers, widths: Integers) -> Integers:
        """Add matrices that are laid end to end in `cells`, equal ones once; return where each begins."""
        raw, ends, starts = cells.tobytes(), np.cumsum(sizes).tolist(), list[int]()
        for size, end, width in zip(sizes.tolist(), ends, widths.tolist(), strict=True):
            # The width is part of the key: matrices of different shapes can have equal bytes.
            key = width, raw[8 * (end - size) : 8 * end]
            starts.append(self.add(key, cells.__getitem__, slice(end - size, end)))
        return np.array(starts, np.int64)

    def concatenate(self) -> NDArray[Any]:
        """Return all parts end to end."""
        return np.concatenate(self._parts)


@dataclass(frozen=True, slots=True, eq=False)
class ProblemArrays:
    """The flat arrays (see the module). Costs include the multiplicities and are capped at IMPOSSIBLE."""

    node_start: Integers
    cost: Integers
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
    kind_start: Integers
    kind_count: Integers
    pair_kind: Kinds
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
        costs, usages = PartPool(_nothing()), PartPool(_nothing())
        # The multiplicity is part of the key, because the stored costs are multiplied out.
        matrices = [(edge.matrix, edge.multiplicity) for edge in edges]
        pair_start = [costs.add((id(cost), times), _multiply_cost, cost, times) for cost, times in matrices]
        node_start = compute_offsets([node.cost.size for node in nodes])
        live = np.array([node.interval for node in nodes], np.int64).reshape(-1, 2)
        more_usages = [(i, node.more_usage) for i, node in enumerate(nodes) if node.more_usage is not None]
        span_node = np.concatenate([np.arange(len(nodes)), *(np.full(s.start.size, i) for i, s in more_usages)])
        span_stop = np.concatenate([live[:, 1], *(spans.stop for _, spans in more_usages)])
        on_edges = [(e, usage) for e, edge in enumerate(edges) for usage in edge.usages]
        edge_stop = np.array([usage.stop for _, usage in on_edges], np.int64)
        return ProblemArrays(
            node_start=node_start,
            cost=_concatenate([_multiply_cost(node.cost, node.multiplicity) for node in nodes]),
            span_node=span_node,
            span_start=np.concatenate([live[:, 0], *(spans.start for _, spans in more_usages)]),
            span_stop=span_stop,
            span_at=compute_offsets(np.diff(node_start)[span_node].tolist())[:-1],
            span_usage=_concatenate([node.usage for node in nodes] + [spans.usage.ravel() for _, spans in more_usages]),
            source=np.array([edge.source for edge in edges], np.int64),
            target=np.array([edge.target for edge in edges], np.int64),
            source_start=compute_offsets([edge.source_class.size for edge in edges]),
            target_start=compute_offsets([edge.target_class.size for edge in edges]),
            source_class=_concatenate([edge.source_class for edge in edges]),
            target_class=_concatenate([edge.target_class for edge in edges]),
            height=np.array([edge.shape[0] for edge in edges], np.int64),
            width=np.array([edge.shape[1] for edge in edges], np.int64),
            **_lay_out_kinds(edges),
            pair_start=np.array(pair_start, np.int64),
            pair_cost=costs.concatenate(),
            edge_usage_edge=np.array([e for e, _ in on_edges], np.int64),
            edge_usage_start=np.array([usage.start for _, usage in on_edges], np.int64),
            edge_usage_stop=edge_stop,
            edge_usage_pair_start=np.array(
                [usages.add(id(usage.matrix), np.asarray, usage.matrix) for _, usage in on_edges], np.int64
            ),
            pair_usage=usages.concatenate(),
            time_steps=int(max(span_stop.max(initial=0), edge_stop.max(initial=0))),
        )

    @property
    def pairs(self) -> int:
        """The number of pairs of classes on all edges."""
        return int((self.height * self.width).sum())

    @property
    def counts(self) -> Integers:
        """The number of strategies of each node."""
        return np.diff(self.node_start)

    @property
    def node_of(self) -> Integers:
        """The node of each strategy (flat)."""
        return np.repeat(np.arange(self.node_start.size - 1), self.counts)

    def strategies_at(self, nodes: Integers) -> Integers:
        """Return the flat indices of the strategies of these nodes, one node after another."""
        return segment_positions(self.node_start[nodes], self.counts[nodes])

    def at_time_steps(self, time_steps: Integers) -> ProblemArrays:
        """Return the arrays with only these time steps, which ascend, numbered from 0. Spans of a node that cover the
        same ones are added up, so their number does not grow with the program's length."""
        begin, end = np.searchsorted(time_steps, self.span_start), np.searchsorted(time_steps, self.span_stop)
        live, base = np.flatnonzero(begin < end), time_steps.size + 1
        keys, which = np.unique((self.span_node[live] * base + begin[live]) * base + end[live], return_inverse=True)
        node, sizes = keys // base**2, self.counts[self.span_node[live]]
        starts = compute_offsets(self.counts[node])
        usage = np.zeros(int(starts[-1]), np.int64)
        used = self.span_usage[segment_positions(self.span_at[live], sizes)]
        np.add.at(usage, segment_positions(starts[:-1][which], sizes), used)
        return replace(
            self,
            span_node=node,
            span_start=keys // base % base,
            span_stop=keys % base,
            span_at=starts[:-1],
            span_usage=usage,
            edge_usage_start=np.searchsorted(time_steps, self.edge_usage_start),
            edge_usage_stop=np.searchsorted(time_steps, self.edge_usage_stop),
            time_steps=time_steps.size,
        )

    def largest_usage(self) -> int:
        """Return an upper bound of the bytes in use at any time step: the largest usages of all spans and edges."""
        return sum_largest(self.span_usage, self.span_at) + sum_largest(self.pair_usage, self.edge_usage_pair_start)

    def pair_positions(self, assignment: Integers) -> Integers:
        """Return, for each edge, the position of the chosen pair of classes (row major)."""
        source = self.source_class[self.source_start[:-1] + assignment[self.source]]
        target = self.target_class[self.target_start[:-1] + assignment[self.target]]
        positions: Integers = source * self.width + target
        return positions

    def pair(self, assignment: Integers) -> Integers:
        """Return, for each edge, the kind of the chosen pair of classes."""
        return self.kinds_at(np.arange(self.source.size), self.pair_positions(assignment))

    def kinds_at(self, edges: Integers, positions: Integers) -> Integers:
        """Return the kinds of pairs of classes of edges, by their positions (row major)."""
        kinds: Integers = self.pair_kind[self.kind_start[edges] + positions].astype(np.int64)
        return kinds

    def kinds_of(self, edge: int) -> Kinds:
        """Return the kind of each pair of classes of an edge, `[height, width]`."""
        height, width, start = int(self.height[edge]), int(self.width[edge]), int(self.kind_start[edge])
        return self.pair_kind[start : start + height * width].reshape(height, width)

    def costs_of(self, edge: int) -> Integers:
        """Return the cost of each pair of classes of an edge, `[height, width]`."""
        costs: Integers = self.pair_cost[self.pair_start[edge] + self.kinds_of(edge).astype(np.int64)]
        return costs

    def share_kinds(self, edges: Sequence[Edge]) -> Iterator[Edge]:
        """Yield the edges with their kinds as parts of the flat array: kinds are most of a large problem."""
        parts: dict[int, Kinds] = {}
        for e, edge in enumerate(edges):
            at = int(self.kind_start[e])
            yield edge.with_kinds(parts.setdefault(at, self.kinds_of(e))) if at else edge
