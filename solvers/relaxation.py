"""The Lagrangian relaxation of a problem under message passing, with fixing by reduced costs.

A pass leaves at strategy x of node i a reduced cost r(x) >= 0, which it has not given to an edge: an assignment with x
costs at least the constant plus r(x). Where that reaches the upper cutoff (the best cost known less the target gap), x
is excluded. Every assignment that is lost in this way costs at least the cutoff, so bounds below the cutoff stay valid.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from solvers.evaluation import find_peaks, lagrangian_value, usage_profile
from solvers.oriented_graph import OrientedGraph
from solvers.potentials import FixedPoint, LagrangianCosts, Potentials
from solvers.problem import Problem
from solvers.restriction import Restriction, select_promising
from solvers.solution import DualWarmStart
from solvers.solve_state import SolveState, pass_work
from solvers.trws import TrwsMessages

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]
Values = NDArray[np.float64]
Multipliers = Mapping[int, float]

# Where less than this share of the strategies is left, building a problem of only those pays.
SPARSE_SHARE = 0.7


class RelaxedModel:
    """What the relaxations of one (restricted) problem share: its graph, its Lagrangian costs and the solve's state."""

    def __init__(
        self, state: SolveState, restricted: Restriction, scale: FixedPoint, watched: Integers | None = None
    ) -> None:
        """watched: what the problem's time steps are called in multipliers, ascending (None: as in the problem)."""
        self.state, self.restriction, self.watched = state, restricted, watched
        self.arrays = restricted.problem.arrays
        self.graph = OrientedGraph.of(self.arrays)
        self.lagrangian = LagrangianCosts(self.graph, scale, watched=watched)
        self.work = pass_work(self.arrays)

    def with_rows(self, problem: Problem, watched: Integers | None) -> RelaxedModel:
        """Return the model of this problem with other capacity rows. It shares graph and scaled costs with this one: a
        proof tree holds thousands of models."""
        other = copy(self)
        other.restriction = replace(self.restriction, problem=problem)
        other.arrays, other.watched = problem.arrays, watched
        other.lagrangian = self.lagrangian.with_rows(problem.arrays, watched)
        return other

    def potentials(self, multipliers: Multipliers) -> Potentials:
        """Return the problem's costs plus its usage at these multipliers."""
        return self.lagrangian.with_multipliers(multipliers, self.restriction.problem.limit or 0)


