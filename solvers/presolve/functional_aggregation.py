"""Aggregation of nodes whose strategy another node determines, whole trees at a time.

If an edge permits, for each strategy x of node i, only the strategy f(x) of node j, every possible assignment has
x_j = f(x_i). Node i then takes over j's cost and the edge's, c_i(x) += c_j(f(x)) + C(x, f(x)), and j's usage; j's other
edges move to i, with the class of f(x). Possible assignments correspond one to one, with equal cost and equal usage at
every time step.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from solvers.presolve.functional_dependencies import DependencyForest, find_dependencies
from solvers.presolve.postsolve import AggregationRecord
from solvers.presolve.state import PresolveState
from solvers.presolve.working_arrays import FORBIDDEN, EdgeArrays, UsageArrays, ragged_indices
from solvers.problem_arrays import compute_offsets

Integers = NDArray[np.int64]


def aggregate_functional(state: PresolveState, turn: int) -> None:
    """Aggregate every node that another one determines through an edge at a changed node."""
    tree = find_dependencies(state, state.take_dirty(turn))
    followers = np.flatnonzero(state.alive & (tree.root != np.arange(state.alive.size)))
    if followers.size:
        leaders = tree.root[followers]
        state.records.append(AggregationRecord(followers, leaders, tree.at[followers], tree.maps))
        costs = _add_follower_costs(state, tree, followers)
        edges = _redirect_edges(state, tree)
        inner = edges.low == edges.high
        _add(state.cost, costs, _add_inner_costs(state, edges.select(inner)))
        state.edges, state.uses = edges.select(~inner), _redirect_usage(state, tree)
        state.alive[followers] = False
        led = np.zeros(state.alive.size, bool)
        led[leaders] = True
        state.mark_dirty_around(led)


def _add_follower_costs(state: PresolveState, tree: DependencyForest, followers: Integers) -> tuple[Integers, Integers]:
    """Return where the followers' costs go (flat strategies of their leaders), and these costs."""
    leaders = tree.root[followers]
    row, x = ragged_indices(state.sizes[leaders])
    taken = tree.apply_map(state.cost, state.node_start[followers], followers, sizes=state.sizes[leaders])
    return state.node_start[leaders[row]] + x, taken


def _add_inner_costs(state: PresolveState, inner: EdgeArrays) -> tuple[Integers, Integers]:
    """Return where the costs of edges from a node to itself go (flat strategies), and these costs."""
    edge, x = ragged_indices(state.sizes[inner.low])
    at = inner.pair_at[edge] + inner.classes[inner.low_at[edge] + x] * inner.low_step[edge]
    at += inner.classes[inner.high_at[edge] + x] * inner.high_step[edge]
    return state.node_start[inner.low[edge]] + x, inner.cells[at]


def _add(cost: Integers, *parts: tuple[Integers, Integers]) -> None:
    """Add costs at flat strategies, in place; a strategy that receives a forbidden cost becomes forbidden."""
    at, more = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    is_forbidden = cost >= FORBIDDEN
    is_forbidden[at[more >= FORBIDDEN]] = True
    np.add.at(cost, at, np.where(more < FORBIDDEN, more, 0))
    cost[is_forbidden] = FORBIDDEN


def _redirect_edges(state: PresolveState, tree: DependencyForest) -> EdgeArrays:
    """Return the edges with each node replaced by its root; some now connect a node with itself."""
    e, sizes = state.edges, state.sizes
    low, high = tree.root[e.low], tree.root[e.high]
    low_classes = tree.apply_map(e.classes, e.low_at, e.low, sizes=sizes[low])
    high_classes = tree.apply_map(e.classes, e.high_at, e.high, sizes=sizes[high])
    low_at, high_at = compute_offsets(sizes[low])[:-1], compute_offsets(sizes[high])[:-1] + low_classes.size
    turned = low > high

    def pair(one: Integers, two: Integers) -> tuple[Integers, Integers]:
        return np.where(turned, two, one), np.where(turned, one, two)

    return EdgeArrays(
        *pair(low, high), *pair(low_at, high_at), *pair(e.low_classes, e.high_classes), e.pair_at,
        *pair(e.low_step, e.high_step), np.concatenate([low_classes, high_classes]), e.cells,
    )  # fmt: skip


def _redirect_usage(state: PresolveState, tree: DependencyForest) -> UsageArrays:
    """Return the spans with each node replaced by its root. Spans of one root may now overlap."""
    uses = state.uses
    root = tree.root[uses.node]
    sizes = state.sizes[root]
    usage, order = tree.apply_map(uses.usage, uses.at, uses.node, sizes=sizes), np.argsort(root, kind="stable")
    return UsageArrays(root, uses.start, uses.stop, compute_offsets(sizes)[:-1], usage).select(order)
