"""CP-SAT's bound is exact in integers, however large the costs, and a model that it refuses is told."""

from __future__ import annotations

import numpy as np
import pytest

from solvers import IMPOSSIBLE, Edge, Node, Problem
from solvers.cpsat import prove_bound
from solvers.isolated_process import WorkerFailed
from tests.testing.exhaustive import find_cheapest
from tests.testing.random_problems import dear, scaled, tiny, with_best
from tests.testing.seeds import at_least, seeds

SEEDS = seeds(200)
NOTHING = np.zeros(2, np.int64)


def isolated(costs: list[tuple[int, int]]) -> Problem:
    return Problem([Node(f"n{i}", np.array(pair), NOTHING, (0, 1)) for i, pair in enumerate(costs)], [])


# Problems whose optimum no double holds, and that optimum.
INEXACT = [
    (isolated([(9007199254740995, 9007199254740999)]), 9007199254740995),
    (isolated([(9 * 10**15 + i % 7, 9 * 10**15 + 9) for i in range(100)]), 900000000000000295),
    (isolated([(6 * 10**15 + 3 * i, 9 * 10**15) for i in range(40)]), 240000000000002340),
]


@pytest.mark.parametrize(("problem", "optimum"), INEXACT)
def test_the_bound_of_costs_that_no_double_holds_is_exact(problem: Problem, optimum: int) -> None:
    bound, assignment = prove_bound(problem, [], optimum + 1000, None, 0)
    assert bound == optimum
    assert assignment is not None


def test_no_bound_exceeds_the_optimum_and_all_below_the_cutoff_are_equal_to_it() -> None:
    proven = 0
    for seed in SEEDS:
        problem, wanted = with_best(dear if seed % 2 else tiny, seed)
        if wanted is None:
            continue
        time_steps, optimum = range(problem.arrays.time_steps), wanted[1].cost
        assert prove_bound(problem, time_steps, optimum + 1, None, 0)[0] == optimum, seed
        assert prove_bound(problem, time_steps, optimum, None, 0) == (optimum, None), seed
        proven += 1
    assert proven > at_least(1 / 2, len(SEEDS))


def test_common_factors_of_the_costs_are_multiplied_back_into_the_bound() -> None:
    for seed in SEEDS:
        problem, wanted = with_best(tiny, seed)
        if wanted is not None and wanted[1].cost < 10**9:
            optimum = 360 * wanted[1].cost
            bound, _ = prove_bound(scaled(problem, 360), range(problem.arrays.time_steps), optimum + 7, None, 0)
            assert bound == optimum, seed


def test_what_alone_costs_the_cutoff_or_more_is_left_out_so_that_large_costs_do_not_overflow() -> None:
    own = np.arange(2, dtype=np.int32)
    nodes = [Node(f"n{i}", np.array([1, IMPOSSIBLE - 1]), NOTHING, (0, 1)) for i in range(1100)]
    matrix = np.array([[1, IMPOSSIBLE - 1], [IMPOSSIBLE - 1, 1]])
    problem = Problem(nodes, [Edge(i, i + 1, own, own, matrix) for i in range(1099)])
    assert prove_bound(problem, [], 5000, None, 0)[0] == 2199


def test_a_model_that_cpsat_refuses_is_a_failure_and_no_bound() -> None:
    costs = [(IMPOSSIBLE - 2, IMPOSSIBLE - 1)] * 1100
    with pytest.raises(WorkerFailed, match="CP-SAT refused the model"):
        prove_bound(isolated(costs), [], 1100 * IMPOSSIBLE, None, 0)


def test_the_smallest_problems_equal_the_exhaustive_search() -> None:
    assert find_cheapest(isolated([(3, 2)])) is not None
    assert prove_bound(isolated([(3, 2)]), [], 4, None, 0)[0] == 2
