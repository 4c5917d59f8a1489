"""A problem as the search walks it: arcs out of each node, costs as floats, spans over the moments watched.

Every edge stands as two arcs. Arc a leads out of the node u with first[u] <= a < first[u + 1] to head[a]; row r of its
matrix is what the class r of u's strategy costs against each class of the head's. Costs are whole numbers below 2**53
(a forbidden one is far above every possible choice), so floats add them exactly.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from solvers.model import IMPOSSIBLE
from solvers.problem_arrays import ProblemArrays

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FORBIDDEN = 1e18


class ArcGraph(NamedTuple):
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
    connected: Integers
    isolated: Integers


class WatchedIntervals(NamedTuple):
    """The spans that cover a watched moment, grouped by node: over watched moments low:high, usage from `at` on."""

    first: Integers
    low: Integers
    high: Integers
    at: Integers
    usage: Integers


def build_arc_graph(arrays: ProblemArrays) -> ArcGraph:
    """Both directions of every edge; `joined`: nodes with edges and a choice to make, `alone`: those without edges."""
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
    free = np.diff(arrays.node_start) > 1
    return ArcGraph(
        node_start=arrays.node_start,
        cost=_to_floats(arrays.cost),
        first=np.concatenate([[0], np.cumsum(degree)]).astype(np.int64),
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
    """The spans over ascending watched moments."""
    low, high = np.searchsorted(time_steps, arrays.span_start), np.searchsorted(time_steps, arrays.span_stop)
    order = np.argsort(arrays.span_node, kind="stable")
    order = order[(low < high)[order]]
    counts = np.bincount(arrays.span_node[order], minlength=arrays.node_start.size - 1)
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return WatchedIntervals(first, low[order], high[order], arrays.span_at[order], arrays.span_usage)


def _to_floats(cost: Integers) -> Floats:
    return np.where(cost >= IMPOSSIBLE, FORBIDDEN, cost).astype(np.float64)


def _transpose_matrices(arrays: ProblemArrays) -> tuple[Floats, Integers, Integers]:
    """Each matrix once as it is and once turned; where each edge's two begin."""
    keys = np.stack([arrays.pair_start, arrays.height, arrays.width], axis=1)
    shapes, which = np.unique(keys, axis=0, return_inverse=True)
    parts, straight, turned, size = [], [], [], 0
    for start, height, width in shapes.tolist():
        block = _to_floats(arrays.pair_cost[start : start + height * width]).reshape(height, width)
        straight.append(size)
        turned.append(size + block.size)
        parts += [block.ravel(), block.T.ravel()]
        size += 2 * block.size
    which = which.ravel()
    joined = np.concatenate(parts) if parts else np.zeros(0)
    return joined, np.array(straight, np.int64)[which], np.array(turned, np.int64)[which]
