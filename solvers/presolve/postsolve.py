"""Records of the reductions, which convert assignments between the reduced problem and the original, in place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class AggregationRecord:
    """Nodes that were aggregated: node[i] has strategy[at[i] + x] where leader[i] has x."""

    node: Integers
    leader: Integers
    at: Integers
    strategy: Integers

    def postsolve(self, assignment: Integers) -> None:
        """Fill in the strategies of the aggregated nodes."""
        assignment[self.node] = self.strategy[self.at + assignment[self.leader]]

    def crush(self, assignment: Integers) -> None:
        """Do nothing: postsolve chooses these nodes again."""


@dataclass(frozen=True, slots=True, eq=False)
class EliminationRecord:
    """Nodes that were eliminated one after another, a column each: node, one, one_at, other, other_at, at, width.

    The node has strategy[at + s * width + t], where s is the class of neighbour `one` (classes[one_at + x] for its
    strategy x) and t that of `other`; 0 where there is no such neighbour (-1).
    """

    columns: Integers
    classes: Integers
    strategy: Integers

    def postsolve(self, assignment: Integers) -> None:
        """Fill in the strategies, the last eliminated node first: it may be a neighbour of earlier ones."""
        for node, one, one_at, other, other_at, at, width in self.columns.T[::-1].tolist():
            s = 0 if one < 0 else self.classes[one_at + assignment[one]]
            t = 0 if other < 0 else self.classes[other_at + assignment[other]]
            assignment[node] = self.strategy[at + s * width + t]

    def crush(self, assignment: Integers) -> None:
        """Do nothing: postsolve chooses these nodes again."""


@dataclass(frozen=True, slots=True, eq=False)
class DominationRecord:
    """Strategies that were removed, in order: strategy[r] of node[r], which by[r] dominates."""

    node: Integers
    strategy: Integers
    by: Integers

    def postsolve(self, assignment: Integers) -> None:
        """Do nothing: the strategies that are left were there before."""

    def crush(self, assignment: Integers) -> None:
        """Replace removed strategies by those that dominate them."""
        is_removed = assignment[self.node] == self.strategy
        assignment[self.node[is_removed]] = self.by[is_removed]


PostsolveRecord = AggregationRecord | EliminationRecord | DominationRecord
