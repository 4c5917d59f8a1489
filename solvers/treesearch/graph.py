"""A problem as the search walks it: arcs out of each node, costs as floats, spans over the moments watched.

Every edge stands as two arcs. Arc a leads out of the node u with first[u] <= a < first[u + 1] to head[a]; row r of its
matrix is what the class r of u's strategy costs against each class of the head's. Costs are whole numbers below 2**53
(a forbidden one is far above every possible choice), so floats add them exactly.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from solvers.layout import Layout
from solvers.parts import IMPOSSIBLE

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FORBIDDEN = 1e18


class Graph(NamedTuple):
    """Flat arrays; near_at and far_at say where the classes of an arc's two ends begin in `classes`."""

    node_start: Integers
    cost: Floats
    first: Integers
    head: Integers
    back: Integers
    near_at: Integers
    far_at: Integers
    classes: NDArray[np.int32]
    rows: Integers
    columns: Integers
    matrix_at: Integers
    matrix: Floats
    joined: Integers
    alone: Integers


class Spans(NamedTuple):
    """The spans that cover a watched moment, grouped by node: over watched moments low:high, usage from `at` on."""

    first: Integers
    low: Integers
    high: Integers
    at: Integers
    usage: Integers


def graph_of(layout: Layout) -> Graph:
    """Both directions of every edge; `joined`: nodes with edges and a choice to make, `alone`: those without edges."""
    edges, count = layout.source.size, layout.node_start.size - 1
    shift = layout.source_class.size
    source_at, target_at = layout.source_start[:-1], layout.target_start[:-1] + shift
    order = np.argsort(np.concatenate([layout.source, layout.target]), kind="stable")
    place = np.empty(2 * edges, np.int64)
    place[order] = np.arange(2 * edges)
    matrix, straight_at, turned_at = _both_ways(layout)

    def sorted_pairs(forward: Integers, backward: Integers) -> Integers:
        return np.concatenate([forward, backward])[order].astype(np.int64)

    degree = np.bincount(np.concatenate([layout.source, layout.target]), minlength=count)
    free = np.diff(layout.node_start) > 1
    return Graph(
        node_start=layout.node_start,
        cost=_floats(layout.cost),
        first=np.concatenate([[0], np.cumsum(degree)]).astype(np.int64),
        head=sorted_pairs(layout.target, layout.source),
        back=sorted_pairs(place[edges:], place[:edges]),
        near_at=sorted_pairs(source_at, target_at),
        far_at=sorted_pairs(target_at, source_at),
        classes=np.concatenate([layout.source_class, layout.target_class]).astype(np.int32),
        rows=sorted_pairs(layout.height, layout.width),
        columns=sorted_pairs(layout.width, layout.height),
        matrix_at=sorted_pairs(straight_at, turned_at),
        matrix=matrix,
        joined=np.flatnonzero((degree > 0) & free),
        alone=np.flatnonzero((degree == 0) & free),
    )


def spans_over(layout: Layout, moments: Integers) -> Spans:
    """The spans over ascending watched moments."""
    low, high = np.searchsorted(moments, layout.span_start), np.searchsorted(moments, layout.span_stop)
    order = np.argsort(layout.span_node, kind="stable")
    order = order[(low < high)[order]]
    counts = np.bincount(layout.span_node[order], minlength=layout.node_start.size - 1)
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Spans(first, low[order], high[order], layout.span_at[order], layout.span_usage)


def _floats(cost: Integers) -> Floats:
    return np.where(cost >= IMPOSSIBLE, FORBIDDEN, cost).astype(np.float64)


def _both_ways(layout: Layout) -> tuple[Floats, Integers, Integers]:
    """Each matrix once as it is and once turned; where each edge's two begin."""
    keys = np.stack([layout.pair_start, layout.height, layout.width], axis=1)
    shapes, which = np.unique(keys, axis=0, return_inverse=True)
    parts, straight, turned, size = [], [], [], 0
    for start, height, width in shapes.tolist():
        block = _floats(layout.pair_cost[start : start + height * width]).reshape(height, width)
        straight.append(size)
        turned.append(size + block.size)
        parts += [block.ravel(), block.T.ravel()]
        size += 2 * block.size
    which = which.ravel()
    joined = np.concatenate(parts) if parts else np.zeros(0)
    return joined, np.array(straight, np.int64)[which], np.array(turned, np.int64)[which]
