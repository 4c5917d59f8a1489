"""Moments that cannot bind go, and with them usages that are live at no other.

Moment t goes if the base and the largest usages there stay within the limit; or if usage cannot rise from t - 1 to t
(the base's rise plus the sum of each node's largest rise is at most 0): then a choice within the limit at t - 1
is within it at t; likewise if it cannot fall from t to t + 1 (of two moments that are equal, the earlier
stays). Each chain of such steps ends at a moment that stays or never binds. Without a limit, all go.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from solvers.parts import EdgeUsage
from solvers.presolve.profile import Jumps
from solvers.presolve.state import Link, State

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


def reduce(state: State, turn: int) -> None:
    """Look at all moments, if any node changed since."""
    if not any(True for _ in state.drain(turn)) or not state.base.size:
        return
    stays = _stay(state)
    if stays.all():
        return
    new = np.concatenate([[0], np.cumsum(stays)])
    state.base = state.base[stays]
    state.renumber_moments(new)
    for number, link in state.links.items():
        if link.usages:
            state.links[number] = _at_moments(link, new)
            state.touch(link.source)
            state.touch(link.target)


def _at_moments(link: Link, new: Integers) -> Link:
    usages = (EdgeUsage(int(new[usage.start]), int(new[usage.stop]), usage.matrix) for usage in link.usages)
    left = tuple(usage for usage in usages if usage.start < usage.stop)
    return Link(link.source, link.target, link.source_class, link.target_class, link.table, left)


def _stay(state: State) -> Flags:
    base, limit = state.base, state.limit
    if limit is None:
        return np.zeros(base.size, bool)
    profiles = [profile for node in state.alive if (profile := state.usage(node)) is not None]
    uses = [usage for link in state.links.values() for usage in link.usages]
    change = np.zeros((2, base.size + 1), np.int64)
    for moment, rise, fall in [*(profile.jumps for profile in profiles), *(_jumps(usage) for usage in uses)]:
        np.add.at(change[0], moment, rise)
        np.add.at(change[1], moment, fall)
    most = np.zeros(base.size + 1, np.int64)
    for start, stop, used in [*((p.start, p.stop, p.most) for p in profiles), *(_most(usage) for usage in uses)]:
        np.add.at(most, start, used)
        np.subtract.at(most, stop, used)
    cannot_rise = change[0, 1:-1] + np.diff(base) <= 0
    cannot_fall = change[1, 1:-1] - np.diff(base) <= 0
    goes = base + np.cumsum(most)[:-1] <= limit
    goes[1:] |= cannot_rise
    goes[:-1] |= cannot_fall & ~cannot_rise
    return ~goes


def _most(usage: EdgeUsage) -> tuple[Integers, Integers, Integers]:
    return np.array([usage.start]), np.array([usage.stop]), np.array([usage.matrix.max()])


def _jumps(usage: EdgeUsage) -> Jumps:
    least, most = usage.matrix.min(), usage.matrix.max()
    return Jumps(np.array([usage.start, usage.stop]), np.array([most, -least]), np.array([-least, most]))
