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

from planner.choose.fold.colour_refinement import LabelledGraph
from planner.choose.fold.crossover import crossover
from planner.choose.fold.dual_prolongation import prolong_messages
from planner.choose.fold.interning import ArrayInterner
from planner.choose.fold.quotient_problem import build_quotient
from planner.choose.fold.repeated_layers import LayerStacks, find_stacks
from solvers import DualWarmStart, Problem

__all__ = ["FoldedProblem", "RepeatedLayers"]


@dataclass(frozen=True, eq=False)
class FoldedProblem:
    """A folded problem; `member[v]` is the node there of node v, `moments[k]` what its moment k was."""

    problem: Problem
    quotient_node: tuple[int, ...]
    moments: NDArray[np.int64]

    @property
    def groups(self) -> tuple[int, ...]:
        """How many nodes stand behind each node that stands for several."""
        return tuple(count for count in Counter(self.quotient_node).values() if count > 1)

    def unfold_choice(self, choice: Sequence[int]) -> tuple[int, ...]:
        """The unfolded choice that a folded one stands for."""
        return tuple(choice[node] for node in self.quotient_node)

    def fold_choice(self, choice: Sequence[int]) -> tuple[int, ...] | None:
        """The folded choice that stands for this one; None where it treats tied variables differently."""
        found: dict[int, int] = {}
        for node, strategy in zip(self.quotient_node, choice, strict=True):
            if found.setdefault(node, strategy) != strategy:
                return None
        return tuple(found.values())


@dataclass(frozen=True, eq=False)
class RepeatedLayers:
    """The repeated layers of a problem: `counts` of every stack found, the largest stack first."""

    problem: Problem
    contents: ArrayInterner
    stacks: LayerStacks

    @classmethod
    def of(cls, problem: Problem) -> RepeatedLayers:
        """Time grows linearly in nodes and edges, and with the nodes times the number of stacks."""
        contents = ArrayInterner()
        return cls(problem, contents, find_stacks(LabelledGraph.of(problem, contents)))

    @property
    def counts(self) -> tuple[int, ...]:
        return self.stacks.layers

    @property
    def node_count(self) -> int:
        """How many nodes a folded problem has."""
        return len(self.problem.nodes) - sum(len(orbit) - 1 for orbit in self.stacks.orbits)

    def quotient(self, pieces: int = 1) -> FoldedProblem:
        """Like variables of all layers tied, or of every one of so many runs of layers for itself."""
        member = self.stacks.tie_classes(len(self.problem.nodes), pieces)
        problem, moments = build_quotient(self.problem, member, self.contents)
        return FoldedProblem(problem, member, moments)

    def prolong(self, folded: FoldedProblem, start: DualWarmStart) -> DualWarmStart:
        """Where the folded problem may begin, as where this one may."""
        prices = {int(folded.moments[moment]): price for moment, price in start.multipliers.items()}
        return DualWarmStart(
            prices,
            prolong_messages(
                self.problem, folded.quotient_node, folded.problem, contents=self.contents, messages=start.messages
            ),
        )

    def crossover(self, choices: Sequence[Sequence[int]]) -> tuple[int, ...] | None:
        """The cheapest choice that fits, of those made of one of these that does in some layers, and of one that does
        not in the others."""
        return crossover(self.problem, self.stacks.orbits, choices)
