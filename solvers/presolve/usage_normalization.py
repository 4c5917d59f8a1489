"""Usage put in order: each node's spans ascend without overlap, and what all its strategies use belongs to no node.

At each moment the least that any possible strategy of a node uses is used whatever is chosen: it goes to what is
shared, and the rest, >= 0, stays. Neighbouring spans with equal rest become one, those without any vanish.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from solvers.jit import cached_njit
from solvers.presolve.state import PresolveState
from solvers.presolve.working_arrays import FORBIDDEN, UsageArrays, ragged_indices
from solvers.problem_arrays import compute_offsets

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


class UsageRows(NamedTuple):
    """Bytes by strategy from one moment of a node to its next, node by node; a node's last row is all zero."""

    node: Integers
    moment: Integers
    at: Integers
    usage: Integers


def normalize_usage(state: PresolveState, turn: int) -> None:
    """Until no node has usage in common with all its strategies."""
    sort_intervals(state, state.take_dirty(turn))


def sort_intervals(state: PresolveState, fresh: Flags) -> None:
    """The usage of fresh nodes, that of the others being so."""
    mine = fresh[state.uses.node]
    if not mine.any():
        return
    rows = _changes(state, state.uses.select(mine))
    least, some = np.zeros(rows.node.size, np.int64), np.zeros(rows.node.size, bool)
    same = np.zeros(rows.node.size, bool)
    _subtract_common(rows, state.node_start, state.cost, least, some, same)
    np.add.at(state.shared, rows.moment, least)
    np.subtract.at(state.shared, rows.moment[1:], least[:-1])
    heads = np.flatnonzero(~same)
    kept = some[heads][:-1]
    first = heads[:-1][kept]
    settled = UsageArrays(
        rows.node[first], rows.moment[first], rows.moment[heads[1:]][kept], rows.at[first], rows.usage
    )
    state.uses = _interleave(state.sizes, settled, state.uses.select(~mine))


def _changes(state: PresolveState, uses: UsageArrays) -> UsageRows:
    """By how much usage changes at each moment of each node."""
    time_steps, count = state.shared.size, uses.node.size
    ends = np.concatenate([uses.node * time_steps + uses.start, uses.node * time_steps + uses.stop])
    keys, place = np.unique(ends, return_inverse=True)
    node, time_step = np.divmod(keys, time_steps)
    at, usage = compute_offsets(state.sizes[node])[:-1], np.zeros(int(state.sizes[node].sum()), np.int64)
    span, x = ragged_indices(state.sizes[uses.node])
    used = uses.usage[uses.at[span] + x]
    np.add.at(usage, at[place[:count]][span] + x, used)
    np.subtract.at(usage, at[place[count:]][span] + x, used)
    return UsageRows(node, time_step, at, usage)


@cached_njit(error_model="numpy")
def _subtract_common(rows, node_start, cost, least, some, same):  # type: ignore[no-untyped-def]
    """From changes to what is used above the least; is any, and is it the same as before?"""
    for r in range(rows.node.size):
        begin, k = node_start[rows.node[r]], node_start[rows.node[r] + 1] - node_start[rows.node[r]]
        least[r] = FORBIDDEN
        for x in range(k):
            if r > 0 and rows.node[r - 1] == rows.node[r]:
                rows.usage[rows.at[r] + x] += rows.usage[rows.at[r - 1] + x]
            if cost[begin + x] < FORBIDDEN:
                least[r] = min(least[r], rows.usage[rows.at[r] + x])
    for r in range(rows.node.size):
        begin, k = node_start[rows.node[r]], node_start[rows.node[r] + 1] - node_start[rows.node[r]]
        same[r] = r > 0 and rows.node[r - 1] == rows.node[r]
        for x in range(k):
            rest = rows.usage[rows.at[r] + x] - least[r] if cost[begin + x] < FORBIDDEN else 0
            rows.usage[rows.at[r] + x] = rest
            some[r] |= rest > 0
            same[r] &= rest == rows.usage[rows.at[r - 1] + x]


def _interleave(sizes: Integers, one: UsageArrays, two: UsageArrays) -> UsageArrays:
    """All of them, and only the bytes that they read."""
    node = np.concatenate([one.node, two.node])
    order = np.argsort(node, kind="stable")
    node = node[order]
    start, stop = np.concatenate([one.start, two.start])[order], np.concatenate([one.stop, two.stop])[order]
    at = np.concatenate([one.at, two.at + one.usage.size])[order]
    span, x = ragged_indices(sizes[node])
    return UsageArrays(
        node, start, stop, compute_offsets(sizes[node])[:-1], np.concatenate([one.usage, two.usage])[at[span] + x]
    )
