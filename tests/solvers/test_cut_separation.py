"""The duals of a linear program, taken as multipliers and messages, prove its optimum in one pass of integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from solvers import Problem
from solvers.cut_separation import SeparationTask
from solvers.mip import LocalPolytope
from solvers.oriented_graph import OrientedGraph
from solvers.potentials import FixedPoint
from solvers.relaxation import Relaxation
from solvers.solve_state import SolveState
from tests.testing.random_problems import dear, tiny, tiny_public, with_best
from tests.testing.seeds import at_least, seeds

SEEDS = seeds(150)
# Problems, and how far (relative) the bound may be below the optimum: GLOP's accuracy; any distance where costs near
# the range of int64 are cut down.
CASES = [(tiny, 1e-5), (tiny_public, 1e-5), (dear, 1.0)]


@pytest.mark.parametrize(("make", "below"), CASES)
def test_one_pass_over_the_duals_proves_the_optimum_of_the_linear_program(
    make: Callable[[int], Problem], below: float
) -> None:
    proven = 0
    for seed in SEEDS:
        problem, wanted = with_best(make, seed)
        if wanted is None or problem.limit is None:
            continue
        unit = max(wanted[1].cost / 1e6, 1e-6)
        polytope = LocalPolytope(problem, unit)
        polytope.add_capacity_rows(range(problem.arrays.time_steps))
        optimum = polytope.to_lp().solve()
        if optimum is None:
            continue
        state = SolveState(problem, 0.0, 60.0, True, None, None)
        scale = FixedPoint.of(OrientedGraph.of(problem.arrays).degree, 4 * wanted[1].cost + 1)
        relaxation = Relaxation.for_problem(state, scale)
        relaxation.set_multipliers(polytope.multipliers(optimum.duals))
        relaxation.set_messages(relaxation.allowed, polytope.messages(optimum.duals))
        potentials = relaxation.lagrangian_potentials
        bound = potentials.bound(relaxation.messages.sweep(potentials, True))
        assert bound <= wanted[1].cost, seed
        assert bound >= optimum.cost * unit * (1 - below) - 1, seed
        proven += 1
    assert proven > at_least(1 / 5, len(SEEDS))


def test_a_split_leaves_something_of_the_linear_programs_optimum_to_either_branch() -> None:
    splits = 0
    for seed in SEEDS:
        problem, wanted = with_best(tiny_public, seed)
        if wanted is None or problem.limit is None:
            continue
        steps, cost = problem.arrays.time_steps, 2 * wanted[1].cost + 1
        cuts = SeparationTask(problem, steps, range(steps), cost, 0.0, has_clock=False, rounds=1, probes=6)()
        if cuts.split is not None:
            node, kept = cuts.split
            values = cuts.point[slice(*problem.arrays.node_start[node : node + 2])]
            assert values.max() < 1 - 1e-9, seed
            assert values[kept].sum() > 0, seed
            assert values[~kept].sum() > 0, seed
            splits += 1
        elif cuts.point.size:
            # Integral: the optimum is an assignment.
            assert np.isclose(cuts.point, np.round(cuts.point), atol=1e-5).all(), seed
    assert splits > at_least(1 / 50, len(SEEDS))
