"""A problem in the layout of the tree search: arcs out of each node, costs as floats, spans over watched time steps.

Each edge is stored as two arcs. Arc a leads from the node u with first[u] <= a < first[u + 1] to head[a]; row r of its
matrix holds the costs of class r at u against each class at the head. Costs are integers below 2**53 (a forbidden one
is far above every sum of permitted ones), so float64 adds them exactly.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from solvers.model import IMPOSSIBLE
from solvers.problem_arrays import ProblemArrays, compute_offsets

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FORBIDDEN = 1e18


class ArcGraph(NamedTuple):
    """The problem's arcs as flat arrays.

    back: the opposite arc of each. near_at, far_at: where the classes of an arc's tail and head begin in `classes`.
    matrix_at: where its matrix begins in `matrix`; rows, columns: its shape. connected, isolated: the nodes with at
    least two strategies that have edges, and those that have none.
    """

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
    connected: Integers
    isolated: Integers


class WatchedIntervals(NamedTuple):
    """The spans that cover a watched time step; those of node i are first[i] : first[i + 1].

    A span covers the watched time steps low:high (positions, not time steps); its usages begin at usage[at].
    """

    first: Integers
    low: Integers
    high: Integers
    at: Integers
    usage: Integers


def build_arc_graph(arrays: ProblemArrays) -> ArcGraph:
    """Build the arcs, both directions of every edge, grouped by their tail."""
    edges, count = arrays.source.size, arrays.node_start.size - 1
    shift = arrays.source_class.size
    source_at, target_at = arrays.source_start[:-1], arrays.target_start[:-1] + shift
    order = np.argsort(np.concatenate([arrays.source, arrays.target]), kind="stable")
    place = np.empty(2 * edges, np.int64)
    place[order] = np.arange(2 * edges)
    matrix, straight_at, turned_at = _transpose_matrices(arrays)

    def sorted_pairs(forward: Integers, backward: Integers) -> Integers:
        return np.concatenate([forward, backward])[order].astype(np.int64)

    degree = np.bincount(np.concatenate([arrays.source, arrays.target]), minlength=count)
    free = arrays.counts > 1
    return ArcGraph(
        node_start=arrays.node_start,
        cost=_to_floats(arrays.cost),
        first=compute_offsets(degree),
        head=sorted_pairs(arrays.target, arrays.source),
        back=sorted_pairs(place[edges:], place[:edges]),
        near_at=sorted_pairs(source_at, target_at),
        far_at=sorted_pairs(target_at, source_at),
        classes=np.concatenate([arrays.source_class, arrays.target_class]).astype(np.int32),
        rows=sorted_pairs(arrays.height, arrays.width),
        columns=sorted_pairs(arrays.width, arrays.height),
        matrix_at=sorted_pairs(straight_at, turned_at),
        matrix=matrix,
        connected=np.flatnonzero((degree > 0) & free),
        isolated=np.flatnonzero((degree == 0) & free),
    )


def select_intervals(arrays: ProblemArrays, time_steps: Integers) -> WatchedIntervals:
    """Return the spans that cover at least one of the watched time steps, which ascend."""
    low, high = np.searchsorted(time_steps, arrays.span_start), np.searchsorted(time_steps, arrays.span_stop)
    order = np.argsort(arrays.span_node, kind="stable")
    order = order[(low < high)[order]]
    counts = np.bincount(arrays.span_node[order], minlength=arrays.node_start.size - 1)
    return WatchedIntervals(compute_offsets(counts), low[order], high[order], arrays.span_at[order], arrays.span_usage)


def _to_floats(cost: Integers) -> Floats:
    return np.where(cost >= IMPOSSIBLE, FORBIDDEN, cost).astype(np.float64)


def _transpose_matrices(arrays: ProblemArrays) -> tuple[Floats, Integers, Integers]:
    """Store each distinct matrix once as it is and once transposed; return them end to end, and where each edge's two
    begin."""
    keys = np.stack([arrays.pair_start, arrays.kind_start, arrays.height, arrays.width], axis=1)
    _, edges, which = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    parts, straight, turned, size = [], [], [], 0
    for edge in edges.tolist():
        block = _to_floats(arrays.costs_of(edge))
        straight.append(size)
        turned.append(size + block.size)
        parts += [block.ravel(), block.T.ravel()]
        size += 2 * block.size
    which = which.ravel()
    joined = np.concatenate(parts) if parts else np.zeros(0)
    return joined, np.array(straight, np.int64)[which], np.array(turned, np.int64)[which]
