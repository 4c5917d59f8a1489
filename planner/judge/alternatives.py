"""Price the other options of every op while all other decisions stay as they are.

For op v with time c_v(s) and edges e to its neighbours (`planner.choose.formulate`)

    cost(s) = c_v(s) + sum over e of m_e(s, chosen),    reported as the difference to the chosen option

so that one pass over the edges prices the options of all ops. `planner.judge.explain` treats one op in more detail and
with memory, and `planner.judge.what_if` lets the neighbours change too. Options that contradict a neighbour are left
out.
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
    """Another option of an op: the change in its own time, and in that of the reshards around it, in ps."""

    option: Option
    compute_ps: int
    reshards_ps: int

    @property
    def change_ps(self) -> int:
        return self.compute_ps + self.reshards_ps


def find_alternatives(question: Formulation, strategies: Sequence[int], most: int) -> Mapping[str, list[Alternative]]:
    """Return for each op its `most` cheapest other options, in ascending order of cost."""
    edge_costs = _neighbour_costs(question, strategies)
    return {
        variable.name: _cheapest_alternatives(
            variable.costs, edge_costs[node], variable.options, chosen=strategies[node], most=most
        )
        for node, variable in enumerate(question.variables)
        if variable.role is Role.OP
    }


def _neighbour_costs(question: Formulation, strategies: Sequence[int]) -> list[Integers]:
    """Return the edge costs of each strategy of each node while its neighbours stay as they are."""
    edge_costs = [np.zeros(len(variable.costs), np.int64) for variable in question.variables]
    for edge in question.problem.edges:
        source, target = edge.source_class[strategies[edge.source]], edge.target_class[strategies[edge.target]]
        edge_costs[edge.source] += edge.cost(edge.source_class, target)
        edge_costs[edge.target] += edge.cost(source, edge.target_class)
    return edge_costs


def _cheapest_alternatives(
    costs: Integers, edge_costs: Integers, options: Sequence[Option], *, chosen: int, most: int
) -> list[Alternative]:
    total = costs + edge_costs
    possible = [int(s) for s in np.argsort(total, kind="stable") if s != chosen and total[s] < IMPOSSIBLE]
    return [
        Alternative(options[s], int(costs[s] - costs[chosen]), int(edge_costs[s] - edge_costs[chosen]))
        for s in possible[:most]
    ]
