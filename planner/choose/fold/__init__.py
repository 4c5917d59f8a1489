"""Repeated layers found by structure and planned as one: a smaller choice problem, and its choices unfolded.

content     arrays by what they hold
structure   a choice problem as a labelled graph; how far its nodes look alike
shifts      stacks of equal layers, as maps of each layer to the next
tie         the problem in which like variables of a stack's layers take one strategy
usage       what those layers use together, and the moments that matter
spread      where message passing over the unfolded problem begins
splice      choices that are one up to some layer, and another from there on

What is found of the folded problem holds for the unfolded one, at exactly its cost and peak; what is proven of
it does not, because a plan may treat equal layers differently. Only a bound of the unfolded problem says how much
was lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.choose.fold.content import Contents
from planner.choose.fold.shifts import Stacks, stacks
from planner.choose.fold.splice import spliced
from planner.choose.fold.spread import spread
from planner.choose.fold.structure import Structure
from planner.choose.fold.tie import tied
from solvers import Problem, Start

__all__ = ["Folded", "Layers"]


@dataclass(frozen=True, eq=False)
class Folded:
    """A folded problem; `member[v]` is the node there of node v, `moments[k]` what its moment k was."""

    problem: Problem
    member: tuple[int, ...]
    moments: NDArray[np.int64]

    @property
    def groups(self) -> tuple[int, ...]:
        """How many nodes stand behind each node that stands for several."""
        return tuple(count for count in Counter(self.member).values() if count > 1)

    def lift(self, choice: Sequence[int]) -> tuple[int, ...]:
        """The unfolded choice that a folded one stands for."""
        return tuple(choice[node] for node in self.member)

    def lower(self, choice: Sequence[int]) -> tuple[int, ...] | None:
        """The folded choice that stands for this one; None where it treats tied variables differently."""
        found: dict[int, int] = {}
        for node, strategy in zip(self.member, choice, strict=True):
            if found.setdefault(node, strategy) != strategy:
                return None
        return tuple(found.values())


@dataclass(frozen=True, eq=False)
class Layers:
    """The repeated layers of a problem: `counts` of every stack found, the largest stack first."""

    problem: Problem
    contents: Contents
    stacks: Stacks

    @classmethod
    def of(cls, problem: Problem) -> Layers:
        """Time grows linearly in nodes and edges, and with the nodes times the number of stacks."""
        contents = Contents()
        return cls(problem, contents, stacks(Structure.of(problem, contents)))

    @property
    def counts(self) -> tuple[int, ...]:
        return self.stacks.layers

    @property
    def left(self) -> int:
        """How many nodes a folded problem has."""
        return len(self.problem.nodes) - sum(len(orbit) - 1 for orbit in self.stacks.orbits)

    def folded(self, pieces: int = 1) -> Folded:
        """Like variables of all layers tied, or of every one of so many runs of layers for itself."""
        member = self.stacks.members(len(self.problem.nodes), pieces)
        problem, moments = tied(self.problem, member, self.contents)
        return Folded(problem, member, moments)

    def spread(self, folded: Folded, start: Start) -> Start:
        """Where the folded problem may begin, as where this one may."""
        prices = {int(folded.moments[moment]): price for moment, price in start.prices.items()}
        return Start(prices, spread(self.problem, folded.member, folded.problem, self.contents, start.messages))

    def spliced(self, choices: Sequence[Sequence[int]]) -> tuple[int, ...] | None:
        """The cheapest choice that fits, of those made of one of these that does in some layers, and of one that does
        not in the others."""
        return spliced(self.problem, self.stacks.orbits, choices)
