"""Column generation: a master LP of few strategies gives multipliers, and messages over all strategies price columns.

Planes of whole assignments (solvers/kelley_dual.py) converge slowly when many layers are equal: each plane is one
combination of what the layers do. The master LP, the local polytope of few strategies with capacity rows at the time
steps that its optimum overloads, combines them freely. The duals of the capacity rows are Lagrange multipliers. Message
passing at these multipliers bounds the cost in integers over all strategies, and shows which strategies the master
lacks (G. B. Dantzig and P. Wolfe, "Decomposition principle for linear programs", 1960, with message passing as the
subproblem): those of least min-marginal, and those of the elites nearest to the bound. The support of the last optimum
stays. Few strategies may not fit the limit together: an overload is then the master's optimum, at a high cost, and its
multipliers say which strategies are missing.

Where the master's cost and the messages' bound meet, few nodes are fractional. The MIP of the support is then small and
its answer near the bound. If it is not, although messages prove nearly the master's cost, the LP itself is too weak: it
packs fractions of strategies under the limit. MIR cuts (solvers/cut_separation.py) are then added as further time
steps, which master and messages keep from there on; strategies that evade a cut are priced like any others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solvers.cut_separation import separate_cuts
from solvers.evaluation import find_peaks
from solvers.isolated_process import Meanwhile
from solvers.mip import LocalPolytope
from solvers.problem import Problem
from solvers.relaxation import Relaxation
from solvers.restricted_mip import solve_restricted_mip
from solvers.restriction import Restriction, select_promising
from solvers.solve_state import SolveState

Mask = NDArray[np.bool_]

# What an overload by the whole limit costs in a master, as a multiple of a good assignment's cost.
OVERLOAD_COST = 100.0
# Most master LPs; pairs of a master per edge of the problem, and those to which masters grow; message rounds at their
# multipliers.
MAX_MASTERS, PAIRS_PER_EDGE, MAX_MASTER_PAIRS, ROUNDS = 30, 4, 60_000, 32
# A change below this share of the open gap does not count as a gain; so many masters without gain end the loop.
MIN_GAIN, PATIENCE = 0.02, 3
# Cuts are separated where the messages' bound is within CLOSE_SHARE of the open gap of the master's cost. That is
# checked after LONG_ROUNDS more rounds, or once a round gains less than LONG_STALL of the open gap.
CLOSE_SHARE, LONG_ROUNDS, LONG_STALL = 0.25, 200, 1e-3
# Messages stop where a round gains less than this share of the target gap.
STALL = 1e-3
# A MIP's share of the time left (half of it for a postponed one), and its branch-and-bound nodes.
MIP_TIME_SHARE, MIP_NODES = 0.5, 20
# A strategy with a larger value is in the support; a capacity row is violated beyond this share of the limit.
SUPPORT_TOLERANCE, TOLERANCE = 1e-6, 1e-7
# Units of work per pair of a master; seconds of wall clock for one.
PAIR_WORK, MASTER_SECONDS = 6e4, 20.0


@dataclass(frozen=True, slots=True, eq=False)
class MasterLp:
    """A problem's LP with capacity rows at `time_steps`; calling it solves it, in this or another process.

    cost: that of a good assignment, which sets the LP's unit. has_clock: whether it has a time limit.
    """

    problem: Problem
    time_steps: Sequence[int]
    cost: int
    has_clock: bool

    def __call__(self) -> MasterSolution | None:
        """Return the optimum; None if there is none or it is not found in time."""
        unit, limit = max(self.cost / 1e6, 1e-6), self.problem.limit or 0
        polytope = LocalPolytope(self.problem, unit)
        polytope.add_capacity_rows(self.time_steps)
        polytope.allow_overload(OVERLOAD_COST * self.cost)
        optimum = polytope.to_lp().solve(MASTER_SECONDS if self.has_clock else None)
        if optimum is None:
            return None
        over = np.floor(polytope.usage(optimum.values) - limit * (1 + TOLERANCE)).astype(np.int64)
        over[list(self.time_steps)] = 0
        support = optimum.values[: self.problem.arrays.cost.size] > SUPPORT_TOLERANCE
        return MasterSolution(
            optimum.cost * unit, polytope.multipliers(optimum.duals), support, find_peaks(over), polytope.pairs
        )


@dataclass(frozen=True, slots=True, eq=False)
class MasterSolution:
    """A master's optimal cost in cost units, its multipliers (cost units per byte, by time step), flags of the
    strategies in its support, the time steps that it overloads without a capacity row, and its number of pairs."""

    cost: float
    multipliers: dict[int, float]
    support: Mask
    violated_steps: list[int]
    pairs: int


class ColumnGeneration:
    """The loop's state between steps: flags of the last master's support (flat, in the numbering of the solve's
    problem) and the time steps with capacity rows. multipliers: the best ones without cuts. can_gain: whether masters
    and messages may still gain. postponed: the problem of the last MIP, which waits for solve_postponed() if the
    caller postpones MIPs; else they are parts of the steps."""

    def __init__(self, state: SolveState, relaxation: Relaxation, seed: int, *, postpones: bool = False) -> None:
        self._state, self._relaxation, self._seed, self._postpones = state, relaxation, seed, postpones
        self.postponed: Restriction | None = None
        self._pairs = PAIRS_PER_EDGE * relaxation.model.arrays.source.size
        self._support = np.zeros(state.problem.arrays.cost.size, bool)
        self._time_steps = list(relaxation.multipliers)
        self._best, self._best_multipliers = relaxation.bound, relaxation.multipliers
        self.multipliers = relaxation.multipliers
        self._last_cost, self._last_settled_cost = np.inf, -np.inf
        self._masters = self._idle = 0

    @property
    def can_gain(self) -> bool:
        return self._masters < MAX_MASTERS and self._idle < PATIENCE

    def run(self, fewest_pairs: int = 0) -> Relaxation:
        """Take steps until they do not gain or at most so many pairs are left; return the relaxation, possibly of a
        smaller problem with cuts, at the best multipliers."""
        while self.can_gain and self._relaxation.model.arrays.pairs > fewest_pairs and not self._state.is_exhausted:
            self._relaxation = self.step(self._relaxation)
        self._return_to_best()
        return self._relaxation

    def step(self, relaxation: Relaxation) -> Relaxation:
        """Solve a master LP, pass messages at its multipliers and, once both have settled, look for an assignment.

        relaxation: that of the last step, or one with fewer strategies or more cuts. Returns the one to go on with; of
        the last step it has the best multipliers.
        """
        state, self._relaxation = self._state, relaxation
        self._masters += 1
        with state.operator("column generation", relaxation.model.arrays.pairs):
            optimum = self._solve_master()
            if optimum is None or state.is_exhausted:
                self._idle = PATIENCE
            else:
                self._take_in(optimum)
        if not self.can_gain or state.is_exhausted:
            self._return_to_best()
        return self._relaxation

    def _return_to_best(self) -> None:
        self._relaxation.set_multipliers(self._best_multipliers)
        self._relaxation.bound = self._best

    def support(self, relaxation: Relaxation) -> Mask:
        """Return flags of the last master's support, in the relaxation's numbering."""
        return self._support[relaxation.model.restriction.flat_strategies]

    def _take_in(self, optimum: MasterSolution) -> None:
        state, best = self._state, self._best
        cost = state.cost or state.largest_cost
        min_gain, moved = MIN_GAIN * (cost - best), abs(self._last_cost - optimum.cost)
        self._relaxation.set_multipliers(optimum.multipliers)
        self._relaxation.pass_messages(ROUNDS, STALL * state.target_gap)
        if self._relaxation.bound > best and not self._relaxation.has_cuts:
            self.multipliers = optimum.multipliers
        if moved <= min_gain or optimum.cost - best <= state.target_gap / 2 * cost:
            self._improve_incumbent(optimum.cost)
        bound = self._relaxation.bound
        # Postponed MIPs do not wait for gains of steps, nor do steps go on for what others find meanwhile.
        cheaper = 0 if self._postpones else cost - (state.cost or cost)
        gained = max(bound - best, moved, cheaper)
        self._last_cost, self._idle = optimum.cost, 0 if gained > min_gain else self._idle + 1
        if bound > best:
            self._best, self._best_multipliers = bound, self._relaxation.multipliers

    def _solve_master(self) -> MasterSolution | None:
        """Solve the master LP of the strategies that look cheapest at the current multipliers."""
        state, relaxation, model = self._state, self._relaxation, self._relaxation.model
        min_marginals = relaxation.min_marginals()
        near, _ = relaxation.nearest(self._pairs // 2)
        known = self.support(relaxation) | near | relaxation.incumbent_flags()
        self._flags = select_promising(model.arrays, min_marginals, known, pairs=self._pairs)
        cost, timed = state.cost or state.largest_cost, state.seconds_left is not None
        restriction = model.restriction.restricted_to(self._flags)
        optimum = state.run_in_worker(MasterLp(restriction.problem, self._time_steps, cost, timed))
        if optimum is None and timed:
            state.mark_irreproducible()
        if optimum is not None:
            state.charge(PAIR_WORK * (1000 + optimum.pairs))
            self._time_steps += optimum.violated_steps
            self._support[:] = False
            self._support[model.restriction.flat_strategies[self._flags]] = optimum.support
        return optimum

    def _improve_incumbent(self, cost: float) -> None:
        """Look for an assignment near the master's cost: solve the MIP of its support and, if that is not near enough,
        either separate cuts or solve the MIP of all the master's strategies.

        Cuts are separated while they raise the master's cost and messages prove nearly all of it.
        """
        gained, self._last_settled_cost = cost - self._last_settled_cost, cost
        if gained == np.inf or gained <= MIN_GAIN * self._open_gap:
            self._postpone(self.support(self._relaxation))
        if not self._is_gap_reached(cost):
            if gained > MIN_GAIN * self._open_gap and self._is_bound_close(cost):
                with self._state.operator("cuts", self._relaxation.model.arrays.pairs):
                    self._relaxation, _ = separate_cuts(
                        self._state, self._relaxation, self._flags, time_steps=self._time_steps
                    )
                self._time_steps = list(dict.fromkeys([*self._time_steps, *self._relaxation.multipliers]))
            else:
                self._postpone(self._flags)
                self._last_settled_cost = -np.inf
                self._pairs = max(self._pairs, min(2 * self._pairs, MAX_MASTER_PAIRS))
        self._drop_columns()

    @property
    def _open_gap(self) -> int:
        """The incumbent's cost less the relaxation's bound, in cost units."""
        return (self._state.cost or self._state.largest_cost) - self._relaxation.bound

    def _is_bound_close(self, cost: float) -> bool:
        """Return whether messages, after many more rounds, prove nearly the master's cost."""
        self._relaxation.pass_messages(LONG_ROUNDS, LONG_STALL * self._open_gap / max(self._relaxation.bound, 1))
        return cost - self._relaxation.bound <= CLOSE_SHARE * self._open_gap

    def _is_gap_reached(self, cost: float) -> bool:
        """Return whether the incumbent is within half the target gap of the master's cost (or time is up)."""
        state = self._state
        return state.is_exhausted or (state.cost is not None and state.cost - cost <= state.target_gap / 2 * cost)

    def _postpone(self, flags: Mask) -> None:
        """Leave the MIP of these strategies and the incumbent's to the caller, or solve it."""
        relaxation = self._relaxation
        self.postponed = relaxation.model.restriction.restricted_to(flags | relaxation.incumbent_flags())
        if not self._postpones:
            self.solve_postponed()

    def solve_postponed(self, meanwhile: Meanwhile | None = None) -> None:
        """Solve the MIP that has been postponed, if any, and submit its assignment. Where that closes much of the open
        gap, gains that were too small to count may count now."""
        restriction, self.postponed, before = self.postponed, None, self._open_gap
        if restriction is None:
            return
        with self._state.operator("MIP of columns", restriction.problem.arrays.pairs):
            solve_restricted_mip(
                self._state,
                restriction,
                self._time_steps,
                share=MIP_TIME_SHARE / 2 if self._postpones else MIP_TIME_SHARE,
                nodes=MIP_NODES,
                gap=self._state.target_gap / 4,
                seed=self._seed,
                meanwhile=meanwhile,
            )
        if self._open_gap < (1 - MIN_GAIN) * before:
            self._idle = 0

    def _drop_columns(self) -> None:
        """Exclude strategies by their reduced costs, and continue on a smaller problem where that pays."""
        self._relaxation.pass_messages(1, 0.0)
        if not self._relaxation.is_done and self._relaxation.is_sparse:
            self._relaxation = self._relaxation.compacted()
