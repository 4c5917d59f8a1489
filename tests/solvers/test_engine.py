"""The control of a solve with a usage limit, with and without a clock: exact answers, and a log that says why."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from solvers import Problem, solve
from tests.testing.random_problems import contracting, tiny, tiny_public, with_best
from tests.testing.seeds import seeds
from tests.testing.solver_instances import layered
from tests.testing.synthetic_instances import look_alike


@pytest.mark.parametrize("make", [tiny, tiny_public, contracting])
@pytest.mark.parametrize("processes", [1, 2])
def test_answers_by_the_clock_equal_the_exhaustive_search(make: Callable[[int], Problem], processes: int) -> None:
    for seed in seeds(20, 2000):
        problem, wanted = with_best(make, seed)
        found = solve(problem, gap=0.0, time_limit=60.0, processes=processes)
        assert found.failures == (), seed
        if found.bound_numeric is not None and wanted is not None:
            assert found.bound_numeric <= wanted[1].cost * (1 + 1e-6) + 1, seed
        assert found.cost == (None if wanted is None else wanted[1].cost), seed
        assert wanted is None or found.bound <= wanted[1].cost, seed


def test_the_trajectory_only_improves_and_ends_at_the_answer() -> None:
    found = solve(layered(seed=3, layers=6, width=12), gap=0.0, time_limit=10.0)
    points = found.trajectory
    bounds, costs = [point.bound for point in points], [point.cost for point in points if point.cost is not None]
    assert bounds == sorted(bounds)
    assert costs == sorted(costs, reverse=True)
    assert (costs[-1], bounds[-1]) == (found.cost, found.bound)
    assert {point.operator for point in points} <= {"start", *(line.operator for line in found.log)}


def test_a_run_without_a_clock_logs_the_same_slices_twice() -> None:
    problem = layered(seed=4, layers=4, width=8)
    first, again = (solve(problem, gap=0.0, deterministic=True, time_limit=2.0) for _ in range(2))
    assert first.log == again.log
    assert first.trajectory == again.trajectory
    assert {"root", "dual", "tree search", "messages"} <= {line.operator for line in first.log}


def test_the_first_second_of_a_solve_does_not_depend_on_its_limit() -> None:
    """Without a clock the budget decides only when to stop, so that a shorter run is the beginning of a longer one."""
    problem = layered(seed=6, layers=8, width=14)
    short, long = (solve(problem, gap=0.0, deterministic=True, time_limit=limit) for limit in (2.0, 4.0))
    began = [point for point in short.trajectory if point.seconds < 1.8]
    assert began == list(long.trajectory[: len(began)])
    assert (long.cost or 0) <= (short.cost or 0)
    assert long.bound >= short.bound


def test_a_small_problem_gets_one_cycle_of_the_dual_and_one_walk_before_its_mips() -> None:
    found = solve(layered(seed=4, layers=4, width=8), gap=0.0, deterministic=True, time_limit=2.0)
    operators = [line.operator for line in found.log]
    assert operators[: operators.index("messages")] == ["root", "dual", "tree search"]


@pytest.mark.slow
def test_column_generation_comes_before_the_mips_where_much_is_left() -> None:
    """On this problem its linear programs raise the bound at once, and their support has better assignments than the
    strategies near the elites."""
    found = solve(look_alike("diffusion, training", seed=0), gap=0.0, deterministic=True, time_limit=10.0)
    operators = [line.operator for line in found.log]
    assert operators.index("column generation") > operators.index("tree search")
    assert "MIP of elites" not in operators[: operators.index("column generation")]
    assert found.cost is not None
    assert found.bound <= found.cost
