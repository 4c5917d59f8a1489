"""Moments that cannot bind go, and with them usages that are live at no other.

Moment t goes if the base and the largest usages there stay within the limit; or if usage cannot rise from t - 1 to t
(the base's rise plus the sum of each node's largest rise is at most 0): then a choice within the limit at t - 1
is within it at t; likewise if it cannot fall from t to t + 1 (of two moments that are equal, the earlier
stays). Each chain of such steps ends at a moment that stays or never binds. Without a limit, all go.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from solvers.presolve.state import State

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

# All moments are looked at again once one node in so many has changed; where nodes are few, always.
CHANGED, FEW_NODES = 10, 1000


def reduce(state: State, turn: int) -> None:
    """Look at all moments, if enough nodes changed since."""
    changed = sum(1 for _ in state.drain(turn))
    if changed * CHANGED < len(state.alive) - FEW_NODES or not state.base.size:
        return
    stays = _stay(state)
    if not stays.all():
        state.keep_moments(stays)


def _stay(state: State) -> Flags:
    limit = state.limit
    if limit is None:
        return np.zeros(state.base.size, bool)
    profiles = [(node, profile) for node in state.alive if (profile := state.usage(node)) is not None]
    uses = [usage for link in state.links.values() for usage in link.usages]
    base = state.base  # complete, now that each profile was asked for
    rise, fall, most = np.zeros((3, base.size + 1), np.int64)
    if profiles:
        node = np.concatenate([np.full(profile.start.size, i) for i, profile in profiles])
        start, stop = (np.concatenate([getattr(p, name) for _, p in profiles]) for name in ("start", "stop"))
        at = np.cumsum(np.concatenate([[0], *(np.full(p.start.size, p.usage.shape[1]) for _, p in profiles)]))
        _change(node, start, stop, at, np.concatenate([p.usage.ravel() for _, p in profiles]), rise, fall, most)
    for q, usage in enumerate(uses):
        one = (np.array([q]), np.array([usage.start]), np.array([usage.stop]), np.array([0, usage.matrix.size]))
        _change(*one, usage.matrix.ravel(), rise, fall, most)
    cannot_rise = rise[1:-1] + np.diff(base) <= 0
    cannot_fall = fall[1:-1] - np.diff(base) <= 0
    goes = base + np.cumsum(most)[:-1] <= limit
    goes[1:] |= cannot_rise
    goes[:-1] |= cannot_fall & ~cannot_rise
    return ~goes


@njit(cache=True)
def _change(owner, start, stop, at, usage, rise, fall, most):  # type: ignore[no-untyped-def]
    """Add to each moment the most by which each owner's usage rises and falls there, and the change of its largest.

    Intervals q of one owner stand together, ascending; its usages there are usage[at[q]:at[q + 1]].
    """
    for q in range(owner.size):
        own = usage[at[q] : at[q + 1]]
        joined = q > 0 and owner[q - 1] == owner[q] and stop[q - 1] == start[q]
        change = own - usage[at[q - 1] : at[q]] if joined else own
        rise[start[q]] += change.max()
        fall[start[q]] -= change.min()
        most[start[q]] += own.max()
        most[stop[q]] -= own.max()
        if q + 1 == owner.size or owner[q + 1] != owner[q] or start[q + 1] != stop[q]:
            rise[stop[q]] -= own.min()
            fall[stop[q]] += own.max()
