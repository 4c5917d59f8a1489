"""Which strategies a smaller problem of a relaxation has, where no known assignment is possible there any more."""

from __future__ import annotations

import numpy as np

from solvers.potentials import FixedPoint
from solvers.relaxation import Relaxation
from solvers.solve_state import SolveState
from tests.testing.random_problems import tiny_public
from tests.testing.seeds import seeds

SEEDS = seeds(24)


def test_what_is_left_of_an_excluded_elite_is_near_the_bound() -> None:
    tried = 0
    for seed in SEEDS:
        problem = tiny_public(seed)
        state = SolveState(problem, 0.0, None, True, None, None)
        relaxation = Relaxation.for_problem(state, FixedPoint.of(8, state.largest_cost))
        relaxation.min_marginals()
        first, elite = problem.arrays.node_start[:-1], np.zeros(problem.arrays.counts.size, np.int64)
        node = int(np.argmax(problem.arrays.counts))
        if problem.arrays.counts[node] < 2 or not state.submit(elite).feasible:
            continue
        relaxation.allowed[first[node]] = False
        smaller = relaxation.compacted()
        here = smaller.model.arrays.node_start[:-1]
        others = np.delete(here, node)
        assert not smaller.possible_elites(), seed
        assert smaller.incumbent_flags()[others].all(), seed
        assert smaller.incumbent_flags().sum() == others.size, seed
        flags, complete = smaller.nearest(0)
        assert flags[others].all(), seed
        assert np.logical_or.reduceat(flags, here).all(), seed
        assert complete == flags.all(), seed
        every, complete = smaller.nearest(1 << 40)
        assert complete, seed
        assert every.all(), seed
        tried += 1
    assert tried
