"""Nodes that others determine become parts of them, whole trees at a time.

If an edge allows each strategy x of node i one strategy f(x) of node j alone, every possible choice has x_j = f(x_i).
Then i takes over j's cost and the edge's, c_i(x) += c_j(f(x)) + C(x, f(x)), and j's usage; j's other edges get i for
j, with the class of f(x). Possible choices correspond one to one, with equal cost and equal usage at every moment.
Nodes that have an edge with usage are never taken over.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from solvers.layout import begins
from solvers.presolve.determination import Forest, determined
from solvers.presolve.flat import FORBIDDEN, Edges, Uses, ragged
from solvers.presolve.records import Determined
from solvers.presolve.state import State

Integers = NDArray[np.int64]


def reduce(state: State, turn: int) -> None:
    """Until no node determines another."""
    tree = determined(state, state.look(turn))
    followers = np.flatnonzero(state.here & (tree.root != np.arange(state.here.size)))
    if followers.size:
        leaders = tree.root[followers]
        state.records.append(Determined(followers, leaders, tree.at[followers], tree.maps))
        costs = _costs_taken(state, tree, followers)
        edges = _led(state, tree)
        inner = edges.low == edges.high
        _add(state.cost, costs, _costs_between(state, edges.taken(inner)))
        state.edges, state.uses = edges.taken(~inner), _uses_led(state, tree)
        state.here[followers] = False
        led = np.zeros(state.here.size, bool)
        led[leaders] = True
        state.touch_around(led)


def _costs_taken(state: State, tree: Forest, followers: Integers) -> tuple[Integers, Integers]:
    leaders = tree.root[followers]
    row, x = ragged(state.sizes[leaders])
    taken = tree.carried(state.cost, state.node_start[followers], followers, state.sizes[leaders])
    return state.node_start[leaders[row]] + x, taken


def _costs_between(state: State, inner: Edges) -> tuple[Integers, Integers]:
    """Of edges from a node to itself."""
    edge, x = ragged(state.sizes[inner.low])
    at = inner.pair_at[edge] + inner.classes[inner.low_at[edge] + x] * inner.low_step[edge]
    at += inner.classes[inner.high_at[edge] + x] * inner.high_step[edge]
    return state.node_start[inner.low[edge]] + x, inner.cells[at]


def _add(cost: Integers, *parts: tuple[Integers, Integers]) -> None:
    """To each cost all that is added at its place; with anything forbidden it is forbidden."""
    at, more = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    out = cost >= FORBIDDEN
    out[at[more >= FORBIDDEN]] = True
    np.add.at(cost, at, np.where(more < FORBIDDEN, more, 0))
    cost[out] = FORBIDDEN


def _led(state: State, tree: Forest) -> Edges:
    """The edges with roots for the nodes they determine; some now run from a node to itself."""
    e, sizes = state.edges, state.sizes
    low, high = tree.root[e.low], tree.root[e.high]
    low_classes = tree.carried(e.classes, e.low_at, e.low, sizes[low])
    high_classes = tree.carried(e.classes, e.high_at, e.high, sizes[high])
    low_at, high_at = begins(sizes[low])[:-1], begins(sizes[high])[:-1] + low_classes.size
    turned = low > high

    def pair(one: Integers, two: Integers) -> tuple[Integers, Integers]:
        return np.where(turned, two, one), np.where(turned, one, two)

    return Edges(
        *pair(low, high), *pair(low_at, high_at), *pair(e.low_classes, e.high_classes), e.pair_at,
        *pair(e.low_step, e.high_step), e.own, np.concatenate([low_classes, high_classes]), e.cells,
    )  # fmt: skip


def _uses_led(state: State, tree: Forest) -> Uses:
    """Spans of one root may overlap."""
    uses = state.uses
    root = tree.root[uses.node]
    sizes = state.sizes[root]
    usage, order = tree.carried(uses.usage, uses.at, uses.node, sizes), np.argsort(root, kind="stable")
    return Uses(root, uses.start, uses.stop, begins(sizes)[:-1], usage).taken(order)
