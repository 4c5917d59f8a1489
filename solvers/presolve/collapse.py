"""Nodes that others determine become parts of them, everywhere at once.

If an edge allows each strategy x of node i one strategy f(x) of node j alone, every possible choice has x_j = f(x_i).
Then i takes over j's cost and the edge's, c_i(x) += c_j(f(x)) + C(x, f(x)), and j's usage; j's other edges get i for
j, with the class of f(x). Possible choices correspond one to one, with equal cost and equal usage at every moment.
Determination is transitive: whole trees of nodes go into their roots at a time, and then arc consistency and
merged edges may show further ones. Nodes that have an edge with usage are never taken over.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from solvers.presolve.flat import Edges, Flat, Uses, flattened, ragged, starts
from solvers.presolve.merging import merge_parallel
from solvers.presolve.records import Determined
from solvers.presolve.support import Forest, determined, forbid_unsupported
from solvers.presolve.tables import FORBIDDEN
from solvers.problem import Problem

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


def collapse(problem: Problem, stopped: Callable[[], bool]) -> tuple[Flat, Flags, list[Determined]]:
    """Until no node determines another: what is left, which nodes are, and the way back, in order.

    Forbidden strategies stay where they are, at FORBIDDEN; where a node has no other, no choice is possible.
    """
    flat = flattened(problem)
    here, records = np.ones(flat.sizes.size, bool), list[Determined]()
    while here.size and not stopped():
        forbid_unsupported(flat)
        if not np.maximum.reduceat(flat.cost < FORBIDDEN, flat.node_start[:-1]).all():
            break
        flat = Flat(flat.node_start, flat.cost, merge_parallel(flat), flat.uses)
        tree = determined(flat, here)
        followers = np.flatnonzero(here & (tree.root != np.arange(here.size)))
        if followers.size == 0:
            break
        records.append(Determined(followers, tree.root[followers], tree.at[followers], tree.maps))
        flat = _led(flat, tree, followers)
        here[followers] = False
    return flat, here, records


def _led(flat: Flat, tree: Forest, followers: Integers) -> Flat:
    """With each follower's cost, usage and edges at its root."""
    e, sizes = flat.edges, flat.sizes
    low, high = tree.root[e.low], tree.root[e.high]
    low_classes = tree.carried(e.classes, e.low_at, e.low, sizes[low])
    high_classes = tree.carried(e.classes, e.high_at, e.high, sizes[high])
    low_at, high_at = starts(sizes[low]), starts(sizes[high]) + low_classes.size
    classes = np.concatenate([low_classes, high_classes])
    turned = low > high

    def pair(one: Integers, two: Integers) -> tuple[Integers, Integers]:
        return np.where(turned, two, one), np.where(turned, one, two)

    edges = Edges(
        *pair(low, high), *pair(low_at, high_at), *pair(e.low_classes, e.high_classes), e.pair_at,
        *pair(e.low_step, e.high_step), e.own, classes, e.cells,
    )  # fmt: skip
    inner = edges.taken(low == high)
    edge, x = ragged(sizes[inner.low])
    cells = inner.pair_at[edge] + classes[inner.low_at[edge] + x] * inner.low_step[edge]
    paid = e.cells[cells + classes[inner.high_at[edge] + x] * inner.high_step[edge]]
    leaders = tree.root[followers]
    taken = tree.carried(flat.cost, flat.node_start[followers], followers, sizes[leaders])
    follower, y = ragged(sizes[leaders])
    at = np.concatenate([flat.node_start[inner.low[edge]] + x, flat.node_start[leaders[follower]] + y])
    cost = _added(flat.cost, at, np.concatenate([paid, taken]))
    uses = flat.uses
    roots = tree.root[uses.node]
    usage = tree.carried(uses.usage, uses.at, uses.node, sizes[roots])
    uses = Uses(roots, uses.start, uses.stop, starts(sizes[roots]), usage)
    return Flat(flat.node_start, cost, edges.taken(low != high), uses)


def _added(cost: Integers, at: Integers, more: Integers) -> Integers:
    """Each cost with all that is added at its place; with anything forbidden it is forbidden."""
    total = cost.copy()
    np.add.at(total, at, np.where(more < FORBIDDEN, more, 0))
    total[at[more >= FORBIDDEN]] = FORBIDDEN
    total[cost >= FORBIDDEN] = FORBIDDEN
    return total
