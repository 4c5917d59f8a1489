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

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from solvers.dual_ascent import DualAscent
from solvers.evaluation import evaluate
from solvers.problem import Problem
from solvers.problem_arrays import ProblemArrays, compute_offsets
from solvers.proof_tree import Split
from solvers.relaxation import Relaxation

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

# Steps per branch, and the progress within a cycle that sets their size and temperature.
STEPS, PROGRESS = 8, 0.4
# Multipliers below this share of their sum count as zero.
LEAST_SHARE = 5e-4
# Nodes compared by what their memory costs, and by what they gained; gains after which a node's average is used.
CANDIDATES, RELIABLE = 8, 8
# The least gain, as a share of the open gap, that counts in a product.
MIN_GAIN = 1e-4


class AscentBounding:
    """Bounding by dual ascent (a proof_tree.Bounding)."""

    plunge, max_pairs, max_bytes = 0.5, 100_000, 1 << 30

    def __init__(self, root: Relaxation, scales: DualAscent, time_steps: Iterable[int]) -> None:
        """scales: an ascent on the whole problem that has begun. time_steps: those to watch besides those with a
        multiplier."""
        self._root, self._scales = root, scales
        least = LEAST_SHARE * sum(root.multipliers.values())
        binding = [time_step for time_step, multiplier in root.multipliers.items() if multiplier > least]
        self._watched = np.union1d(binding, list(time_steps)).astype(np.int64)
        self._usage = root.model.arrays.at_time_steps(self._watched)
        nodes = root.model.arrays.node_start.size - 1
        # By node and half (cheaper memory, dearer memory): the sum of what it gained, as shares of the gap, and how often.
        self._gains, self._trials = np.zeros((nodes, 2)), np.zeros((nodes, 2), np.int64)

    def bound(self, branch: Relaxation) -> tuple[Relaxation, Split | None]:
        """Ascend from the branch's multipliers, submit the assignment decoded there, and compare ways to split."""
        branch = branch.compacted() if branch.is_sparse else branch
        if branch.model.watched is None or branch.model.watched.size < self._watched.size:
            branch = self._watch_all(branch)
        ascent = self._scales.resume(branch, PROGRESS, STEPS)
        bound = max(branch.bound, ascent.bound)
        branch.set_multipliers(ascent.multipliers)
        branch.bound = bound
        if branch.is_done or branch.model.state.is_exhausted:
            return branch, None
        self._submit(branch, ascent.decode())
        return branch, None if branch.is_done else self._find_split(branch, ascent.share(PROGRESS))

    def _submit(self, branch: Relaxation, assignment: Integers) -> None:
        """Submit an assignment that is an improvement as far as the branch knows; watch where it exceeds the limit."""
        state, known = branch.model.state, evaluate(branch.model.restriction.problem, assignment)
        if known.feasible and (state.cost is None or known.cost < state.cost):
            found = state.submit(branch.model.restriction.postsolve(assignment))
            if found.allowed and not found.feasible:
                self._watched = np.union1d(self._watched, [found.peak_step])
                self._usage = self._root.model.arrays.at_time_steps(self._watched)

    def _watch_all(self, branch: Relaxation) -> Relaxation:
        """Return the branch with the watched time steps only, and with all of them."""
        kept = np.isin(self._root.model.restriction.flat_strategies, branch.model.restriction.flat_strategies)
        arrays = _replace_usage(branch.model.arrays, self._usage, kept)
        problem = Problem.from_arrays(arrays, branch.model.restriction.problem.limit)
        known = set(self._watched.tolist())
        multipliers = {time_step: value for time_step, value in branch.multipliers.items() if time_step in known}
        other = branch.with_rows(problem, multipliers, self._watched)
        other.bound = branch.bound
        return other

    def _find_split(self, branch: Relaxation, share: Floats) -> Split | None:
        """Return the best way to split the branch; strategies that a comparison closes are excluded.

        share: the probability of each strategy (flat).
        """
        arrays, best, split = branch.model.arrays, -1.0, None
        potentials = branch.lagrangian_potentials
        base = branch.copy().sweep(branch.mask(potentials))
        gap = max(branch.model.state.upper_cutoff - base, 1)
        for node, cheaper in self._list_candidates(branch, share):
            strategies = slice(*arrays.node_start[node : node + 2])
            gains = list[float]()
            for half, flags in enumerate((cheaper, ~cheaper)):
                if self._trials[node, half] < RELIABLE:
                    trial = branch.copy()
                    trial.allowed[strategies] &= flags
                    gain = min(max((trial.sweep(trial.mask(potentials)) - base) / gap, 0.0), 1.0)
                    self._gains[node, half] += gain
                    self._trials[node, half] += 1
                    if gain >= 1.0:
                        branch.allowed[strategies] &= ~flags
                else:
                    gain = self._gains[node, half] / self._trials[node, half]
                gains.append(max(gain, MIN_GAIN))
            allowed = branch.allowed[strategies]
            if gains[0] * gains[1] > best and (allowed & cheaper).any() and (allowed & ~cheaper).any():
                likelier = cheaper if share[strategies] @ cheaper >= 0.5 else ~cheaper
                best, split = gains[0] * gains[1], (node, likelier)
        return split

    def _list_candidates(self, branch: Relaxation, share: Floats) -> list[tuple[int, Mask]]:
        """Return nodes to compare, each with flags of its strategies whose memory costs less than the average."""
        arrays, first = branch.model.arrays, branch.model.arrays.node_start[:-1]
        price = branch.lagrangian_potentials.theta - branch.model.lagrangian.theta
        mean = np.add.reduceat(share * price, first)
        spread = np.add.reduceat(share * np.abs(price - mean[arrays.node_of]), first)
        # Without prices the fractions themselves decide.
        spread += MIN_GAIN * (1 - np.maximum.reduceat(share, first))
        average = self._gains / np.maximum(self._trials, 1)
        gained = np.prod(np.maximum(average, MIN_GAIN), axis=1) * (self._trials.min(axis=1) > 0)
        divisible = branch.counts() > 1
        nodes = [
            np.argsort(-np.where(divisible, score, -1.0), kind="stable")[:CANDIDATES] for score in (spread, gained)
        ]
        candidates = list[tuple[int, Mask]]()
        for node in dict.fromkeys(np.concatenate(nodes).tolist()):
            strategies = slice(*arrays.node_start[node : node + 2])
            allowed, cheaper = branch.allowed[strategies], price[strategies] <= mean[node]
            if not (allowed & cheaper).any() or not (allowed & ~cheaper).any():
                cheaper = np.arange(allowed.size) == np.where(allowed, share[strategies], -1.0).argmax()
            if divisible[node]:
                candidates.append((node, cheaper))
        return candidates


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
