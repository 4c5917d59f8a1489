"""A problem under message passing: a bound that rises, and strategies that drop out with proof.

A pass leaves at strategy x of node i a remainder r(x) >= 0 that it has not given to an edge: a choice that takes x
costs at least the constant plus r(x). Where that reaches the ceiling (the best cost known less the gap
asked for), x is removed: what is removed so costs at least the ceiling, and the bound stays true up to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from solvers.evaluation import lagrangian_value
from solvers.oriented_graph import OrientedGraph
from solvers.potentials import FixedPoint, LagrangianCosts, Potentials
from solvers.problem import Problem
from solvers.restriction import Restriction
from solvers.solution import DualWarmStart
from solvers.solve_state import SolveState, pass_work
from solvers.trws import TrwsMessages

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]
Values = NDArray[np.float64]
Multipliers = Mapping[int, float]

# Where less than this share of the strategies is left, a problem of only those pays.
SPARSE_SHARE = 0.7


class RelaxedModel:
    """What relaxations of one (restricted) problem at given prices share."""

    def __init__(self, state: SolveState, restricted: Restriction, scale: FixedPoint) -> None:
        self.ledger, self.restriction = state, restricted
        self.arrays = restricted.problem.arrays
        self.graph = OrientedGraph.of(self.arrays)
        self.lagrangian = LagrangianCosts(self.graph, scale)
        self.work = pass_work(self.arrays)

    def potentials(self, multipliers: Multipliers) -> Potentials:
        """Costs and priced usage."""
        return self.lagrangian.with_multipliers(multipliers, self.restriction.problem.limit or 0)


class Relaxation:
    """Messages, the strategies still allowed (flat flags) and the bound; `whole`: nothing but proof removed any."""

    def __init__(
        self, model: RelaxedModel, multipliers: Multipliers, messages: TrwsMessages, allowed: Mask, whole: bool = True
    ) -> None:
        self.model, self.messages, self.allowed, self.is_exact = model, messages, allowed, whole
        self.multipliers, self.lagrangian_potentials = dict(multipliers), model.potentials(multipliers)
        self.bound = 0

    @staticmethod
    def for_problem(state: SolveState, scale: FixedPoint, start: DualWarmStart | None = None) -> Relaxation:
        """Of a ledger's whole problem: from there, or without prices and messages."""
        every = np.ones(int(state.problem.arrays.node_start[-1]), bool)
        model = RelaxedModel(state, Restriction.identity(state.problem), scale)
        if start is None:
            return Relaxation(model, {}, TrwsMessages(model.graph), every)
        values = (start.messages * scale.factor).clip(-scale.cap, scale.cap).astype(np.int64)
        return Relaxation(model, start.multipliers, TrwsMessages(model.graph, values), every)

    def set_multipliers(self, multipliers: Multipliers) -> None:
        """Change the prices; messages stay, the bound starts anew."""
        self.multipliers, self.lagrangian_potentials, self.bound = (
            dict(multipliers),
            self.model.potentials(multipliers),
            0,
        )

    def copy(self) -> Relaxation:
        """The same, free to go its own way."""
        other = object.__new__(Relaxation)
        other.model, other.multipliers, other.lagrangian_potentials, other.is_exact = (
            self.model,
            self.multipliers,
            self.lagrangian_potentials,
            self.is_exact,
        )
        other.messages, other.allowed, other.bound = self.messages.copy(), self.allowed.copy(), self.bound
        return other

    def counts(self) -> Integers:
        """How many strategies each node has left."""
        return np.add.reduceat(self.allowed, self.model.arrays.node_start[:-1], dtype=np.int64)

    def nearest(self, pairs: int) -> tuple[Mask, bool]:
        """Flags of the strategies of the choices offered so far, cheapest at these prices first, as many of them as
        keep the number of pairs that have to be chosen on edges below `pairs`; and whether that is all of them.

        All that is allowed where no choice is known."""
        arrays = self.model.arrays
        flags, complete = np.zeros(self.allowed.size, bool), True
        for assignment, _ in self.possible_choices():
            more = flags.copy()
            more[arrays.node_start[:-1] + assignment] = True
            counts = np.add.reduceat(more, arrays.node_start[:-1], dtype=np.int64)
            sources, targets = counts[arrays.source], counts[arrays.target]
            if (sources * targets)[(sources > 1) & (targets > 1)].sum() <= pairs or not flags.any():
                flags = more
            else:
                complete = False
        return (flags, complete) if flags.any() else (self.allowed, True)

    def incumbent_flags(self) -> Mask:
        """Flags of the strategies of the best choice known, if all of it is left."""
        assignment = (
            None if self.model.ledger.assignment is None else self.model.restriction.crush(self.model.ledger.assignment)
        )
        flags = np.zeros(self.allowed.size, bool)
        if assignment is not None:
            flags[self.model.arrays.node_start[:-1] + assignment] = True
        return flags

    def possible_choices(self, most: int | None = None) -> list[tuple[Integers, int]]:
        """The choices offered so far that are still possible here and their costs, cheapest at these prices first."""
        pool, lower = self.model.ledger.elites, self.model.restriction.crush
        lowered = ((lower(np.frombuffer(key, np.int64)), cost, key) for key, cost in pool.items())
        possible = [(choice, cost, key) for choice, cost, key in lowered if choice is not None]
        problem, multipliers = self.model.restriction.problem, self.multipliers
        ranked = sorted(
            (lagrangian_value(problem, choice, cost, multipliers=multipliers), key, choice, cost)
            for choice, cost, key in possible
        )
        return [(choice, cost) for _, _, choice, cost in ranked[:most]]

    @property
    def is_done(self) -> bool:
        """Nothing below the ceiling is left here."""
        return self.bound >= self.model.ledger.upper_cutoff or bool((self.counts() == 0).any())

    @property
    def is_sparse(self) -> bool:
        """Is so little left that a problem of only that pays?"""
        return bool(np.count_nonzero(self.allowed) < SPARSE_SHARE * self.allowed.size)

    def pass_until_stalled(self, rounds: int, stall: float) -> tuple[Relaxation, Integers | None]:
        """Tighten, each time so little is left over that alone: what then stands for this, and its last choice."""
        relaxation, assignment = self, self.pass_messages(rounds, stall, while_dense=True)
        while assignment is not None and relaxation.is_sparse and not self.model.ledger.is_exhausted:
            relaxation = relaxation.compacted()
            assignment = relaxation.pass_messages(rounds, stall, while_dense=True)
        return relaxation, assignment

    def pass_messages(
        self, rounds: int, stall: float, decode_every: int = 4, *, while_dense: bool = False
    ) -> Integers | None:
        """Pass messages until a round gains less than `stall` of the bound (`while_dense`: or this is sparse); the last
        choice decoded, None if done."""
        state, assignment = self.model.ledger, None
        history: list[int] = [self.bound]
        for step in range(rounds):
            potentials = self._potentials()
            self._pass_once(potentials, True, 1 + step % 2)
            self._pass_once(potentials, False, 1 + step % 2)
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
        return assignment if assignment is not None else self._decode(self._potentials())

    def _potentials(self) -> Potentials:
        if self.allowed.all():
            return self.lagrangian_potentials
        return self.lagrangian_potentials.shifted(np.where(self.allowed, 0, self.lagrangian_potentials.scale.forbidden))

    def _pass_once(self, potentials: Potentials, forward: bool, split: int) -> None:
        state = self.model.ledger
        scaled = self.messages.sweep(potentials, forward, split)
        state.charge(self.model.work)
        self.bound = max(self.bound, potentials.bound(scaled))
        room = (state.upper_cutoff - 1) * potentials.scale.factor + potentials.constant - scaled
        self.allowed &= self.messages.reduced_costs <= min(max(room, -1), 1 << 62)

    def _decode(self, potentials: Potentials) -> Integers:
        state, lift = self.model.ledger, self.model.restriction.postsolve
        assignment = self.messages.decode(potentials)
        state.submit(lift(assignment))
        better = self.messages.run_icm(potentials, assignment)
        state.submit(lift(better))
        return better

    def _raise_bound(self) -> None:
        if self.is_exact:
            state = self.model.ledger
            state.raise_lower_bound(state.upper_cutoff if self.is_done else min(self.bound, state.upper_cutoff))

    def compacted(self, allowed: Mask | None = None) -> Relaxation:
        """The same over a problem that has only the allowed strategies; smaller, so faster."""
        allowed = self.allowed if allowed is None else allowed
        model = self.model
        restricted = model.restriction.restricted_to(allowed)
        smaller = RelaxedModel(model.ledger, restricted, model.lagrangian.scale)
        values = model.restriction.select_at_ends(allowed, self.messages.values)
        kept = self.allowed[allowed]
        relaxation = Relaxation(smaller, self.multipliers, TrwsMessages(smaller.graph, values), kept, self.is_exact)
        relaxation.bound = self.bound
        return relaxation

    def with_rows(self, problem: Problem, multipliers: Multipliers) -> Relaxation:
        """The same under more limits (at further moments of the same problem), at other prices."""
        model = self.model
        stronger = RelaxedModel(model.ledger, replace(model.restriction, problem=problem), model.lagrangian.scale)
        return Relaxation(stronger, multipliers, self.messages, self.allowed, self.is_exact)

    @property
    def has_cuts(self) -> bool:
        """Is this under more limits than the ledger's problem?"""
        return self.model.arrays.time_steps > self.model.ledger.problem.arrays.time_steps

    def min_marginals(self) -> Integers:
        """What each strategy (flat) is dearer than its node's cheapest, as the messages see it; as dear as can be where
        it is not allowed."""
        potentials = self._potentials()
        for forward in (True, False):
            self._pass_once(potentials, forward, 1)
        return np.where(self.allowed, self.messages.min_marginals, np.iinfo(np.int64).max)
