"""Probing: of what the strategies of one node imply, the dual ascent learns more than any bound of the whole problem.

The strategies of a node are halved by what their memory costs, as a branch is split (solvers/ascent_bounding.py). Where
the ascent on one half reaches the upper cutoff, that half is excluded, and the other one's multipliers and messages go
on: its bound holds for the whole problem. Where it reaches it on neither, the lesser bound holds, and what both
exclude is excluded (M. W. P. Savelsbergh, "Preprocessing and probing techniques for mixed integer programming
problems", 1994, with the dual ascent in place of bounds of rows). A half may need hundreds of steps to close, which is
too many for every branch of a tree but not for a few nodes of the root: where few capacities bind, the first exclusions
halve the gap, and with it what is left for all other methods.

A round takes at most 2 * NODES ascents, whatever the problem's size.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from solvers.ascent_bounding import AscentBounding
from solvers.dual_ascent import DualAscent
from solvers.relaxation import Relaxation

Mask = NDArray[np.bool_]

# Probing is due once at most this share is left of the gap at which it last ended.
DUE_AT = 0.5
# Nodes probed in a round. A round that closes less than MIN_GAIN of the gap is the last.
NODES, MIN_GAIN = 20, 0.05
# Steps of an ascent at a time; it ends once these close less than this share of its gap.
STEPS, STEP_GAIN = 16, 0.01
# Message rounds after each round of probing, and the gain per round (of the bound) that ends them.
ROUNDS, STALL = 200, 1e-7


class Probing:
    """When a solve probes: once much of the gap has been closed since it last did, and where nothing else gains."""

    def __init__(self) -> None:
        self._gap = 0

    def run(self, root: Relaxation, scales: DualAscent | None, *, at_once: bool) -> Relaxation:
        """Return what is left of a relaxation after probing, if it is due or asked for at once. It is not due before it
        has been called for the first time.

        scales: an ascent on the whole problem that has begun (None: nothing is probed).
        """
        state, gap = root.model.state, root.model.state.upper_cutoff - root.bound
        if scales is None or root.is_done or state.is_exhausted or not (at_once or gap <= DUE_AT * self._gap):
            self._gap = self._gap or gap
            return root
        with state.operator("probing", root.model.arrays.pairs):
            root = probe(root, scales)
        self._gap = state.upper_cutoff - root.bound
        return root


def probe(root: Relaxation, scales: DualAscent) -> Relaxation:
    """Return what is left of a relaxation after probing the nodes whose memory costs most.

    scales: an ascent on the whole problem that has begun.
    """
    state, root = root.model.state, root.copy()
    while not state.is_exhausted and not root.is_done:
        gap = state.upper_cutoff - root.bound
        _probe_round(root, AscentBounding(root, scales))
        root, _ = root.pass_until_stalled(ROUNDS, STALL)
        if state.upper_cutoff - root.bound > (1 - MIN_GAIN) * gap:
            break
    return root


def _probe_round(root: Relaxation, bounding: AscentBounding) -> None:
    """Probe nodes one after another; the root takes over strategies, messages, multipliers and bound of the last."""
    branch, first = bounding.watch_all(root), root.model.arrays.node_start
    nodes, cheaper = bounding.rank_nodes(branch)
    for node in nodes[:NODES].tolist():
        if branch.is_done or root.model.state.is_exhausted:
            break
        branch = _probe_node(branch, slice(*first[node : node + 2]), cheaper, bounding=bounding)
    root.allowed, root.messages = branch.allowed, branch.messages
    root.set_multipliers(branch.multipliers)
    root.bound = branch.bound


def _probe_node(branch: Relaxation, strategies: slice, cheaper: Mask, *, bounding: AscentBounding) -> Relaxation:
    """Return the branch without what halving a node's strategies excludes."""
    both = bounding.ascend_halves(branch, strategies, cheaper, steps=STEPS, least=STEP_GAIN)
    halves = [half for _, half, _ in both if not half.is_done]
    if len(halves) == 1:
        return halves[0]
    branch.allowed &= np.any([half.allowed for half in halves], axis=0)
    branch.bound = max(branch.bound, min((half.bound for half in halves), default=branch.model.state.upper_cutoff))
    return branch
