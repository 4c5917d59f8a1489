"""Column generation: a linear program of few strategies gives prices, messages over all of them say which it lacks.

Whole choices teach slowly what many equal layers may do (solvers/kelley_dual.py): each is one plane, though its layers
could be combined in any way. The linear program of their strategies combines them: the local polytope, limited at the
moments that its optimum overfills. The slopes of those rows are prices. Messages at these prices bound the cost in
integers, over all strategies; and what they find cheapest joins (Dantzig and Wolfe, "Decomposition principle for linear
programs", 1960, with messages for the subproblem): strategies of least marginal, and the choices nearest to the bound.
What the last optimum takes stays.

Where program and messages meet, few nodes take parts of several strategies. The mixed-integer program of what the
optimum takes is small then, and its answer near to the bound. Where it is not, though messages prove nearly what the
program costs, the program itself is too weak: it packs parts of strategies under the limit. Limits that the limit
implies (solvers/cut_separation.py) become further moments then, which program and messages keep from there on;
strategies that evade them join as any others do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solvers.cut_separation import select_promising, separate_cuts
from solvers.mip import LocalPolytope, find_peaks
from solvers.problem import Problem
from solvers.relaxation import Relaxation
from solvers.restricted_mip import solve_restricted_mip
from solvers.solve_state import SolveState

Mask = NDArray[np.bool_]

# Programs at most; pairs of one, for each edge of the problem; rounds of messages at its prices.
MAX_MASTERS, PAIRS_PER_EDGE, ROUNDS = 30, 4, 32
# A change of less than this share of the gap is none, and so many programs without one end it.
MIN_GAIN, PATIENCE = 0.02, 3
# Where messages bound all but this share of the gap of what the program costs, the rest is left to cuts; that is asked
# after so many more rounds, which end where one gains less than this share of the gap.
CLOSE_SHARE, LONG_ROUNDS, LONG_STALL = 0.25, 200, 1e-3
# A round of messages that gains less than this share of the gap asked for ends them.
STALL = 1e-3
# A program with integers: the share of the clock's time left that it is given, its nodes.
MIP_TIME_SHARE, MIP_NODES = 0.5, 20
# More than this of a strategy is some; what breaks a limit by this share of it breaks it.
SUPPORT_TOLERANCE, TOLERANCE = 1e-6, 1e-7
# Work of a pair in one program; seconds of wall clock of one.
PAIR_WORK, MASTER_SECONDS = 6e4, 20.0


@dataclass(frozen=True, slots=True, eq=False)
class MasterLp:
    """A problem's linear program, limited at these moments: a call of it may be sent to another process.

    cost: what a good choice costs; timed: whether a clock may end it.
    """

    problem: Problem
    time_steps: Sequence[int]
    cost: int
    has_clock: bool

    def __call__(self) -> MasterSolution | None:
        """The optimum, if there is one and it is found in time."""
        unit, limit = max(self.cost / 1e6, 1e-6), self.problem.limit or 0
        polytope = LocalPolytope(self.problem, unit)
        polytope.add_capacity_rows(self.time_steps)
        vertex = polytope.to_lp().solve(MASTER_SECONDS if self.has_clock else None)
        if vertex is None:
            return None
        over = np.floor(polytope.usage(vertex.values) - limit * (1 + TOLERANCE)).astype(np.int64)
        over[list(self.time_steps)] = 0
        taken = vertex.values[: self.problem.arrays.cost.size] > SUPPORT_TOLERANCE
        return MasterSolution(
            vertex.cost * unit, polytope.multipliers(vertex.duals), taken, find_peaks(over), polytope.pairs
        )


@dataclass(frozen=True, slots=True, eq=False)
class MasterSolution:
    """Of a linear program: its cost, prices, flags of the strategies it takes some of, moments it overfills, pairs."""

    cost: float
    multipliers: dict[int, float]
    support: Mask
    violated_steps: list[int]
    pairs: int


class ColumnGeneration:
    """The strategies in play: those of the last program (flat flags of the relaxation's), those its optimum took."""

    def __init__(self, state: SolveState, relaxation: Relaxation, seed: int) -> None:
        self._state, self._relaxation, self._seed = state, relaxation, seed
        self._pairs = PAIRS_PER_EDGE * relaxation.model.arrays.source.size
        self._flags = self._support = np.zeros(relaxation.allowed.size, bool)
        self._time_steps = list(relaxation.multipliers)
        self._last_settled_cost = -np.inf

    def run(self) -> tuple[Relaxation, dict[int, float]]:
        """Programs and messages in turn until neither gains; the relaxation (or what is left of it) at the best
        prices, and the best prices without cuts."""
        state, best, best_prices = self._state, self._relaxation.bound, self._relaxation.multipliers
        uncut = best_prices
        last, idle = np.inf, 0
        for _ in range(MAX_MASTERS):
            optimum = self._solve_master()
            if optimum is None or state.is_exhausted:
                break
            cost = state.cost or state.largest_cost
            some, moved = MIN_GAIN * (cost - best), abs(last - optimum.cost)
            self._pass_messages(optimum.multipliers)
            if self._relaxation.bound > best and not self._relaxation.has_cuts:
                uncut = optimum.multipliers
            if moved <= some or optimum.cost - best <= state.target_gap / 2 * cost:
                self._improve_incumbent(optimum.cost)
            bound = self._relaxation.bound
            gained = max(bound - best, moved, cost - (state.cost or cost))
            last, idle = optimum.cost, 0 if gained > some else idle + 1
            if bound > best:
                best, best_prices = bound, self._relaxation.multipliers
            if state.is_exhausted or idle >= PATIENCE:
                break
        self._relaxation.set_multipliers(best_prices)
        self._relaxation.bound = best
        return self._relaxation, uncut

    def _pass_messages(self, multipliers: dict[int, float]) -> None:
        """Messages at these prices."""
        self._relaxation.set_multipliers(multipliers)
        self._relaxation.pass_messages(ROUNDS, STALL * self._state.target_gap)

    def _solve_master(self) -> MasterSolution | None:
        """Of the program of what seems cheapest at the present prices."""
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
        """Choose among what the optimum takes. If that is not near enough, cut, as often as that gains and where
        messages bound nearly what the program costs; else choose among all that it might take."""
        gained, self._last_settled_cost = cost - self._last_settled_cost, cost
        if gained == np.inf or gained <= MIN_GAIN * self._open_gap:
            self._solve_mip(self._support)
        if not self._is_gap_reached(cost):
            if gained > MIN_GAIN * self._open_gap and self._is_bound_close(cost):
                self._relaxation = separate_cuts(
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
        """What is not proven of the best choice's cost."""
        return (self._state.cost or self._state.largest_cost) - self._relaxation.bound

    def _is_bound_close(self, cost: float) -> bool:
        """Do messages, given time, bound nearly what the program costs?"""
        self._relaxation.pass_messages(LONG_ROUNDS, LONG_STALL * self._open_gap / max(self._relaxation.bound, 1))
        return cost - self._relaxation.bound <= CLOSE_SHARE * self._open_gap

    def _is_gap_reached(self, cost: float) -> bool:
        """Is the best choice known as near to the program's cost as is asked?"""
        state = self._state
        return state.is_exhausted or (state.cost is not None and state.cost - cost <= state.target_gap / 2 * cost)

    def _solve_mip(self, flags: Mask) -> None:
        """Offer the best choice among these strategies and those of the best one known."""
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
        """Go on without what the best choice excludes."""
        self._relaxation.pass_messages(1, 0.0)
        if not self._relaxation.is_done and self._relaxation.is_sparse:
            self._support = self._support[self._relaxation.allowed]
            self._relaxation = self._relaxation.compacted()
