"""Edges between the same two nodes become one.

A class of the merged edge is a pair of classes, one of each; its cost is the sum of theirs: exact. Not done where the
merged table would be larger than the two (and not small), nor to edges with usage.
"""

from __future__ import annotations

import numpy as np

from solvers.presolve.state import Link, State, View
from solvers.presolve.tables import Classes, capped

SMALL = 256


def reduce(state: State, turn: int) -> None:
    """Until no two edges can be merged."""
    for node, _ in state.drain(turn):
        first: dict[int, View] = {}
        for view in state.views(node):
            if view.usages:
                continue
            other = first.setdefault(view.other, view)
            if other is not view and _merge(state, node, other, view):
                del first[view.other]


def _merge(state: State, node: int, one: View, two: View) -> bool:
    key = ("merged", id(one.here), id(one.there), id(one.table), id(two.here), id(two.there), id(two.table))
    link = state.pool.once(key, lambda: _merged(state, one, two))
    if link is None:
        return False
    state.unlink(one.number)
    state.unlink(two.number)
    state.link(Link(node, one.other, *link))
    return True


def _merged(state: State, one: View, two: View) -> tuple[Classes, Classes, object] | None:
    height, width = two.table.cells.shape
    rows, here = np.unique(one.here.astype(np.int64) * height + two.here, return_inverse=True)
    columns, there = np.unique(one.there.astype(np.int64) * width + two.there, return_inverse=True)
    if rows.size * columns.size > max(one.table.cells.size + two.table.cells.size, SMALL):
        return None
    cells = one.table.cells[np.ix_(rows // height, columns // width)]
    cells = capped(cells + two.table.cells[np.ix_(rows % height, columns % width)])
    return here.astype(np.int32), there.astype(np.int32), state.pool.table(cells)
