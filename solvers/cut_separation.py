"""The separation loop: capacity rows and MIR cuts for linear programs whose bound is weak because it packs fractions.

The linear program of the strategies that a good assignment may take is solved repeatedly. What its optimum violates is
added: capacity rows first and, where those hold, MIR cuts of them (solvers/mir_cuts.py). The duals of the rows are
Lagrange multipliers, and those of its classes are messages (solvers/mip.py). Message passing from there, over all
strategies and in integers, proves a bound: a pass takes the place of the correction of A. Neumaier and O. Shcherbina,
"Safe bounds in linear and mixed-integer linear programming", 2004. So
the proof depends neither on the strategies of the linear program nor on its floating-point arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solvers.mip import LocalPolytope
from solvers.mir_cuts import MirCut, expected_usage, price_usage, separate_mir, with_cuts
from solvers.problem import Problem
from solvers.relaxation import Relaxation
from solvers.restriction import Restriction
from solvers.solve_state import SolveState

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

# Most rounds; most cuts and most capacity rows added per round.
MAX_ROUNDS, CUTS_PER_ROUND, STEPS_PER_ROUND = 40, 40, 16
# A round gains if the LP's cost rises by MIN_GAIN of the gap to a good cost, or of FAR_SHARE of the LP's cost if that
# is less; the loop ends after PATIENCE rounds without gain.
MIN_GAIN, FAR_SHARE, PATIENCE = 0.02, 0.02, 4
# Message rounds at the final multipliers, and the gain per round, as a share of the bound, that ends them.
PASS_ROUNDS, STALL = 200, 1e-7
# A row is violated beyond this share of the limit; units of work per pair in one LP.
TOLERANCE, PAIR_WORK = 1e-7, 2e4
# The least fraction of a strategy that counts.
FRACTION = 1e-6
# Seconds of wall clock for one LP.
LP_SECONDS = 20.0


def separate_cuts(
    state: SolveState,
    relaxation: Relaxation,
    flags: Mask,
    *,
    time_steps: Sequence[int],
    rounds: int = MAX_ROUNDS,
    probes: int = 0,
) -> tuple[Relaxation, SeparatedCuts | None]:
    """Return the relaxation with the cuts that the LP of the flagged strategies (flat) finds, after passing messages at
    that LP's multipliers, and what the loop returned. Where the LP has no optimum or the worker was killed, they are
    the relaxation itself and None.

    time_steps: the first capacity rows of the LP. rounds: most rounds of the loop. probes: as in SeparationTask.
    """
    own = relaxation.model.restriction.problem
    restriction = Restriction.identity(own).restricted_to(flags).problem
    cost, timed = state.cost or state.largest_cost, state.seconds_left is not None
    first_cut = state.problem.arrays.time_steps
    task = SeparationTask(restriction, first_cut, time_steps, cost, state.target_gap, timed, rounds, probes)
    cuts = state.run_in_worker(task)
    state.charge(0.0 if cuts is None else cuts.work)
    if cuts is None or not cuts.point.size:
        return relaxation, None
    # The cuts' bases hold for every strategy of a node, so they can be computed again for all strategies.
    stronger, cut_steps = with_cuts(own, list(cuts.cuts))
    of_cuts = {t: multiplier for t, multiplier in zip(cut_steps, cuts.cuts.values(), strict=True) if t >= 0}
    tightened = relaxation.with_rows(stronger, cuts.multipliers | of_cuts)
    if not (relaxation.allowed & ~flags).any():
        tightened.set_messages(flags, cuts.messages)
    tightened.pass_messages(PASS_ROUNDS, STALL)
    return tightened, cuts


@dataclass(frozen=True, slots=True, eq=False)
class SeparationTask:
    """A problem to separate cuts for; calling it runs the loop, in this or another process.

    original_steps: how many of its time steps are capacity rows, not cuts; only these are rounded. time_steps: the
    first capacity rows. cost: that of a good assignment. gap: the relative target gap. has_clock: whether LPs have a
    time limit. rounds: most rounds. probes: how many ways to branch are compared by their LPs' bounds (0: none).
    """

    problem: Problem
    original_steps: int
    time_steps: Sequence[int]
    cost: int
    gap: float
    has_clock: bool
    rounds: int
    probes: int = 0

    def __call__(self) -> SeparatedCuts:
        """Solve and cut until nothing is violated or the LP's cost stops rising."""
        loop, idle, work = SeparationLoop(self), 0, 0.0
        loop.add_capacity_rows(self.time_steps)
        for _ in range(self.rounds):
            before = loop.cost
            any_violated = loop.run_round()
            work += PAIR_WORK * loop.pairs
            left = self.cost - loop.cost
            gained = loop.cost - before >= MIN_GAIN * min(left, FAR_SHARE * loop.cost)
            idle = 0 if gained or not loop.has_all_rows else idle + 1
            if not any_violated or idle >= PATIENCE or left <= self.gap * loop.cost:
                break
        split = None
        if self.probes and loop.point.size and loop.cost < self.cost:
            split = loop.find_split(self.probes)
            work += PAIR_WORK * loop.pairs * (1 + 2 * self.probes)
        return SeparatedCuts(*loop.cuts(), loop.messages, loop.point, work, split)


