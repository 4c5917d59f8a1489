"""The root relaxation of a problem, without messages yet, and the dual ascent from there."""

from __future__ import annotations

from solvers import Problem
from solvers.dual_ascent import DualAscent
from solvers.oriented_graph import OrientedGraph
from solvers.potentials import FixedPoint
from solvers.relaxation import Relaxation
from solvers.solve_state import SolveState


def root_of(state: SolveState) -> Relaxation:
    degree = OrientedGraph.of(state.problem.arrays).degree
    return Relaxation.for_problem(state, FixedPoint.of(degree, state.largest_cost))


def ascent_of(problem: Problem) -> DualAscent:
    return DualAscent(root_of(SolveState(problem, 0.0, None, True, None, None)))
