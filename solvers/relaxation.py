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

from solvers.evaluation import priced
from solvers.ledger import Ledger, pass_work
from solvers.messages import Messages
from solvers.potentials import Potentials, Pricing, Scale
from solvers.problem import Problem
from solvers.restrict import Restricted
from solvers.solution import Start
from solvers.topology import Topology

Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]
Values = NDArray[np.float64]
Prices = Mapping[int, float]

# Where less than this share of the strategies is left, a problem of only those pays.
SPARSE = 0.7


class Field:
    """What relaxations of one (restricted) problem at given prices share."""

    def __init__(self, ledger: Ledger, restricted: Restricted, scale: Scale) -> None:
        self.ledger, self.restricted = ledger, restricted
        self.layout = restricted.problem.layout
        self.topology = Topology.of(self.layout)
        self.pricing = Pricing(self.topology, scale)
        self.work = pass_work(self.layout)

    def potentials(self, prices: Prices) -> Potentials:
        """Costs and priced usage."""
        return self.pricing.at(prices, self.restricted.problem.limit or 0)


class Relaxation:
    """Messages, the strategies still allowed (flat flags) and the bound; `whole`: nothing but proof removed any."""

    def __init__(self, field: Field, prices: Prices, messages: Messages, allowed: Mask, whole: bool = True) -> None:
        self.field, self.messages, self.allowed, self.whole = field, messages, allowed, whole
        self.prices, self.plain = dict(prices), field.potentials(prices)
        self.bound = 0

    @staticmethod
    def over(ledger: Ledger, scale: Scale, start: Start | None = None) -> Relaxation:
        """Of a ledger's whole problem: from there, or without prices and messages."""
        every = np.ones(int(ledger.problem.layout.node_start[-1]), bool)
        field = Field(ledger, Restricted.nothing(ledger.problem), scale)
        if start is None:
            return Relaxation(field, {}, Messages(field.topology), every)
        values = (start.messages * scale.factor).clip(-scale.cap, scale.cap).astype(np.int64)
        return Relaxation(field, start.prices, Messages(field.topology, values), every)

    def at(self, prices: Prices) -> None:
        """Change the prices; messages stay, the bound starts anew."""
        self.prices, self.plain, self.bound = dict(prices), self.field.potentials(prices), 0

    def copy(self) -> Relaxation:
        """The same, free to go its own way."""
        other = object.__new__(Relaxation)
        other.field, other.prices, other.plain, other.whole = self.field, self.prices, self.plain, self.whole
        other.messages, other.allowed, other.bound = self.messages.copy(), self.allowed.copy(), self.bound
        return other

    def counts(self) -> Integers:
        """How many strategies each node has left."""
        return np.add.reduceat(self.allowed, self.field.layout.node_start[:-1], dtype=np.int64)

    def nearest(self, pairs: int) -> tuple[Mask, bool]:
        """Flags of the strategies of the choices offered so far, cheapest at these prices first, as many of them as
        keep the number of pairs that have to be chosen on edges below `pairs`; and whether that is all of them.

        All that is allowed where no choice is known."""
        layout = self.field.layout
        flags, complete = np.zeros(self.allowed.size, bool), True
        for choice, _ in self.known():
            more = flags.copy()
            more[layout.node_start[:-1] + choice] = True
            counts = np.add.reduceat(more, layout.node_start[:-1], dtype=np.int64)
            sources, targets = counts[layout.source], counts[layout.target]
            if (sources * targets)[(sources > 1) & (targets > 1)].sum() <= pairs or not flags.any():
                flags = more
            else:
                complete = False
        return (flags, complete) if flags.any() else (self.allowed, True)

    def best(self) -> Mask:
        """Flags of the strategies of the best choice known, if all of it is left."""
        choice = None if self.field.ledger.choice is None else self.field.restricted.lower(self.field.ledger.choice)
        flags = np.zeros(self.allowed.size, bool)
        if choice is not None:
            flags[self.field.layout.node_start[:-1] + choice] = True
        return flags

    def known(self, most: int | None = None) -> list[tuple[Integers, int]]:
        """The choices offered so far that are still possible here and their costs, cheapest at these prices first."""
        pool, lower = self.field.ledger.pool, self.field.restricted.lower
        lowered = ((lower(np.frombuffer(key, np.int64)), cost, key) for key, cost in pool.items())
        possible = [(choice, cost, key) for choice, cost, key in lowered if choice is not None]
        problem, prices = self.field.restricted.problem, self.prices
        ranked = sorted((priced(problem, choice, cost, prices), key, choice, cost) for choice, cost, key in possible)
        return [(choice, cost) for _, _, choice, cost in ranked[:most]]

    @property
    def done(self) -> bool:
        """Nothing below the ceiling is left here."""
        return self.bound >= self.field.ledger.ceiling or bool((self.counts() == 0).any())

    @property
    def sparse(self) -> bool:
        """Is so little left that a problem of only that pays?"""
        return bool(np.count_nonzero(self.allowed) < SPARSE * self.allowed.size)

    def tightened(self, rounds: int, stall: float) -> tuple[Relaxation, Integers | None]:
        """Tighten, each time so little is left over that alone: what then stands for this, and its last choice."""
        relaxation, choice = self, self.tighten(rounds, stall, while_dense=True)
        while choice is not None and relaxation.sparse and not self.field.ledger.exhausted:
            relaxation = relaxation.shrunk()
            choice = relaxation.tighten(rounds, stall, while_dense=True)
        return relaxation, choice

    def tighten(self, rounds: int, stall: float, decode_every: int = 4, while_dense: bool = False) -> Integers | None:
        """Pass messages until a round gains less than `stall` of the bound (`while_dense`: or this is sparse); the last
        choice decoded, None if done."""
        ledger, choice = self.field.ledger, None
        history: list[int] = [self.bound]
        for step in range(rounds):
            potentials = self._potentials()
            self._pass(potentials, True, 1 + step % 2)
            self._pass(potentials, False, 1 + step % 2)
            last = step == rounds - 1 or (while_dense and self.sparse)
            if step % decode_every == decode_every - 1 or last:
                history.append(self.bound)
                last = last or (len(history) > 3 and history[-1] - history[-3] <= 2 * decode_every * stall * self.bound)
                choice = self._decode(potentials)
            if self.done:
                self._prove()
                return None
            if last or ledger.exhausted:
                break
        self._prove()
        return choice if choice is not None else self._decode(self._potentials())

    def _potentials(self) -> Potentials:
        if self.allowed.all():
            return self.plain
        return self.plain.shifted(np.where(self.allowed, 0, self.plain.scale.forbidden))

    def _pass(self, potentials: Potentials, forward: bool, split: int) -> None:
        ledger = self.field.ledger
        scaled = self.messages.sweep(potentials, forward, split)
        ledger.spend(self.field.work)
        self.bound = max(self.bound, potentials.bound(scaled))
        room = (ledger.ceiling - 1) * potentials.scale.factor + potentials.constant - scaled
        self.allowed &= self.messages.slack <= min(max(room, -1), 1 << 62)

    def _decode(self, potentials: Potentials) -> Integers:
        ledger, lift = self.field.ledger, self.field.restricted.lift
        choice = self.messages.decode(potentials)
        ledger.offer(lift(choice))
        better = self.messages.descend(potentials, choice)
        ledger.offer(lift(better))
        return better

    def _prove(self) -> None:
        if self.whole:
            ledger = self.field.ledger
            ledger.prove(ledger.ceiling if self.done else min(self.bound, ledger.ceiling))

    def shrunk(self, allowed: Mask | None = None) -> Relaxation:
        """The same over a problem that has only the allowed strategies; smaller, so faster."""
        allowed = self.allowed if allowed is None else allowed
        field = self.field
        restricted = field.restricted.narrowed(allowed)
        smaller = Field(field.ledger, restricted, field.pricing.scale)
        values = field.restricted.at_ends(allowed, self.messages.values)
        kept = self.allowed[allowed]
        relaxation = Relaxation(smaller, self.prices, Messages(smaller.topology, values), kept, self.whole)
        relaxation.bound = self.bound
        return relaxation

    def under(self, problem: Problem, prices: Prices) -> Relaxation:
        """The same under more limits (at further moments of the same problem), at other prices."""
        field = self.field
        stronger = Field(field.ledger, replace(field.restricted, problem=problem), field.pricing.scale)
        return Relaxation(stronger, prices, self.messages, self.allowed, self.whole)

    @property
    def cut(self) -> bool:
        """Is this under more limits than the ledger's problem?"""
        return self.field.layout.moments > self.field.ledger.problem.layout.moments

    def marginal(self) -> Integers:
        """What each strategy (flat) is dearer than its node's cheapest, as the messages see it; as dear as can be where
        it is not allowed."""
        potentials = self._potentials()
        for forward in (True, False):
            self._pass(potentials, forward, 1)
        return np.where(self.allowed, self.messages.marginal, np.iinfo(np.int64).max)
