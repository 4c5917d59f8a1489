"""What an edge costs for one end alone moves into that node, and strategies an edge cannot tell apart share a class.

With a(s) = min_t C(s, t) and b(t) = min_s (C(s, t) - a(s)), C = a + b + C' with C' >= 0: costs of choices stay what
they are. Where C' = 0 (an additive edge), the edge is gone. Equal rows of C' become one class.
An edge with usage is left as it is.
"""

from __future__ import annotations

from solvers.presolve.state import Link, State, View


def reduce(state: State, turn: int) -> None:
    """Until no table has anything of one end alone, and all its rows and columns differ."""
    for node, _ in state.drain(turn):
        for view in state.views(node):
            if view.table.split is not None and not view.usages:
                _split(state, node, view)


def _split(state: State, node: int, view: View) -> None:
    split = view.table.split
    assert split is not None
    state.unlink(view.number)
    if split.rows.any():
        state.add_cost(node, split.rows[view.here])
    if split.columns.any():
        state.add_cost(view.other, split.columns[view.there])
    if split.table.cells.size > 1:
        here, there = split.row_class[view.here], split.column_class[view.there]
        state.link(Link(node, view.other, here, there, split.table))
