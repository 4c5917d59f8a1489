"""One block: a random induced tree, and its optimal strategies with everything else fixed, by dynamic programming.

Counters that are passed to other kernels start as np.int64(0): for the literal 0 numba would compile a second version.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from solvers.jit import cached_njit, copy_values
from solvers.tree_lns.arc_graph import ArcGraph
from solvers.tree_lns.splitmix64 import random_below, random_uniform

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

UNREACHED = 1e300


class TreeScratch(NamedTuple):
    """Scratch arrays, allocated once per search.

    By place in the tree: tree, the nodes in order of joining; up, their arcs to their parents; at, where their costs
    begin in `value`; new, their new strategies. By node: stamp and seen, the number of the last block that contained it
    or touched it; neighbours, how many of its neighbours are in the block; rank, its place in the tree.
    """

    tree: Integers
    up: Integers
    at: Integers
    stamp: Integers
    seen: Integers
    neighbours: Integers
    rank: Integers
    fringe: Integers
    value: Floats
    by_class: Floats
    reduced: Floats
    new: Integers


def allocate_scratch(graph: ArcGraph, most: int) -> TreeScratch:
    """Allocate the scratch for blocks of at most `most` nodes."""
    nodes, arcs = graph.node_start.size - 1, graph.head.size
    largest = int(np.diff(graph.node_start).max(initial=1))
    classes = int(max(graph.rows.max(initial=1), largest))
    return TreeScratch(
        tree=np.zeros(most, np.int64),
        up=np.zeros(most, np.int64),
        at=np.zeros(most, np.int64),
        stamp=np.full(nodes, -1, np.int64),
        seen=np.full(nodes, -1, np.int64),
        neighbours=np.zeros(nodes, np.int64),
        rank=np.zeros(nodes, np.int64),
        fringe=np.zeros(arcs + 1, np.int64),
        value=np.zeros(min(most * largest, graph.cost.size)),
        by_class=np.zeros(classes),
        reduced=np.zeros(classes),
        new=np.zeros(most, np.int64),
    )


@cached_njit(nogil=True, error_model="numpy")
def sample_induced_tree(graph, scratch, root, most, block, state):  # type: ignore[no-untyped-def]
    """Grow a random induced tree of at most `most` nodes from the root and return its size.

    A node joins only while exactly one of its neighbours is inside, so that the induced subgraph stays a tree.
    """
    tree, up, stamp, seen, count, rank, fringe = (
        scratch.tree, scratch.up, scratch.stamp, scratch.seen, scratch.neighbours, scratch.rank, scratch.fringe
    )  # fmt: skip
    size, waiting, node, arc = 0, np.int64(0), root, -1
    while True:
        tree[size], up[size], rank[node], stamp[node] = node, arc, size, block
        size += 1
        if size == most:
            return size
        for a in range(graph.first[node], graph.first[node + 1]):
            far = graph.head[a]
            if seen[far] != block:
                seen[far], count[far] = block, 0
                fringe[waiting] = graph.back[a]
                waiting += 1
            count[far] += 1
        node = -1
        while waiting > 0 and node < 0:
            pick = random_below(state, waiting)
            arc = fringe[pick]
            waiting -= 1
            fringe[pick] = fringe[waiting]
            far = graph.head[graph.back[arc]]
            if count[far] == 1 and stamp[far] != block:
                node = far
        if node < 0:
            return size


@cached_njit(nogil=True, error_model="numpy")
def _unary_costs(graph, spans, scratch, node, at, assignment, prefix, block):  # type: ignore[no-untyped-def]
    """Write the cost of each strategy of a node to value[at:]: its own, its usage at the multipliers, and its arcs to
    neighbours outside the block. Returns the number of strategies.

    prefix: prefix sums of the multipliers of the watched time steps, so that a span costs one subtraction.
    """
    begin, k = graph.node_start[node], graph.node_start[node + 1] - graph.node_start[node]
    value = scratch.value[at : at + k]
    copy_values(graph.cost[begin : begin + k], value)
    for q in range(spans.first[node], spans.first[node + 1]):
        multiplier = prefix[spans.high[q]] - prefix[spans.low[q]]
        if multiplier != 0.0:
            usage = spans.usage[spans.at[q] : spans.at[q] + k]
            for x in range(k):
                value[x] += multiplier * usage[x]
    for a in range(graph.first[node], graph.first[node + 1]):
        far = graph.head[a]
        if scratch.stamp[far] != block:
            back = graph.back[a]
            width = graph.columns[back]
            begin = graph.matrix_at[back] + graph.classes[graph.far_at[a] + assignment[far]] * width
            row = graph.matrix[begin : begin + width]
            own = graph.classes[graph.near_at[a] : graph.near_at[a] + k]
            for x in range(k):
                value[x] += row[own[x]]
    return k


@cached_njit(nogil=True, error_model="numpy")
def _pass_to_parent(graph, scratch, arc, at, k, up_at, others):  # type: ignore[no-untyped-def]
    """Add to each of the parent's values the minimum over the child's strategies of value plus arc cost."""
    by_class, reduced = scratch.by_class[: graph.rows[arc]], scratch.reduced[: graph.columns[arc]]
    own = graph.classes[graph.near_at[arc] : graph.near_at[arc] + k]
    theirs = graph.classes[graph.far_at[arc] : graph.far_at[arc] + others]
    value, width = scratch.value[at : at + k], reduced.size
    by_class[:] = UNREACHED
    for x in range(k):
        by_class[own[x]] = min(by_class[own[x]], value[x])
    reduced[:] = UNREACHED
    for r in range(by_class.size):
        begin, least = graph.matrix_at[arc] + r * width, by_class[r]
        row = graph.matrix[begin : begin + width]
        for t in range(width):
            reduced[t] = min(reduced[t], least + row[t])
    parent = scratch.value[up_at : up_at + others]
    for y in range(others):
        parent[y] += reduced[theirs[y]]


@cached_njit(nogil=True, error_model="numpy")
def _select_strategy(graph, scratch, place, size):  # type: ignore[no-untyped-def]
    """Return the best strategy of the node at a place of the tree, given the new strategy of its parent."""
    node, arc, at = scratch.tree[place], scratch.up[place], scratch.at[place]
    k = graph.node_start[node + 1] - graph.node_start[node]
    back = graph.back[arc]
    above = scratch.new[scratch.rank[graph.head[arc]]]
    begin = graph.matrix_at[back] + graph.classes[graph.near_at[back] + above] * graph.columns[back]
    best, least = 0, UNREACHED
    for x in range(k):
        total = scratch.value[at + x] + graph.matrix[begin + graph.classes[graph.near_at[arc] + x]]
        if total < least:
            best, least = x, total
    return best


@cached_njit(nogil=True, error_model="numpy")
def optimize_tree(graph, spans, scratch, size, assignment, prefix, block, force, state):  # type: ignore[no-untyped-def]
    """Write the optimal strategies of the tree's nodes to scratch.new: leaves to root, then root to leaves.

    prefix: prefix sums of the multipliers. force: the probability that the root gets a random strategy other than its
    present one, which lets the walk leave a local optimum.
    """
    tree, up, at, new = scratch.tree, scratch.up, scratch.at, scratch.new
    used = np.int64(0)
    for place in range(size):
        at[place] = used
        used += _unary_costs(graph, spans, scratch, tree[place], used, assignment, prefix, block)
    for place in range(size - 1, 0, -1):
        above = scratch.rank[graph.head[up[place]]]
        k = graph.node_start[tree[place] + 1] - graph.node_start[tree[place]]
        others = graph.node_start[tree[above] + 1] - graph.node_start[tree[above]]
        _pass_to_parent(graph, scratch, up[place], at[place], k, at[above], others)
    k = graph.node_start[tree[0] + 1] - graph.node_start[tree[0]]
    new[0] = np.argmin(scratch.value[:k])
    if k > 1 and random_uniform(state) < force:
        other = random_below(state, k - 1)
        new[0] = other + (other >= assignment[tree[0]])  # skips the present strategy
    for place in range(1, size):
        new[place] = _select_strategy(graph, scratch, place, size)


@cached_njit(nogil=True, error_model="numpy")
def conditional_costs(graph, spans, scratch, assignment, prefix, worth):  # type: ignore[no-untyped-def]
    """Write the cost of each strategy (flat) to `worth` with all other nodes fixed; prefix: as in _unary_costs."""
    for node in range(assignment.size):
        # Block -2 matches no stamp (they start at -1), so that every neighbour counts as outside.
        k = _unary_costs(graph, spans, scratch, node, np.int64(0), assignment, prefix, np.int64(-2))
        begin = graph.node_start[node]
        copy_values(scratch.value[:k], worth[begin : begin + k])
