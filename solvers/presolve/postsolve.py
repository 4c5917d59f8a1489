"""How to get from a choice of the reduced problem to one of the original, and the other way."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class AggregationRecord:
    """Nodes that left together: node[i] takes strategy[at[i] + x] where leader[i] takes x."""

    node: Integers
    leader: Integers
    at: Integers
    strategy: Integers

    def postsolve(self, assignment: Integers) -> None:
        """Fill in their strategies."""
        assignment[self.node] = self.strategy[self.at + assignment[self.leader]]

    def crush(self, assignment: Integers) -> None:
        """Nothing: the nodes are chosen anew when they come back."""


@dataclass(frozen=True, slots=True, eq=False)
class EliminationRecord:
    """Nodes that left one after another, a column each: node, one, one_at, other, other_at, at, width.

    The node takes strategy[at + s * width + t], where s is the class of what `one` takes (x: classes[one_at + x]) and t
    that of what `other` takes; 0 where there is no such neighbour (-1).
    """

    columns: Integers
    classes: Integers
    strategy: Integers

    def postsolve(self, assignment: Integers) -> None:
        """Fill in their strategies, the last that left first."""
        for node, one, one_at, other, other_at, at, width in self.columns.T[::-1].tolist():
            s = 0 if one < 0 else self.classes[one_at + assignment[one]]
            t = 0 if other < 0 else self.classes[other_at + assignment[other]]
            assignment[node] = self.strategy[at + s * width + t]

    def crush(self, assignment: Integers) -> None:
        """Nothing: the nodes are chosen anew when they come back."""


@dataclass(frozen=True, slots=True, eq=False)
class DominationRecord:
    """Strategies that left because others of their node are no worse: strategy[r] of node[r] by[r], in order."""

    node: Integers
    strategy: Integers
    by: Integers

    def postsolve(self, assignment: Integers) -> None:
        """Nothing: what is left was there before."""

    def crush(self, assignment: Integers) -> None:
        """Take what is no worse."""
        taken = assignment[self.node] == self.strategy
        assignment[self.node[taken]] = self.by[taken]


PostsolveRecord = AggregationRecord | EliminationRecord | DominationRecord
