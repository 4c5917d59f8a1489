"""Normalisation of usage: each node's spans ascend without overlap, and usage common to its strategies is moved out.

At each time step, the least that any permitted strategy of a node uses is used under every assignment. It is moved to
the state's shared usage, and the non-negative rest stays. Neighbouring spans with equal rests are joined; spans without
any are dropped.
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
    """Bytes by strategy between consecutive changes of a node's usage, ordered by node and time step.

    Row r holds usage[at[r] :], from time_step[r] on until the node's next row. A node's last row is zero.
    """

    node: Integers
    time_step: Integers
    at: Integers
    usage: Integers


def normalize_usage(state: PresolveState, turn: int) -> None:
    """Normalise the usage of all changed nodes."""
    sort_intervals(state, state.take_dirty(turn))


def sort_intervals(state: PresolveState, dirty: Flags) -> None:
    """Normalise the usage of the flagged nodes; that of the others must be so already."""
    selected = dirty[state.uses.node]
    if not selected.any():
        return
    rows = _changes(state, state.uses.select(selected))
    least, some = np.zeros(rows.node.size, np.int64), np.zeros(rows.node.size, bool)
    same = np.zeros(rows.node.size, bool)
    _subtract_common(rows, state.node_start, state.cost, least, some, same)
    np.add.at(state.shared, rows.time_step, least)
    np.subtract.at(state.shared, rows.time_step[1:], least[:-1])
    # A run of equal rows becomes one span, from its first row to the next run's; runs without usage are dropped.
    heads = np.flatnonzero(~same)
    has_usage = some[heads][:-1]
    first = heads[:-1][has_usage]
    normalized = UsageArrays(
        rows.node[first], rows.time_step[first], rows.time_step[heads[1:]][has_usage], rows.at[first], rows.usage
    )
    state.uses = _interleave(state.sizes, normalized, state.uses.select(~selected))


def _changes(state: PresolveState, uses: UsageArrays) -> UsageRows:
    """Return the change of each strategy's usage at each time step where a span of its node starts or stops."""
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
    """Turn changes into usages above the node's least, in place.

    Writes, by row, the least, whether any usage is left, and whether the row equals the one before it.
    """
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
    """Merge two sets of spans, ordered by node, and drop the bytes that no span reads."""
    node = np.concatenate([one.node, two.node])
    order = np.argsort(node, kind="stable")
    node = node[order]
    start, stop = np.concatenate([one.start, two.start])[order], np.concatenate([one.stop, two.stop])[order]
    at = np.concatenate([one.at, two.at + one.usage.size])[order]
    span, x = ragged_indices(sizes[node])
    return UsageArrays(
        node, start, stop, compute_offsets(sizes[node])[:-1], np.concatenate([one.usage, two.usage])[at[span] + x]
    )
