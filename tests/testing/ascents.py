"""Dual ascents that have begun, and problems on whose trees they are tried."""

from __future__ import annotations

import numpy as np

from solvers import Node, Problem
from solvers.dual_ascent import DualAscent
from solvers.oriented_graph import OrientedGraph
from solvers.potentials import FixedPoint
from solvers.relaxation import Relaxation
from solvers.solve_state import SolveState


def root_of(problem: Problem) -> tuple[SolveState, Relaxation, DualAscent]:
    """Return a state, its root relaxation and an ascent that has begun, at the ascent's multipliers."""
    state = SolveState(problem, 0.0, 600.0, True, None, None)
    scale = FixedPoint.of(OrientedGraph.of(problem.arrays).degree, state.largest_cost)
    relaxation = Relaxation.for_problem(state, scale)
    ascent = DualAscent(relaxation)
    ascent.begin()
    relaxation.set_multipliers(ascent.multipliers)
    return state, relaxation, ascent


def crossing_rows(rng: np.random.Generator) -> Problem:
    """Return nodes that live over parts of a few time steps, each cheap and large or dear and small."""
    nodes = []
    for i in range(18):
        start, stop = sorted(rng.choice(7, 2, replace=False).tolist())
        cost, usage = np.sort(rng.integers(1, 10**6, 4)), np.sort(rng.integers(1, 10**4, 4))[::-1].copy()
        nodes.append(Node(f"n{i}", cost, usage, (start, stop)))
    return Problem(nodes, [], 30_000)
