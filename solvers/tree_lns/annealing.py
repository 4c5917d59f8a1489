"""Simulated annealing over tree blocks, and coordinate descent over nodes without edges.

A block is a random tree that is re-optimised with everything else fixed. It is accepted by the Metropolis rule on the
exact change of cost plus penalty. The penalty of a watched time step m is piecewise linear in its load: slope below[m]
per byte under the limit, above[m] per byte over it. Within a block, usage is priced at the slope of the present load.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from solvers.jit import cached_njit, copy_values
from solvers.tree_lns.arc_graph import FORBIDDEN
from solvers.tree_lns.splitmix64 import random_below as draw
from solvers.tree_lns.splitmix64 import random_uniform
from solvers.tree_lns.tree_dp import optimize_tree, sample_induced_tree

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class WalkState(NamedTuple):
    """The state of the walk, updated in place.

    load: bytes in use at each watched time step; change: scratch for a block's change of it. prefix: prefix sums of the
    multipliers of the watched time steps. cost: that of the assignment, and the best seen with no watched time step
    over the limit (`best`). block: the number of the current block. random: the state of splitmix64.
    """

    assignment: Integers
    load: Integers
    change: Integers
    prefix: Floats
    cost: Floats
    best: Integers
    block: Integers
    random: NDArray[np.uint64]


class PenaltySlopes(NamedTuple):
    """Cost units per byte at each watched time step: of the penalty under and over the limit, and the multiplier that a
    block uses where the load is over the limit."""

    below: Floats
    above: Floats
    block_above: Floats


@cached_njit(nogil=True, error_model="numpy")
def _update_multipliers(position, slopes, limit):  # type: ignore[no-untyped-def]
    """Write the prefix sums of the multipliers at the present load."""
    total = 0.0
    for m in range(position.load.size):
        position.prefix[m] = total
        total += slopes.below[m] if position.load[m] <= limit else slopes.block_above[m]
    position.prefix[position.load.size] = total


@cached_njit(nogil=True, error_model="numpy")
def _penalty_change(load, more, below, above, limit):  # type: ignore[no-untyped-def]
    """Return the change of a time step's penalty when its load changes by `more` bytes."""
    before, after = load - limit, load + more - limit
    return after * (below if after <= 0 else above) - before * (below if before <= 0 else above)


@cached_njit(nogil=True, error_model="numpy")
def _arc_cost_change(graph, scratch, assignment, node, new, block):  # type: ignore[no-untyped-def]
    """Return the exact change of a node's arc costs; an arc between two changing nodes counts at the later one."""
    total = 0.0
    for a in range(graph.first[node], graph.first[node + 1]):
        far = graph.head[a]
        inside = scratch.stamp[far] == block
        if inside and scratch.rank[far] > scratch.rank[node] and scratch.new[scratch.rank[far]] != assignment[far]:
            continue
        old_row = graph.matrix_at[a] + graph.classes[graph.near_at[a] + assignment[node]] * graph.columns[a]
        new_row = graph.matrix_at[a] + graph.classes[graph.near_at[a] + new] * graph.columns[a]
        old_far = assignment[far]
        new_far = scratch.new[scratch.rank[far]] if inside else old_far
        total += graph.matrix[new_row + graph.classes[graph.far_at[a] + new_far]]
        total -= graph.matrix[old_row + graph.classes[graph.far_at[a] + old_far]]
    return total


@cached_njit(nogil=True, error_model="numpy")
def _tree_change(graph, spans, scratch, position, size, block):  # type: ignore[no-untyped-def]
    """Return the exact change of cost when a block takes its new strategies, and how many nodes change.

    Writes the differences of the change of load (to be summed up over time steps) to position.change.
    """
    position.change[:] = 0
    total, changed = 0.0, 0
    for place in range(size):
        node, new = scratch.tree[place], scratch.new[place]
        old = position.assignment[node]
        if new != old:
            changed += 1
            total += graph.cost[graph.node_start[node] + new] - graph.cost[graph.node_start[node] + old]
            total += _arc_cost_change(graph, scratch, position.assignment, node, new, block)
            for q in range(spans.first[node], spans.first[node + 1]):
                more = spans.usage[spans.at[q] + new] - spans.usage[spans.at[q] + old]
                position.change[spans.low[q]] += more
                position.change[spans.high[q]] -= more
    return total, changed


