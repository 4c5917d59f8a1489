"""From a problem to the state that presolve works on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from solvers.parts import IMPOSSIBLE, Edge, Node
from solvers.presolve.profile import Profile
from solvers.presolve.state import Link, State
from solvers.presolve.tables import FORBIDDEN, Table
from solvers.problem import Problem

Integers = NDArray[np.int64]


def load(problem: Problem, reductions: int, stopped: Callable[[], bool]) -> State:
    """All nodes and edges of the problem, costs multiplied out, shared usage in the base."""
    layout = problem.layout
    state = State(problem.limit, layout.moments, reductions, stopped)
    costs = np.where(layout.cost < IMPOSSIBLE, layout.cost, FORBIDDEN)
    for node, cost in zip(problem.nodes, np.split(costs, layout.node_start[1:-1]), strict=False):
        state.add_node(cost, _usage(node))
    tables: dict[tuple[int, int], Table] = {}
    for edge in problem.edges:
        key = (id(edge.matrix), edge.multiplicity)
        if key not in tables:
            tables[key] = state.pool.table(_multiplied(edge))
        usages = tuple(usage for usage in edge.usages if usage.start < usage.stop and usage.matrix.any())
        state.link(Link(edge.source, edge.target, edge.source_class, edge.target_class, tables[key], usages))
    return state


def _multiplied(edge: Edge) -> Integers:
    cells = np.where(edge.matrix < IMPOSSIBLE, edge.matrix, 0) * edge.multiplicity
    return np.where(edge.matrix < IMPOSSIBLE, cells, FORBIDDEN)


def _usage(node: Node) -> list[Profile]:
    start, stop = node.interval
    further = node.further
    parts = [] if further is None else [Profile(further.start, further.stop, further.usage)]
    if start < stop and node.usage.any():
        parts.append(Profile(np.array([start]), np.array([stop]), node.usage[None, :]))
    return parts
