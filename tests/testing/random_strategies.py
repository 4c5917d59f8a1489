"""Random assignments of a formulation."""

from __future__ import annotations

import numpy as np

from planner.choose.formulate import Formulation
from solvers import IMPOSSIBLE, Edge


def random_strategies(question: Formulation, random: np.random.Generator) -> tuple[int, ...]:
    """Return a random strategy per node, in order, of those that no earlier strategy forbids."""
    before: dict[int, list[Edge]] = {}
    for edge in question.problem.edges:
        assert edge.source < edge.target, "edges lead forward"
        before.setdefault(edge.target, []).append(edge)
    chosen: list[int] = []
    for number, node in enumerate(question.problem.nodes):
        possible = np.ones(len(node.cost), bool)
        for edge in before.get(number, []):
            possible &= edge.cost(edge.source_class[chosen[edge.source]], edge.target_class) < IMPOSSIBLE
        chosen.append(int(random.choice(np.flatnonzero(possible))))
    return tuple(chosen)
