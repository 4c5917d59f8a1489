"""How to get from a choice of the reduced problem to one of the original, and the other way."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solvers.presolve.tables import Classes

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class End:
    """A node, the original strategies it had at the time (ascending), and the class of each."""

    node: int
    strategies: Integers
    classes: Classes

    def class_of(self, choice: Integers) -> int:
        """The class of the strategy chosen."""
        return int(self.classes[np.searchsorted(self.strategies, choice[self.node])])


@dataclass(frozen=True, slots=True, eq=False)
class Followed:
    """A node that left: its strategy by the classes of its ends' strategies (a table of as many dimensions)."""

    node: int
    ends: tuple[End, ...]
    strategy: Integers

    def lift(self, choice: Integers) -> None:
        """Fill in the node's strategy."""
        choice[self.node] = self.strategy[tuple(end.class_of(choice) for end in self.ends)]

    def lower(self, choice: Integers) -> None:
        """Nothing: the node is chosen anew when it comes back."""


@dataclass(frozen=True, slots=True, eq=False)
class Determined:
    """Nodes that left together: node[i] takes strategy[at[i] + x] where leader[i] takes x (all of the original)."""

    node: Integers
    leader: Integers
    at: Integers
    strategy: Integers

    def lift(self, choice: Integers) -> None:
        """Fill in their strategies."""
        choice[self.node] = self.strategy[self.at + choice[self.leader]]

    def lower(self, choice: Integers) -> None:
        """Nothing: the nodes are chosen anew when they come back."""


@dataclass(frozen=True, slots=True, eq=False)
class Replaced:
    """Strategies that left a node because others are no worse."""

    node: int
    by: dict[int, int]

    def lift(self, choice: Integers) -> None:
        """Nothing: what is left was there before."""

    def lower(self, choice: Integers) -> None:
        """Take what is no worse."""
        choice[self.node] = self.by.get(int(choice[self.node]), choice[self.node])


Record = Followed | Determined | Replaced
