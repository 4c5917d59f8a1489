"""The planner's kind of problem: proven gaps with and without a limit on memory."""

from __future__ import annotations

import pytest

from solvers import Problem, evaluate, solve
from solvers.haggling import haggle
from solvers.ledger import Ledger
from solvers.potentials import Scale
from solvers.relaxation import Relaxation
from tests.testing.transformer_problems import TWO_BY_FOUR, problem

# Bytes, and the gap that must be proven: loose, binding, close to the least feasible limit.
LIMITS = [(None, 1e-6), (4 * 10**9, 1e-6), pytest.param(2_600_000_000, 1e-2, marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def layers() -> Problem:
    return problem(2, TWO_BY_FOUR)


@pytest.mark.parametrize(("limit", "gap"), LIMITS)
def test_a_transformer_on_a_mesh_is_solved_to_a_proven_gap(layers: Problem, limit: int | None, gap: float) -> None:
    found = solve(Problem(layers.nodes, layers.edges, limit), time_limit=20)
    assert found.choice is not None
    assert found.cost is not None
    assert found.cost - found.bound <= gap * found.cost
    assert evaluate(Problem(layers.nodes, layers.edges, limit), found.choice).feasible


def test_less_memory_than_the_parameters_need_is_infeasible_with_a_least_limit(layers: Problem) -> None:
    found = solve(Problem(layers.nodes, layers.edges, 10**9))
    assert found.status == "infeasible"
    assert found.least_limit is not None
    assert found.least_limit_bound is not None
    assert 10**9 < found.least_limit_bound <= found.least_limit <= 1.02 * found.least_limit_bound
    assert solve(Problem(layers.nodes, layers.edges, found.least_limit), time_limit=5).choice is not None


def test_prices_that_follow_the_usage_find_what_fits_near_the_least_limit(layers: Problem) -> None:
    least = solve(Problem(layers.nodes, layers.edges, 0)).least_limit
    assert least is not None
    ledger = Ledger(Problem(layers.nodes, layers.edges, int(1.02 * least)), 1e-3, 60.0, True, None, None)
    relaxation = Relaxation.over(ledger, Scale.of(16, ledger.largest_cost))
    relaxation.tighten(20, 0.0)
    prices, bound = relaxation.prices, relaxation.bound
    haggle(ledger, relaxation, 60)
    assert ledger.choice is not None
    assert (relaxation.prices, relaxation.bound) == (prices, bound)