class Relaxation:
    """Multipliers, messages, the strategies still allowed (flat flags) and the bound at these multipliers.

    is_exact: strategies were excluded by proof only, not by branching, so the bound holds for the whole problem.
    """

    def __init__(
        self, model: RelaxedModel, multipliers: Multipliers, messages: TrwsMessages, allowed: Mask, whole: bool = True
    ) -> None:
        self.model, self.messages, self.allowed, self.is_exact = model, messages, allowed, whole
        self._lagrangian_potentials: Potentials | None
        self.multipliers, self._lagrangian_potentials = dict(multipliers), None
        self.bound = 0

    @property
    def lagrangian_potentials(self) -> Potentials:
        """The potentials at the multipliers. They are built on first use: many relaxations are only restricted
        further."""
        if self._lagrangian_potentials is None:
            self._lagrangian_potentials = self.model.potentials(self.multipliers)
        return self._lagrangian_potentials

    def free_potentials(self) -> None:
        """Free the potentials, which are most of a relaxation's memory, until they are needed again."""
        self._lagrangian_potentials = None

    @staticmethod
    def for_problem(state: SolveState, scale: FixedPoint, start: DualWarmStart | None = None) -> Relaxation:
        """Build the relaxation of a solve's whole problem, from a warm start or with all dual values zero."""
        every = np.ones(int(state.problem.arrays.node_start[-1]), bool)
        model = RelaxedModel(state, Restriction.identity(state.problem), scale)
        if start is None:
            return Relaxation(model, {}, TrwsMessages(model.graph), every)
        values = (start.messages * scale.factor).clip(-scale.cap, scale.cap).astype(np.int64)
        return Relaxation(model, start.multipliers, TrwsMessages(model.graph, values), every)

    def set_multipliers(self, multipliers: Multipliers) -> None:
        """Move to other multipliers (cost units per byte, by time step). Messages are kept; the bound restarts at 0."""
        self.multipliers, self._lagrangian_potentials = dict(multipliers), None
        self.bound = 0

    def copy(self) -> Relaxation:
        """Return an independent copy, without building the potentials again."""
        other = object.__new__(Relaxation)
        other.model, other.is_exact = self.model, self.is_exact
        other.multipliers, other._lagrangian_potentials = self.multipliers, self._lagrangian_potentials
        other.messages, other.allowed, other.bound = self.messages.copy(), self.allowed.copy(), self.bound
        return other

    def counts(self) -> Integers:
        """Return how many strategies each node has left."""
        return np.add.reduceat(self.allowed, self.model.arrays.node_start[:-1], dtype=np.int64)

    def nearest(self, pairs: int) -> tuple[Mask, bool]:
        """Return flags of the strategies of the best elites by Lagrangian value, and whether all elites are included.

        Elites are added as long as the edges with a choice at both ends have at most `pairs` pairs in all. Where no
        elite is possible here, what is left of them is flagged, and what else is promising.
        """
        arrays = self.model.arrays
        flags, complete = np.zeros(self.allowed.size, bool), True
        for assignment, _ in self.possible_elites():
            more = flags.copy()
            more[arrays.node_start[:-1] + assignment] = True
            counts = np.add.reduceat(more, arrays.node_start[:-1], dtype=np.int64)
            sources, targets = counts[arrays.source], counts[arrays.target]
            # The first elite is always taken, so that the restricted problem has an assignment at all.
            if (sources * targets)[(sources > 1) & (targets > 1)].sum() <= pairs or not flags.any():
                flags = more
            else:
                complete = False
        if flags.any():
            return flags, complete
        for key in self.model.state.elites:
            flags |= self.allowed & self.model.restriction.flags_of(np.frombuffer(key, np.int64))
        flags = select_promising(arrays, self._allowed_min_marginals(), flags, pairs=pairs)
        return flags, bool(flags[self.allowed].all())

    def incumbent_flags(self) -> Mask:
        """Return flags of the incumbent's strategies that are left here; none where there is no incumbent."""
        incumbent = self.model.state.assignment
        return np.zeros(self.allowed.size, bool) if incumbent is None else self.model.restriction.flags_of(incumbent)

    def possible_elites(self, most: int | None = None) -> list[tuple[Integers, int]]:
        """Return the elites that are possible here with their costs, by ascending Lagrangian value; `most` at most."""
        elites, crush = self.model.state.elites, self.model.restriction.crush
        crushed = ((crush(np.frombuffer(key, np.int64)), cost, key) for key, cost in elites.items())
        possible = [(assignment, cost, key) for assignment, cost, key in crushed if assignment is not None]
        problem, multipliers = self.model.restriction.problem, self.multipliers
        # The key, an elite's bytes, breaks ties, so that the order does not depend on the order of discovery.
        ranked = sorted(
            (lagrangian_value(problem, assignment, cost, multipliers=multipliers), key, assignment, cost)
            for assignment, cost, key in possible
        )
        return [(assignment, cost) for _, _, assignment, cost in ranked[:most]]

    def peaks_of_elites(self, most: int) -> list[int]:
        """Return the time steps at which the `most` elites nearest to the bound peak above the limit, the highest of
        each first."""
        problem, limit = self.model.restriction.problem, self.model.restriction.problem.limit
        if limit is None:
            return []
        peaks = [find_peaks(usage_profile(problem, elite) - limit) for elite, _ in self.possible_elites(most)]
        return list(dict.fromkeys(step for ranked in zip_longest(*peaks) for step in ranked if step is not None))

    @property
    def is_done(self) -> bool:
        """Whether no assignment below the upper cutoff is left here."""
        return self.bound >= self.model.state.upper_cutoff or bool((self.counts() == 0).any())

    @property
    def is_sparse(self) -> bool:
        """Whether so few strategies are left that building a smaller problem pays."""
        return bool(np.count_nonzero(self.allowed) < SPARSE_SHARE * self.allowed.size)

    def pass_until_stalled(self, rounds: int, stall: float) -> tuple[Relaxation, Integers | None]:
        """Pass messages, moving to a smaller problem whenever few strategies are left.

        Returns the relaxation that then stands for this one, and the last assignment decoded (None where it is done).
        """
        relaxation, assignment = self, self.pass_messages(rounds, stall, while_dense=True)
        while assignment is not None and relaxation.is_sparse and not self.model.state.is_exhausted:
            relaxation.free_potentials()
            relaxation = relaxation.compacted()
            assignment = relaxation.pass_messages(rounds, stall, while_dense=True)
        return relaxation, assignment

    def pass_messages(
        self, rounds: int, stall: float, decode_every: int = 4, *, while_dense: bool = False
    ) -> Integers | None:
        """Pass messages for at most `rounds` rounds, or until a round gains less than `stall` times the bound.

        Every `decode_every` rounds an assignment is decoded and submitted to the state. while_dense: also stop once the
        relaxation is sparse. Returns the last assignment decoded, or None where the relaxation is done.
        """
        state, assignment = self.model.state, None
        history: list[int] = [self.bound]
        for step in range(rounds):
            potentials = self.mask(self.lagrangian_potentials)
            # Every second round shares out only half: reduced costs are then large enough to exclude more strategies.
            self.bound = max(self.bound, self.sweep(potentials, 1 + step % 2))
            last = step == rounds - 1 or (while_dense and self.is_sparse)
            if step % decode_every == decode_every - 1 or last:
                history.append(self.bound)
                last = last or (len(history) > 3 and history[-1] - history[-3] <= 2 * decode_every * stall * self.bound)
                assignment = self._decode(potentials)
            if self.is_done:
                self._raise_bound()
                return None
            if last or state.is_exhausted:
                break
        self._raise_bound()
        return assignment if assignment is not None else self._decode(self.mask(self.lagrangian_potentials))

    def mask(self, potentials: Potentials) -> Potentials:
        """Return the potentials with the strategies that are not allowed forbidden."""
        if self.allowed.all():
            return potentials
        return potentials.shifted(np.where(self.allowed, 0, potentials.scale.forbidden))

    def sweep(self, potentials: Potentials, split: int = 1) -> int:
        """Pass messages once in both directions, exclude strategies, and return the bound, up to the upper cutoff.

        split: as in TrwsMessages.sweep.
        """
        bound = max(self._pass_once(potentials, forward, split) for forward in (True, False))
        return min(bound, self.model.state.upper_cutoff)

    def _pass_once(self, potentials: Potentials, forward: bool, split: int) -> int:
        state = self.model.state
        scaled = self.messages.sweep(potentials, forward, split)
        state.charge(self.model.work)
        # Costs are integers: a strategy may stay only if an assignment of cost upper_cutoff - 1 can contain it. The
        # clamp keeps the threshold an int64; with -1 everything goes.
        room = (state.upper_cutoff - 1) * potentials.scale.factor + potentials.constant - scaled
        self.allowed &= self.messages.reduced_costs <= min(max(room, -1), 1 << 62)
        return potentials.bound(scaled)

    def _decode(self, potentials: Potentials) -> Integers:
        state, postsolve = self.model.state, self.model.restriction.postsolve
        assignment = self.messages.decode(potentials)
        state.submit(postsolve(assignment))
        improved = self.messages.run_icm(potentials, assignment)
        state.submit(postsolve(improved))
        return improved

    def _raise_bound(self) -> None:
        if self.is_exact:
            state = self.model.state
            state.raise_lower_bound(state.upper_cutoff if self.is_done else min(self.bound, state.upper_cutoff))

    def compacted(self, allowed: Mask | None = None) -> Relaxation:
        """Return the relaxation of a smaller problem that has only these strategies (None: those still allowed)."""
        allowed = self.allowed if allowed is None else allowed
        model = self.model
        restricted = model.restriction.restricted_to(allowed)
        smaller = RelaxedModel(model.state, restricted, model.lagrangian.scale, model.watched)
        values = model.restriction.select_at_ends(allowed, self.messages.values)
        still_allowed = self.allowed[allowed]
        messages = TrwsMessages(smaller.graph, values)
        relaxation = Relaxation(smaller, self.multipliers, messages, still_allowed, self.is_exact)
        relaxation.bound = self.bound
        return relaxation

    def with_rows(self, problem: Problem, multipliers: Multipliers, watched: Integers | None = None) -> Relaxation:
        """Return the relaxation of `problem`, which is this one's with other capacity rows, at other multipliers;
        watched: as in RelaxedModel."""
        model = self.model.with_rows(problem, watched)
        return Relaxation(model, multipliers, self.messages, self.allowed, self.is_exact)

    def set_messages(self, flags: Mask, messages: Values) -> None:
        """Replace the messages of the flagged strategies (cost units, in the order of DualWarmStart); others stay.

        Any numbers are valid: where a linear program fails, its duals may be far off or not even numbers.
        """
        scale, values = self.model.lagrangian.scale, self.messages.values.copy()
        positions = self.model.restriction.select_at_ends(flags, np.arange(values.size))
        scaled = np.nan_to_num(messages * scale.factor).clip(-scale.forbidden, scale.forbidden)
        values[positions] = scaled.astype(np.int64)
        self.messages = TrwsMessages(self.model.graph, values)

    @property
    def has_cuts(self) -> bool:
        """Whether the problem here has more capacity rows (time steps) than the solve's."""
        return self.model.arrays.time_steps > self.model.state.problem.arrays.time_steps

    def min_marginals(self) -> Integers:
        """Pass messages once in both directions and return the min-marginal of each strategy (flat, scaled units).

        Strategies that are not allowed get the largest int64.
        """
        self.bound = max(self.bound, self.sweep(self.mask(self.lagrangian_potentials)))
        return self._allowed_min_marginals()

    def _allowed_min_marginals(self) -> Integers:
        return np.where(self.allowed, self.messages.min_marginals, np.iinfo(np.int64).max)
