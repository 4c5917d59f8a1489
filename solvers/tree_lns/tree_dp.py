"""One block: a random induced tree, and the cheapest strategies on it with all else fixed.

Numbers that are passed on begin as np.int64: numba would compile what they are passed to for a literal first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from solvers.jit import cached_njit
from solvers.tree_lns.arc_graph import ArcGraph
from solvers.tree_lns.splitmix64 import random_below, random_uniform

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

UNREACHED = 1e300


class TreeScratch(NamedTuple):
    """Room to work in. tree: nodes in order of joining; up: each one's arc to its parent; at: where its costs begin in
    `value`; stamp, seen: the last block that a node was in, or next to; neighbours: how many inside; rank: place."""

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
    """For blocks of at most `most` nodes."""
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
    """A random induced tree from the root: a node joins while exactly one of its neighbours is inside; its size."""
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
    """Cost, priced usage, and the arcs to fixed neighbours of a node's strategies, into value[at:]."""
    begin, k = graph.node_start[node], graph.node_start[node + 1] - graph.node_start[node]
    value = scratch.value[at : at + k]
    value[:] = graph.cost[begin : begin + k]
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
    """Add to the parent's values the least of a child's value plus the arc between them."""
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
    """The best strategy of the node at a place, its parent's being taken."""
    node, arc, at = scratch.tree[place], scratch.up[place], scratch.at[place]
    k = graph.node_start[node + 1] - graph.node_start[node]
    back = graph.back[arc]
    above = scratch.new[scratch.rank[graph.head[arc]]]
    begin = graph.matrix_at[back] + graph.classes[graph.near_at[back] + above] * graph.columns[back]
    best, least = 0, UNREACHED
    for x in range(k):
        worth = scratch.value[at + x] + graph.matrix[begin + graph.classes[graph.near_at[arc] + x]]
        if worth < least:
            best, least = x, worth
    return best


@cached_njit(nogil=True, error_model="numpy")
def optimize_tree(graph, spans, scratch, size, assignment, prefix, block, force, state):  # type: ignore[no-untyped-def]
    """The cheapest strategies of the tree's nodes into `new`, priced by the prefix sums of the watched moments' prices;
    with a chance of `force` the root takes another strategy than its present one."""
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
        new[0] = other + (other >= assignment[tree[0]])
    for place in range(1, size):
        new[place] = _select_strategy(graph, scratch, place, size)


@cached_njit(nogil=True, error_model="numpy")
def conditional_costs(graph, spans, scratch, assignment, prefix, worth):  # type: ignore[no-untyped-def]
    """Each strategy's worth (flat), all other nodes fixed, priced by the prefix sums of the watched moments' prices."""
    for node in range(assignment.size):
        k = _unary_costs(graph, spans, scratch, node, np.int64(0), assignment, prefix, np.int64(-2))
        worth[graph.node_start[node] : graph.node_start[node] + k] = scratch.value[:k]
