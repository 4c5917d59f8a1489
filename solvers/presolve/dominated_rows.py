"""Removal of dominated capacity rows: time steps that cannot bind, and the usages that are live at no other.

A time step is removed if the base usage plus the largest usages there are within the limit. It is also removed if
another one dominates it: the usage at t never exceeds that at s if the base's rise from s to t plus the sum of each
node's largest rise is at most 0, so an assignment within the limit at s is within it at t.
Domination is transitive, so one scan is enough: each time step is compared with the last one kept, and one of the two
may go, until neither does (the earlier of equals stays). Without a limit all time steps are removed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from solvers.jit import cached_njit
from solvers.presolve.state import PresolveState
from solvers.presolve.working_arrays import FORBIDDEN

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

# Time steps with more changes of usage between them than this are not compared.
FAR = 1 << 12


class StepIntervals(NamedTuple):
    """All usages by node.

    The spans of node i are first[i] : first[i + 1], ascending. In span q, strategy x < size[q] uses usage[at[q] + x]
    and is permitted if possible[own[q] + x]. The nodes with a span that starts or stops at time step t are
    changes[change[t] : change[t + 1]].
    """

    first: Integers
    start: Integers
    stop: Integers
    at: Integers
    size: Integers
    own: Integers
    usage: Integers
    possible: Flags
    change: Integers
    changes: Integers


def drop_dominated_rows(state: PresolveState, turn: int) -> None:
    """Remove all time steps that cannot bind or are dominated."""
    state.take_dirty(turn)
    stays = _find_binding_steps(state)
    if not stays.all():
        _keep_steps(state, stays)


def _keep_steps(state: PresolveState, stays: Flags) -> None:
    """Remove the other time steps and renumber those that stay."""
    new, uses = np.concatenate([[0], np.cumsum(stays)]), state.uses
    state.shared = np.diff(state.base[stays], prepend=0, append=0)
    state.uses = uses.renumber_steps(new)
    state.mark_dirty(uses.node[new[uses.start] == new[uses.stop]])


def _find_binding_steps(state: PresolveState) -> Flags:
    base, stays = state.base, np.zeros(state.base.size, bool)
    if state.limit is None:
        return stays
    spans = _collect_intervals(state)
    largest = np.zeros(base.size + 1, np.int64)
    _add_largest(spans, largest)
    may_bind = np.flatnonzero(base + np.cumsum(largest)[:-1] > state.limit)
    _scan_steps(may_bind, base, spans, np.zeros(spans.first.size, np.int64), stays)
    return stays


def _collect_intervals(state: PresolveState) -> StepIntervals:
    uses, time_steps = state.uses, np.append(state.uses.start, state.uses.stop)
    order = np.argsort(time_steps, kind="stable")
    return StepIntervals(
        uses.first(state.alive.size), uses.start, uses.stop, uses.at, state.sizes[uses.node],
        state.node_start[uses.node], uses.usage, state.cost < FORBIDDEN,
        np.searchsorted(time_steps[order], np.arange(state.shared.size + 1)), np.append(uses.node, uses.node)[order],
    )  # fmt: skip


@cached_njit(error_model="numpy")
def _add_largest(spans, largest):  # type: ignore[no-untyped-def]
    """Add to `largest` how the sum of the spans' largest usages changes at each time step."""
    for q in range(spans.start.size):
        most = 0
        for x in range(spans.size[q]):
            if spans.possible[spans.own[q] + x]:
                most = max(most, spans.usage[spans.at[q] + x])
        largest[spans.start[q]] += most
        largest[spans.stop[q]] -= most


@cached_njit(error_model="numpy")
def _is_live(spans, node, time_step):  # type: ignore[no-untyped-def]
    """Return the node's span that is live at a time step, -1 if there is none; by bisection."""
    low, high = spans.first[node], spans.first[node + 1]
    while low < high:
        middle = (low + high) // 2
        if spans.stop[middle] <= time_step:
            low = middle + 1
        else:
            high = middle
    return low if low < spans.first[node + 1] and spans.start[low] <= time_step else -1


@cached_njit(error_model="numpy")
def _largest_rises(spans, s, t, seen, stamp):  # type: ignore[no-untyped-def]
    """Return upper bounds of how much the usage of all nodes can rise from time step s to t, and from t to s.

    seen, stamp: mark nodes that were counted already; only nodes with a change between s and t matter.
    """
    up, down = 0, 0
    for c in range(spans.change[s + 1], spans.change[t + 1]):
        node = spans.changes[c]
        if seen[node] == stamp:
            continue
        seen[node] = stamp
        before, after = _is_live(spans, node, s), _is_live(spans, node, t)
        q = max(before, after)
        if q == -1:
            continue
        rise, fall = -FORBIDDEN, -FORBIDDEN
        for x in range(spans.size[q]):
            if spans.possible[spans.own[q] + x]:
                more = spans.usage[spans.at[after] + x] if after >= 0 else 0
                more -= spans.usage[spans.at[before] + x] if before >= 0 else 0
                rise, fall = max(rise, more), max(fall, -more)
        up, down = up + rise, down + fall
    return up, down


@cached_njit(error_model="numpy")
def _scan_steps(time_steps, base, spans, seen, stays):  # type: ignore[no-untyped-def]
    """Flag in `stays` the time steps that no neighbour among those kept dominates."""
    kept, count, stamp = np.empty(time_steps.size, np.int64), 0, 0
    for t in time_steps:
        stays[t] = True
        while count:
            s = kept[count - 1]
            if spans.change[t + 1] - spans.change[s + 1] > FAR:
                break
            stamp += 1
            up, down = _largest_rises(spans, s, t, seen, stamp)
            if base[t] - base[s] + up <= 0:
                stays[t] = False
                break
            if base[s] - base[t] + down > 0:
                break
            stays[s] = False
            count -= 1
        if stays[t]:
            kept[count] = t
            count += 1
