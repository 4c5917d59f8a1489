"""From what is left of the state back to a problem."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from solvers.parts import IMPOSSIBLE, Edge, Node, Spans
from solvers.presolve.profile import Profile, joined
from solvers.presolve.state import State
from solvers.presolve.tables import FORBIDDEN
from solvers.problem import Problem

Integers = NDArray[np.int64]


def emit(state: State, names: list[str]) -> tuple[Problem, Integers]:
    """The reduced problem, and which node of the original each of its nodes is.

    What all choices share becomes one more node at the end, without a choice (its original is -1).
    """
    left = list(state.alive)
    nodes = [_node(names[i], state.cost[i], state.usage(i)) for i in left]
    number = {i: n for n, i in enumerate(left)}
    matrices: dict[int, Integers] = {}
    edges = []
    for link in state.links.values():
        matrix = matrices.setdefault(id(link.table), _cost(link.table.cells))
        ends = number[link.source], number[link.target]
        edges.append(Edge(*ends, link.source_class, link.target_class, matrix, 1, link.usages))
    moments = np.arange(state.base.size + 1)
    base = joined(moments[:-1], moments[1:], state.base[:, None])
    if state.constant or base.start.size:
        nodes.append(_node("shared", np.array([state.constant]), base))
        left.append(-1)
    return Problem(nodes, edges, state.limit), np.array(left, np.int64)


def _cost(cost: Integers) -> Integers:
    return np.where(cost < FORBIDDEN, cost, IMPOSSIBLE)


def _node(name: str, cost: Integers | None, profile: Profile | None) -> Node:
    assert cost is not None
    if profile is None or profile.start.size == 0:
        return Node(name, _cost(cost), np.zeros(cost.size, np.int64), (0, 0))
    profile = joined(profile.start, profile.stop, profile.usage)
    interval = (int(profile.start[0]), int(profile.stop[0]))
    further = None
    if profile.start.size > 1:
        further = Spans(profile.start[1:], profile.stop[1:], profile.usage[1:])
    return Node(name, _cost(cost), profile.usage[0], interval, 1, further)
