"""Column generation: a master LP of few strategies gives multipliers, and messages over all strategies price columns.

Planes of whole assignments (solvers/kelley_dual.py) converge slowly when many layers are equal: each plane is one
combination of what the layers do. The master LP, the local polytope of few strategies with capacity rows at the time
steps that its optimum overloads, combines them freely. The duals of the capacity rows are Lagrange multipliers. Message
passing at these multipliers bounds the cost in integers over all strategies, and shows which strategies the master
lacks (G. B. Dantzig and P. Wolfe, "Decomposition principle for linear programs", 1960, with message passing as the
subproblem): those of least min-marginal, and those of the elites nearest to the bound. The support of the last optimum
stays.

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

from solvers.cut_separation import select_promising, separate_cuts
from solvers.evaluation import find_peaks
from solvers.mip import LocalPolytope
from solvers.problem import Problem
from solvers.relaxation import Relaxation
from solvers.restricted_mip import solve_restricted_mip
from solvers.solve_state import SolveState

Mask = NDArray[np.bool_]

# Most master LPs; pairs of a master per edge of the problem; message rounds at its multipliers.
MAX_MASTERS, PAIRS_PER_EDGE, ROUNDS = 30, 4, 32
# A change below this share of the open gap does not count as a gain; so many masters without gain end the loop.
MIN_GAIN, PATIENCE = 0.02, 3
# Cuts are separated where the messages' bound is within CLOSE_SHARE of the open gap of the master's cost. That is
# checked after LONG_ROUNDS more rounds, or once a round gains less than LONG_STALL of the open gap.
CLOSE_SHARE, LONG_ROUNDS, LONG_STALL = 0.25, 200, 1e-3
# Messages stop where a round gains less than this share of the target gap.
STALL = 1e-3
# A MIP's share of the time left, and its branch-and-bound nodes.
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
    """The loop's state: flags (flat, in the relaxation's numbering) of the last master's strategies and of its support,
    the time steps with capacity rows, and the relaxation."""

    def __init__(self, state: SolveState, relaxation: Relaxation, seed: int) -> None:
        self._state, self._relaxation, self._seed = state, relaxation, seed
        self._pairs = PAIRS_PER_EDGE * relaxation.model.arrays.source.size
        self._flags = self._support = np.zeros(relaxation.allowed.size, bool)
        self._time_steps = list(relaxation.multipliers)
        self._last_settled_cost = -np.inf

    def run(self) -> tuple[Relaxation, dict[int, float]]:
        """Alternate master LPs and messages until neither gains.

        Returns the relaxation, possibly of a smaller problem with cuts, at the best multipliers, and the best
        multipliers without cuts.
        """
        state, best, best_multipliers = self._state, self._relaxation.bound, self._relaxation.multipliers
        uncut = best_multipliers
        last, idle = np.inf, 0
        for _ in range(MAX_MASTERS):
            optimum = self._solve_master()
            if optimum is None or state.is_exhausted:
                break
            cost = state.cost or state.largest_cost
            min_gain, moved = MIN_GAIN * (cost - best), abs(last - optimum.cost)
            self._pass_messages(optimum.multipliers)
            if self._relaxation.bound > best and not self._relaxation.has_cuts:
                uncut = optimum.multipliers
            if moved <= min_gain or optimum.cost - best <= state.target_gap / 2 * cost:
                self._improve_incumbent(optimum.cost)
            bound = self._relaxation.bound
            gained = max(bound - best, moved, cost - (state.cost or cost))
            last, idle = optimum.cost, 0 if gained > min_gain else idle + 1
            if bound > best:
                best, best_multipliers = bound, self._relaxation.multipliers
            if state.is_exhausted or idle >= PATIENCE:
                break
        self._relaxation.set_multipliers(best_multipliers)
        self._relaxation.bound = best
        return self._relaxation, uncut

    def _pass_messages(self, multipliers: dict[int, float]) -> None:
        """Pass messages at these multipliers."""
        self._relaxation.set_multipliers(multipliers)
        self._relaxation.pass_messages(ROUNDS, STALL * self._state.target_gap)

    def _solve_master(self) -> MasterSolution | None:
        """Solve the master LP of the strategies that look cheapest at the current multipliers."""
        state, relaxation, model = self._state, self._relaxation, self._relaxation.model
        min_marginals = relaxation.min_marginals()
        near, _ = relaxation.nearest(self._pairs // 2)
        self._flags = select_promising(
            model.arrays, min_marginals, self._support | near | relaxation.incumbent_flags(), pairs=self._pairs
        )
        cost, timed = state.cost or state.largest_cost, state.seconds_left is not None
        restriction = model.restriction.restricted_to(self._flags)
        optimum = state.run_in_worker(MasterLp(restriction.problem, self._time_steps, cost, timed))
        if optimum is None and timed:
            state.mark_irreproducible()
        if optimum is not None:
            state.charge(PAIR_WORK * (1000 + optimum.pairs))
            self._time_steps += optimum.violated_steps
            self._support = np.zeros(self._flags.size, bool)
            self._support[self._flags] = optimum.support
        return optimum

    def _improve_incumbent(self, cost: float) -> None:
        """Look for an assignment near the master's cost: solve the MIP of its support and, if that is not near enough,
        either separate cuts or solve the MIP of all the master's strategies.

        Cuts are separated while they raise the master's cost and messages prove nearly all of it.
        """
        gained, self._last_settled_cost = cost - self._last_settled_cost, cost
        if gained == np.inf or gained <= MIN_GAIN * self._open_gap:
            self._solve_mip(self._support)
        if not self._is_gap_reached(cost):
            if gained > MIN_GAIN * self._open_gap and self._is_bound_close(cost):
                self._relaxation, _ = separate_cuts(
                    self._state, self._relaxation, self._flags, time_steps=self._time_steps
                )
                self._time_steps = list(dict.fromkeys([*self._time_steps, *self._relaxation.multipliers]))
            else:
                self._solve_mip(self._flags)
                self._last_settled_cost = -np.inf
                self._pairs *= 2
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

    def _solve_mip(self, flags: Mask) -> None:
        """Solve the MIP of these strategies and the incumbent's, and submit its assignment."""
        relaxation, gap = self._relaxation, self._state.target_gap
        restriction = relaxation.model.restriction.restricted_to(flags | relaxation.incumbent_flags())
        solve_restricted_mip(
            self._state,
            restriction,
            self._time_steps,
            share=MIP_TIME_SHARE,
            nodes=MIP_NODES,
            gap=gap / 4,
            seed=self._seed,
        )

    def _drop_columns(self) -> None:
        """Exclude strategies by their reduced costs, and continue on a smaller problem where that pays."""
        self._relaxation.pass_messages(1, 0.0)
        if not self._relaxation.is_done and self._relaxation.is_sparse:
            self._support = self._support[self._relaxation.allowed]
            self._relaxation = self._relaxation.compacted()
