"""What the other options of every op would cost where all other decisions stay: a first answer for the whole graph.

For op v with time c_v(s) and edges e to neighbours that stay as they are (`planner.choose.formulate`)

    cost(s) = c_v(s) + sum over e of m_e(s, chosen),    of which only differences to the chosen option are told

so one pass over the edges answers for all ops, where `planner.judge.explain` asks about one, with memory, and
`planner.judge.what_if` lets the neighbours follow. An option that a neighbour cannot go with is not told of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.choose.formulate import Formulation
from planner.choose.variables import Role
from planner.ir.indexing import Option
from solvers import IMPOSSIBLE

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another option of an op: the change of its own time, and of the reshards around it, in ps."""

    option: Option
    compute_ps: int
    reshards_ps: int

    @property
    def change_ps(self) -> int:
        return self.compute_ps + self.reshards_ps


def find_alternatives(question: Formulation, strategies: Sequence[int], most: int) -> Mapping[str, list[Alternative]]:
    """Of every op the other options that would cost least, at most so many, the cheapest first."""
    moved = _neighbour_costs(question, strategies)
    return {
        variable.name: _cheapest_alternatives(
            variable.costs, moved[node], variable.options, chosen=strategies[node], most=most
        )
        for node, variable in enumerate(question.variables)
        if variable.role is Role.OP
    }


def _neighbour_costs(question: Formulation, strategies: Sequence[int]) -> list[Integers]:
    """[nodes][strategies]: what the edges of a node cost with its neighbours as they are."""
    found = [np.zeros(len(variable.costs), np.int64) for variable in question.variables]
    for edge in question.problem.edges:
        source, target = edge.source_class[strategies[edge.source]], edge.target_class[strategies[edge.target]]
        found[edge.source] += edge.matrix[edge.source_class, target]
        found[edge.target] += edge.matrix[source, edge.target_class]
    return found


def _cheapest_alternatives(
    costs: Integers, moved: Integers, options: Sequence[Option], *, chosen: int, most: int
) -> list[Alternative]:
    total = costs + moved
    possible = [int(s) for s in np.argsort(total, kind="stable") if s != chosen and total[s] < IMPOSSIBLE]
    return [
        Alternative(options[s], int(costs[s] - costs[chosen]), int(moved[s] - moved[chosen])) for s in possible[:most]
    ]
