"""Find repeated layers by structure and fold them: a smaller assignment problem, in which equal layers share decisions.

interning          numbers of arrays by content
colour_refinement  an assignment problem as a labelled graph, and how far its nodes look alike
repeated_layers    stacks of equal layers, as maps from each layer to the next
quotient_problem   the problem in which corresponding variables of a stack's layers take one strategy
usage_profile      the memory that those layers use together, and the time steps that matter
dual_prolongation  the start of message passing on the unfolded problem
crossover          assignments that equal one up to some layer, and another from there on

An assignment of the folded problem is one of the unfolded problem, with equal cost and peak. A bound of the folded
problem is none of the unfolded one, as a plan may treat equal layers differently. Only a bound of the unfolded problem
shows how much folding loses.
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
    """A folded problem.

    quotient_node  its node of each node of the unfolded problem
    moments        the time step, in the unfolded problem, of each of its time steps
    """

    problem: Problem
    quotient_node: tuple[int, ...]
    moments: NDArray[np.int64]

    @property
    def groups(self) -> tuple[int, ...]:
        """Sizes of the classes of nodes that share one decision."""
        return tuple(count for count in Counter(self.quotient_node).values() if count > 1)

    def unfold_choice(self, choice: Sequence[int]) -> tuple[int, ...]:
        """Return the assignment of the unfolded problem that a folded one stands for."""
        return tuple(choice[node] for node in self.quotient_node)

    def fold_choice(self, choice: Sequence[int]) -> tuple[int, ...] | None:
        """Return the folded assignment of an unfolded one, or None where tied variables differ."""
        folded: dict[int, int] = {}
        for node, strategy in zip(self.quotient_node, choice, strict=True):
            if folded.setdefault(node, strategy) != strategy:
                return None
        return tuple(folded.values())


@dataclass(frozen=True, eq=False)
class RepeatedLayers:
    """The repeated layers of a problem; `counts` has the number of layers of each stack, the largest stack first."""

    problem: Problem
    contents: ArrayInterner
    stacks: LayerStacks

    @classmethod
    def of(cls, problem: Problem) -> RepeatedLayers:
        """Find the repeated layers. The time is linear in edges, and in nodes times the number of stacks."""
        contents = ArrayInterner()
        return cls(problem, contents, find_stacks(LabelledGraph.of(problem, contents)))

    @property
    def counts(self) -> tuple[int, ...]:
        return self.stacks.layers

    @property
    def node_count(self) -> int:
        """Number of nodes of the folded problem."""
        return len(self.problem.nodes) - sum(len(orbit) - 1 for orbit in self.stacks.orbits)

    def quotient(self, pieces: int = 1) -> FoldedProblem:
        """Tie corresponding variables of all layers, or of each of `pieces` runs of layers separately."""
        member = self.stacks.tie_classes(len(self.problem.nodes), pieces)
        problem, moments = build_quotient(self.problem, member, self.contents)
        return FoldedProblem(problem, member, moments)

    def prolong(self, folded: FoldedProblem, start: DualWarmStart) -> DualWarmStart:
        """Turn a warm start of the folded problem into one of the unfolded problem."""
        prices = {int(folded.moments[moment]): price for moment, price in start.multipliers.items()}
        return DualWarmStart(
            prices,
            prolong_messages(
                self.problem, folded.quotient_node, folded.problem, contents=self.contents, messages=start.messages
            ),
        )

    def crossover(self, choices: Sequence[Sequence[int]]) -> tuple[int, ...] | None:
        """Return the cheapest feasible combination of a feasible assignment in some layers and an infeasible one in
        the others, or None where there is none."""
        return crossover(self.problem, self.stacks.orbits, choices)