@dataclass(frozen=True, slots=True, eq=False)
class SeparatedCuts:
    """The binding cuts with their multipliers, the multipliers of the problem's own time steps (both in cost units per
    byte), the LP's duals as messages, its values of the strategies (flat; empty: it was not solved), the units of work
    done, and the best way found to branch: a node, and flags of those of its strategies to keep in one branch."""

    cuts: dict[MirCut, float]
    multipliers: dict[int, float]
    messages: Floats
    point: Floats
    work: float
    split: tuple[int, Mask] | None = None


class SeparationLoop:
    """A linear program and the capacity rows and cuts added to it so far.

    cost: the LP's optimum in cost units. point: its values of the strategies (flat; empty before it). messages: its
    duals as messages. has_all_rows: the optimum satisfies every capacity row.
    """

    def __init__(self, task: SeparationTask) -> None:
        self._problem, self._original_steps = task.problem, task.original_steps
        self._target = task.cost
        self._unit, self._seconds = max(task.cost / 1e6, 1e-6), LP_SECONDS if task.has_clock else None
        self._polytope = LocalPolytope(task.problem, self._unit)
        self._lp, self._first = self._polytope.to_lp(), task.problem.arrays.time_steps
        self._cuts, self._multipliers = list[MirCut](), dict[int, float]()
        self.has_all_rows, self.messages = False, np.zeros(0)
        self.cost, self.pairs, self.point = 0.0, self._polytope.pairs, np.zeros(0)

    def add_capacity_rows(self, time_steps: Iterable[int]) -> None:
        """Add the capacity rows of these time steps before the first round."""
        self._polytope.add_capacity_rows(time_steps)

    def run_round(self) -> bool:
        """Solve, and add the rows and cuts that the optimum violates; return whether there were any."""
        optimum = self._lp.solve(self._seconds)
        if optimum is None:
            return False
        self._multipliers, self.cost = self._polytope.multipliers(optimum.duals), optimum.cost * self._unit
        self.messages = self._polytope.messages(optimum.duals)
        self.point = optimum.values[: self._problem.arrays.cost.size]
        self.has_all_rows = self._problem.limit is None or not self._add_capacity_rows(self.point)
        return self._problem.limit is not None and (not self.has_all_rows or self._add_mir_cuts(self.point))

    def find_split(self, probes: int) -> tuple[int, Mask] | None:
        """Return the best way to branch: of the `probes` nodes whose fractions differ most in what their usage costs,
        the one whose two branches raise the LP's bound most (product rule; T. Achterberg, T. Koch and A. Martin,
        "Branching rules revisited", 2005). One branch has the strategies that use less than the fractions do on
        average, the other one the others."""
        arrays, point = self._problem.arrays, self.point
        first, price = arrays.node_start[:-1], price_usage(arrays, self._multipliers)
        mean = np.add.reduceat(point * price, first)
        spread = np.add.reduceat(point * np.abs(price - mean[arrays.node_of]), first)
        # Without prices the fractions themselves decide.
        fraction = 1 - np.maximum.reduceat(point, first)
        spread = np.where(fraction > FRACTION, spread + FRACTION * fraction, 0.0)
        nodes = np.argsort(-spread, kind="stable")[:probes]
        least = self._lp.bound_without(np.zeros(0, np.int64))
        most, best, split = self._target / self._unit - least, 0.0, None
        for node in nodes[spread[nodes] > 0].tolist():
            columns = np.arange(*arrays.node_start[node : node + 2])
            kept = price[columns] <= mean[node]
            kept = point[columns] == point[columns].max() if kept.all() else kept
            gains = [min(self._lp.bound_without(columns[part]) - least, most) for part in (kept, ~kept)]
            score = max(gains[0], FRACTION * most) * max(gains[1], FRACTION * most)
            if score > best:
                best, split = score, (node, kept)
        return split

    def cuts(self) -> tuple[dict[MirCut, float], dict[int, float]]:
        """Return the cuts with a positive multiplier, and the multipliers of the time steps that are not cuts of this
        loop."""
        own = {t: multiplier for t, multiplier in self._multipliers.items() if t < self._first}
        of_cuts = {t - self._first: multiplier for t, multiplier in self._multipliers.items() if t >= self._first}
        return {self._cuts[k]: multiplier for k, multiplier in of_cuts.items()}, own

    def _add_capacity_rows(self, point: Floats) -> bool:
        limit = self._problem.limit or 0
        over = expected_usage(self._problem.arrays, point) - limit * (1 + TOLERANCE)
        over[self._polytope.time_steps] = 0
        worst = np.argsort(-over, kind="stable")[:STEPS_PER_ROUND]
        new = worst[over[worst] > 0].tolist()
        self._polytope.add_capacity_rows(new)
        return bool(new)

    def _add_mir_cuts(self, point: Floats) -> bool:
        time_steps = self._problem.arrays.time_steps
        cuts = separate_mir(self._problem, point, CUTS_PER_ROUND, time_steps=self._original_steps)
        self._problem, cut_steps = with_cuts(self._problem, cuts)
        self._cuts += [cut for cut, time_step in zip(cuts, cut_steps, strict=True) if time_step >= 0]
        self._polytope.set_problem(self._problem)
        self._polytope.add_capacity_rows(range(time_steps, self._problem.arrays.time_steps))
        return self._problem.arrays.time_steps > time_steps