@cached_njit(nogil=True, error_model="numpy")
def _total_penalty_change(position, slopes, limit):  # type: ignore[no-untyped-def]
    """Sum up position.change in place; return the change of the penalty and how many time steps would be over the
    limit."""
    more, total, over = 0, 0.0, 0
    for m in range(position.load.size):
        more += position.change[m]
        position.change[m] = more
        load = position.load[m]
        over += load + more > limit
        if more != 0:
            total += _penalty_change(load, more, slopes.below[m], slopes.above[m], limit)
    return total, over


@cached_njit(nogil=True, error_model="numpy")
def _record_best(position, over):  # type: ignore[no-untyped-def]
    if over == 0 and position.cost[0] < position.cost[1]:
        position.cost[1] = position.cost[0]
        copy_values(position.assignment, position.best)


@cached_njit(nogil=True, error_model="numpy")
def anneal(graph, spans, scratch, position, slopes, limit, blocks, most, force, heat):  # type: ignore[no-untyped-def]
    """Try `blocks` blocks of at most `most` nodes at temperature `heat`; return how many were accepted.

    force: the probability that a block's root must change its strategy.
    """
    random, accepted = position.random, 0
    _update_multipliers(position, slopes, limit)
    for _ in range(blocks):
        position.block[0] += 1
        block = position.block[0]
        root = graph.connected[draw(random, graph.connected.size)]
        size = sample_induced_tree(graph, scratch, root, 1 + draw(random, most), block, random)
        optimize_tree(graph, spans, scratch, size, position.assignment, position.prefix, block, force, random)
        cost, changed = _tree_change(graph, spans, scratch, position, size, block)
        # A change of this size means that something forbidden enters; floats of that size would lose the exact cost.
        if changed == 0 or cost > FORBIDDEN / 2:
            continue
        penalty, over = _total_penalty_change(position, slopes, limit)
        worse = cost + penalty
        if worse <= 0.0 or random_uniform(random) < np.exp(-worse / heat):
            accepted += 1
            for place in range(size):
                position.assignment[scratch.tree[place]] = scratch.new[place]
            for m in range(position.load.size):
                position.load[m] += position.change[m]
            position.cost[0] += cost
            _update_multipliers(position, slopes, limit)
            _record_best(position, over)
    return accepted


@cached_njit(nogil=True, error_model="numpy")
def _node_penalty_change(spans, position, slopes, limit, node, new):  # type: ignore[no-untyped-def]
    """Return the change of the penalty if one node takes another strategy."""
    total, old = 0.0, position.assignment[node]
    for q in range(spans.first[node], spans.first[node + 1]):
        more = spans.usage[spans.at[q] + new] - spans.usage[spans.at[q] + old]
        if more != 0:
            for m in range(spans.low[q], spans.high[q]):
                total += _penalty_change(position.load[m], more, slopes.below[m], slopes.above[m], limit)
    return total


@cached_njit(nogil=True, error_model="numpy")
def _set_strategy(graph, spans, position, node, new):  # type: ignore[no-untyped-def]
    """Give a node without edges another strategy, updating load and cost."""
    begin, old = graph.node_start[node], position.assignment[node]
    for q in range(spans.first[node], spans.first[node + 1]):
        more = spans.usage[spans.at[q] + new] - spans.usage[spans.at[q] + old]
        for m in range(spans.low[q], spans.high[q]):
            position.load[m] += more
    position.cost[0] += graph.cost[begin + new] - graph.cost[begin + old]
    position.assignment[node] = new


@cached_njit(nogil=True, error_model="numpy")
def coordinate_descent(graph, spans, position, slopes, limit):  # type: ignore[no-untyped-def]
    """Set each node without edges, in random order, to its best strategy by exact cost plus penalty."""
    order = graph.isolated.copy()
    for place in range(order.size - 1, 0, -1):
        other = draw(position.random, place + 1)
        order[place], order[other] = order[other], order[place]
    for node in order:
        begin, old = graph.node_start[node], position.assignment[node]
        best, least = old, 0.0
        for x in range(graph.node_start[node + 1] - begin):
            if x != old:
                worse = graph.cost[begin + x] - graph.cost[begin + old]
                worse += _node_penalty_change(spans, position, slopes, limit, node, x)
                if worse < least:
                    best, least = x, worse
        if best != old:
            _set_strategy(graph, spans, position, node, best)
    over = np.int64(0)
    for m in range(position.load.size):
        over += position.load[m] > limit
    _record_best(position, over)
