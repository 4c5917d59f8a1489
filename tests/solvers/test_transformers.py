"""Problems like the planner's: proven gaps with and without a memory limit."""

from __future__ import annotations

import pytest

from solvers import Problem, evaluate, solve
from tests.testing.transformer_problems import TWO_BY_FOUR, problem

# Bytes, and the gap that must be proven: loose, binding, close to the least feasible limit.
LIMITS = [(None, 1e-6), (4 * 10**9, 1e-6), pytest.param(2_600_000_000, 1e-2, marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def layers() -> Problem:
    return problem(2, TWO_BY_FOUR)


@pytest.mark.parametrize(("limit", "gap"), LIMITS)
def test_a_transformer_on_a_mesh_is_solved_to_a_proven_gap(layers: Problem, limit: int | None, gap: float) -> None:
    found = solve(Problem(layers.nodes, layers.edges, limit), time_limit=20)
    assert found.assignment is not None
    assert found.cost is not None
    assert found.cost - found.bound <= gap * found.cost
    assert evaluate(Problem(layers.nodes, layers.edges, limit), found.assignment).feasible
    assert {"root"} | ({"Kelley"} if limit else set()) <= {each.operator for each in found.log}


def test_less_memory_than_the_parameters_need_is_infeasible_with_a_least_limit(layers: Problem) -> None:
    found = solve(Problem(layers.nodes, layers.edges, 10**9))
    assert found.status == "infeasible"
    assert found.min_feasible_limit is not None
    assert found.min_feasible_limit_bound is not None
    assert 10**9 < found.min_feasible_limit_bound <= found.min_feasible_limit <= 1.02 * found.min_feasible_limit_bound
    assert solve(Problem(layers.nodes, layers.edges, found.min_feasible_limit), time_limit=5).assignment is not None
