"""Bounds of branches by a few steps of the dual ascent (solvers/dual_ascent.py) from their parent's dual values.

A step is two message passes, so its bound is a proof in integers and costs a thousandth of a linear program with all
pairs. A branch is split into the strategies of a node that use less memory, at the multipliers' prices, than the node
does on average, and the others. The node is the one whose halves raise the bound most (product rule; T. Achterberg,
T. Koch and A. Martin, "Branching rules revisited", 2005): a pass in each direction tells until a node has been tried
often enough, from then on the average of what it gained (reliability branching).

Branches know only the time steps whose multipliers or peaks have mattered so far: a relaxation, so bounds hold. A time
step at which an assignment turns out to exceed the limit is added to all branches that are bounded from then on.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from solvers.dual_ascent import DualAscent
from solvers.evaluation import evaluate
from solvers.jit import cached_njit
from solvers.problem import Problem
from solvers.problem_arrays import ProblemArrays, compute_offsets
from solvers.proof_tree import Split
from solvers.relaxation import Relaxation

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

# Steps at a time of a branch and of a trial, which go on as long as these close STEP_GAIN of the gap; the progress
# within a cycle that sets their size and temperature.
STEPS, TRIAL_STEPS, STEP_GAIN, PROGRESS = 8, 4, 0.05, 0.4
# Branches between looks for overloaded time steps.
LOOK_EVERY = 8
# Multipliers below this share of their sum count as zero.
LEAST_SHARE = 5e-4
# Nodes compared by what their memory costs, and by what they gained; gains after which a node's average is used.
CANDIDATES, RELIABLE = 8, 8
# Where less than this share of the strategies is left, building a problem of only those pays.
SPARSE_SHARE = 0.6
# The least gain, as a share of the open gap, that counts in a product.
MIN_GAIN = 1e-4


class AscentBounding:
    """Bounding by dual ascent (a proof_tree.Bounding)."""

    plunge, patience, max_pairs, max_bytes = 0.5, 300, 300_000, 1 << 30

    def __init__(self, root: Relaxation, scales: DualAscent) -> None:
        """scales: an ascent on the whole problem that has begun."""
        self._root, self._scales = root, scales
        least = LEAST_SHARE * sum(root.multipliers.values())
        binding = [time_step for time_step, multiplier in root.multipliers.items() if multiplier > least]
        self._watched = np.sort(np.array(binding, np.int64))
        self._usage = root.model.arrays.at_time_steps(self._watched)
        nodes, self._count = root.model.arrays.node_start.size - 1, 0
        # What the two halves of each node have gained in all trials, as shares of the open gap.
        self._gains, self._trials = np.zeros((nodes, 2)), np.zeros(nodes, np.int64)

    def bound(self, branch: Relaxation) -> tuple[Relaxation, Split | None]:
        """Ascend from the branch's multipliers, submit the assignment decoded there, and compare ways to split."""
        if np.count_nonzero(branch.allowed) < SPARSE_SHARE * branch.allowed.size:
            branch = branch.compacted()
        branch = self.watch_all(branch)
        ascent = self.ascend(branch, STEPS, STEP_GAIN)
        if branch.is_done or branch.model.state.is_exhausted:
            return branch, None
        self._submit(branch, ascent.decode())
        return branch, None if branch.is_done else self._find_split(branch, ascent)

    def ascend(self, branch: Relaxation, steps: int, least: float) -> DualAscent:
        """Ascend from the multipliers of a branch that knows all watched time steps, so many steps at a time, until
        they close less than `least` of the gap; the branch takes over multipliers and bound. Returns the ascent."""
        ascent, cutoff = self._scales.resume(branch), branch.model.state.upper_cutoff
        while True:
            before = ascent.bound
            ascent.take(PROGRESS, steps)
            branch.bound = bound = max(branch.bound, ascent.bound)
            is_stalled = ascent.bound - before < least * (cutoff - before)
            if branch.is_done or is_stalled or branch.model.state.is_exhausted:
                break
        branch.set_multipliers(ascent.multipliers)
        branch.bound = bound
        return ascent

    def ascend_halves(
        self, branch: Relaxation, strategies: slice, cheaper: Mask, *, steps: int, least: float
    ) -> list[tuple[Mask, Relaxation, int]]:
        """Ascend on both halves of a node's strategies (flat); steps, least: as in ascend(). Returns, for each half,
        the flags of its strategies, the half, and the ascent's bound (0: nothing was left before)."""
        halves = list[tuple[Mask, Relaxation, int]]()
        for flags in (cheaper[strategies], ~cheaper[strategies]):
            half = branch.copy()
            half.allowed[strategies] &= flags
            halves.append((flags, half, 0 if half.is_done else self.ascend(half, steps, least).bound))
        return halves

    def _submit(self, branch: Relaxation, assignment: Integers) -> None:
        """Submit an assignment that is an improvement as far as the branch knows, and now and then any; watch where it
        exceeds the limit most."""
        state, known = branch.model.state, evaluate(branch.model.restriction.problem, assignment)
        improves = known.feasible and (state.cost is None or known.cost < state.cost)
        self._count += 1
        if improves or self._count % LOOK_EVERY == 0:
            found = state.submit(branch.model.restriction.postsolve(assignment))
            if found.allowed and not found.feasible and found.peak_step not in self._watched:
                self._watched = np.union1d(self._watched, [found.peak_step])
                self._usage = self._root.model.arrays.at_time_steps(self._watched)

    def watch_all(self, branch: Relaxation) -> Relaxation:
        """Return the branch with the watched time steps only, and with all of them."""
        if branch.model.watched is not None and branch.model.watched.size == self._watched.size:
            return branch
        kept = np.isin(self._root.model.restriction.flat_strategies, branch.model.restriction.flat_strategies)
        arrays = _replace_usage(branch.model.arrays, self._usage, kept)
        problem = Problem.from_arrays(arrays, branch.model.restriction.problem.limit)
        known = set(self._watched.tolist())
        multipliers = {time_step: value for time_step, value in branch.multipliers.items() if time_step in known}
        other = branch.with_rows(problem, multipliers, self._watched)
        other.bound = branch.bound
        return other

    def rank_nodes(self, branch: Relaxation) -> tuple[Integers, Mask]:
        """Return the nodes with a choice, those first whose strategies' memory costs differ most at the branch's
        multipliers, and for each strategy (flat) whether it is in its node's cheaper half."""
        ascent = self._scales.resume(branch)
        spread, cheaper = rate_nodes(
            branch.model.arrays.node_start, branch.allowed, ascent.share(PROGRESS), ascent.prices
        )
        nodes = np.argsort(-spread, kind="stable")
        return nodes[spread[nodes] >= 0], cheaper

    def _find_split(self, branch: Relaxation, ascent: DualAscent) -> Split | None:
        """Return the best way to split the branch; what a trial closes is excluded."""
        first, share = branch.model.arrays.node_start, ascent.share(PROGRESS)
        spread, cheaper = rate_nodes(first, branch.allowed, share, ascent.prices)
        score = np.prod(np.maximum(self._gains / np.maximum(self._trials, 1)[:, None], MIN_GAIN), axis=1)
        score[(spread < 0) | (self._trials == 0)] = -1.0
        ranked = [np.argsort(-each, kind="stable")[:CANDIDATES] for each in (spread, score)]
        nodes = np.union1d(ranked[0], ranked[1][score[ranked[1]] > 0])
        nodes = nodes[spread[nodes] >= 0]
        unknown = nodes[self._trials[nodes] < RELIABLE]
        if unknown.size:
            score[unknown] = self._try_splits(branch, unknown, cheaper)
        if not nodes.size:
            return None
        node = int(nodes[score[nodes].argmax()])
        strategies = slice(*first[node : node + 2])
        flags = cheaper[strategies]
        return node, flags if share[strategies] @ flags >= 0.5 else ~flags

    def _try_splits(self, branch: Relaxation, nodes: Integers, cheaper: Mask) -> Floats:
        """Split the branch at each of the nodes, and return the products of the halves' gains; -1 where one is closed,
        whose strategies are excluded."""
        products, first = np.full(nodes.size, -1.0), branch.model.arrays.node_start
        base, cutoff = self._scales.resume(branch.copy()).bound, branch.model.state.upper_cutoff
        for k, node in enumerate(nodes.tolist()):
            strategies = slice(*first[node : node + 2])
            halves = self.ascend_halves(branch, strategies, cheaper, steps=TRIAL_STEPS, least=STEP_GAIN)
            gains = [
                1.0 if half.is_done else max((bound - base) / max(cutoff - base, 1), 0.0) for _, half, bound in halves
            ]
            self._gains[node] += gains
            self._trials[node] += 1
            closed = [flags for (flags, _, _), gain in zip(halves, gains, strict=True) if gain >= 1.0]
            for flags in closed:
                branch.allowed[strategies] &= ~flags
            if not closed:
                products[k] = max(gains[0], MIN_GAIN) * max(gains[1], MIN_GAIN)
        return products


