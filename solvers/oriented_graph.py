"""The graph of a problem in the layout that message passing reads: edges oriented by node order, incidence lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from solvers.problem_arrays import ProblemArrays, compute_offsets

Integers = NDArray[np.int64]


def _group_by_node(nodes: Integers, count: int) -> tuple[Integers, Integers]:
    """Return (first, positions): the positions in `nodes` that hold node i are positions[first[i] : first[i + 1]]."""
    return compute_offsets(np.bincount(nodes, minlength=count)), np.argsort(nodes, kind="stable").astype(np.int64)


class SweepArrays(NamedTuple):
    """One direction of message passing, for numba: the order of the nodes, the edges that lead on from each (as
    onward_edges[onward_first[i] : onward_first[i + 1]]), the far node of each edge, and at its near and its far end
    where the classes begin and how many there are. by_rows: whether the rows of matrices are the classes at near ends.
    """

    order: Integers
    onward_first: Integers
    onward_edges: Integers
    far: Integers
    near_start: Integers
    far_start: Integers
    heights: Integers
    widths: Integers
    by_rows: bool


@dataclass(frozen=True, slots=True, eq=False)
class OrientedGraph:
    """Edges oriented from the lower to the higher node, and each node's incident edges.

    turned: whether the orientation is the reverse of the problem's. low, high: the lower and the higher node of each
    edge; rows, columns: their numbers of classes. classes_of holds, for both ends of each edge, the class of each
    strategy of the node there; an edge's ends begin in it at low_start and high_start, and messages have the same
    layout. The edges at node i are incident[first[i] : first[i + 1]]; `ends` has the same layout and says where the end
    at i begins in classes_of. The edges with i as the lower node are low_edges[low_first[i] : low_first[i + 1]], and
    likewise for the higher. largest: the most strategies of a node; classes: the most classes at an end. forward,
    backward: the directions of message passing.
    """

    arrays: ProblemArrays
    turned: NDArray[np.bool_]
    low: Integers
    high: Integers
    low_start: Integers
    high_start: Integers
    classes_of: NDArray[np.int32]
    rows: Integers
    columns: Integers
    first: Integers
    incident: Integers
    ends: Integers
    low_first: Integers
    low_edges: Integers
    high_first: Integers
    high_edges: Integers
    largest: int
    classes: int
    forward: SweepArrays
    backward: SweepArrays

    @staticmethod
    def of(arrays: ProblemArrays) -> OrientedGraph:
        """Build the graph of a problem."""
        turned = arrays.source > arrays.target
        shift = arrays.source_class.size
        classes = np.concatenate([arrays.source_class, arrays.target_class]).astype(np.int32)
        source_start, target_start = arrays.source_start[:-1], arrays.target_start[:-1] + shift
        nodes = arrays.node_start.size - 1
        first, grouped = _group_by_node(np.concatenate([arrays.source, arrays.target]), nodes)
        low, high = np.minimum(arrays.source, arrays.target), np.maximum(arrays.source, arrays.target)
        low_first, low_edges = _group_by_node(low, nodes)
        high_first, high_edges = _group_by_node(high, nodes)
        low_start = np.where(turned, target_start, source_start)
        high_start = np.where(turned, source_start, target_start)
        rows = np.where(turned, arrays.width, arrays.height)
        columns = np.where(turned, arrays.height, arrays.width)
        order = np.arange(nodes)
        return OrientedGraph(
            arrays=arrays,
            turned=turned,
            low=low,
            high=high,
            low_start=low_start,
            high_start=high_start,
            classes_of=classes,
            rows=rows,
            columns=columns,
            first=first,
            incident=grouped % max(arrays.source.size, 1),
            ends=np.concatenate([source_start, target_start])[grouped],
            low_first=low_first,
            low_edges=low_edges,
            high_first=high_first,
            high_edges=high_edges,
            largest=int(arrays.counts.max(initial=1)),
            classes=int(max(arrays.width.max(initial=1), arrays.height.max(initial=1))),
            forward=SweepArrays(order, low_first, low_edges, high, low_start, high_start, rows, columns, True),
            backward=SweepArrays(
                order[::-1].copy(), high_first, high_edges, low, high_start, low_start, columns, rows, False
            ),
        )

    @property
    def degree(self) -> int:
        """The largest number of edges at one node."""
        return int(np.diff(self.first).max(initial=0))