@cached_njit(nogil=True, error_model="numpy")
def rate_nodes(node_start, allowed, share, prices):  # type: ignore[no-untyped-def]
    """Return, for each node, what its strategies' memory costs more or less than its average (-1: it has one strategy
    left), and for each strategy (flat) whether it is in the half whose memory costs less.

    Where all cost the same, that half is the most probable strategy.
    """
    spread, cheaper = np.full(node_start.size - 1, -1.0), np.zeros(share.size, np.bool_)
    for i in range(node_start.size - 1):
        begin, end = node_start[i], node_start[i + 1]
        mean, count, best, below = 0.0, 0, begin, 0
        for x in range(begin, end):
            if allowed[x]:
                mean += share[x] * prices[x]
                count += 1
                best = x if share[x] > share[best] or not allowed[best] else best
        if count < 2:
            continue
        # Without prices the fractions themselves decide.
        spread[i] = MIN_GAIN * (1 - share[best])
        for x in range(begin, end):
            cheaper[x] = allowed[x] and prices[x] <= mean
            below += cheaper[x]
            spread[i] += share[x] * abs(prices[x] - mean) if allowed[x] else 0.0
        if below in (0, count):
            for x in range(begin, end):
                cheaper[x] = x == best
    return spread, cheaper


def _replace_usage(arrays: ProblemArrays, usage: ProblemArrays, kept: Mask) -> ProblemArrays:
    """Return the arrays with the spans of `usage`, of whose strategies (flat) they have the flagged ones."""
    return replace(
        arrays,
        span_node=usage.span_node,
        span_start=usage.span_start,
        span_stop=usage.span_stop,
        span_at=compute_offsets(arrays.counts[usage.span_node])[:-1],
        span_usage=usage.span_usage[kept[usage.strategies_at(usage.span_node)]],
        edge_usage_start=usage.edge_usage_start,
        edge_usage_stop=usage.edge_usage_stop,
        time_steps=usage.time_steps,
    )
