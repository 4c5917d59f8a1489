"""Proof trees: exact on small problems, whatever the linear programs do, and quick where fractions pack a knapsack."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from solvers import Node, Problem
from solvers.evaluation import evaluate
from solvers.oriented_graph import OrientedGraph
from solvers.potentials import FixedPoint
from solvers.proof_tree import MAX_OPEN, ProofTree
from solvers.relaxation import Relaxation
from solvers.solve_state import SolveState
from tests.testing.random_problems import contracting, dear, tiny, tiny_public, with_best
from tests.testing.seeds import seeds

SEEDS = seeds(24, 3000)
NODES = 14


def tree_of(
    problem: Problem, *, passes: int = 1, multipliers: dict[int, float] | None = None
) -> tuple[SolveState, ProofTree]:
    state = SolveState(problem, 0.0, 600.0, True, None, None)
    scale = FixedPoint.of(OrientedGraph.of(problem.arrays).degree, state.largest_cost)
    relaxation = Relaxation.for_problem(state, scale)
    relaxation.set_multipliers(multipliers or {})
    relaxation.pass_messages(passes, 0.0)
    return state, ProofTree(state, relaxation)


def grow(state: SolveState, tree: ProofTree) -> int:
    """Grow the tree until nothing is open; return the number of branches."""
    count = 0
    while tree.can_grow and not state.is_exhausted:
        tree.grow()
        count += 1
    return count


@pytest.mark.parametrize("make", [tiny, tiny_public, contracting, dear])
def test_a_tree_alone_proves_what_the_exhaustive_search_finds(make: Callable[[int], Problem]) -> None:
    """Without an incumbent to start from and without multipliers; `tiny` has usage on edges, some without a limit."""
    for seed in SEEDS:
        problem, wanted = with_best(make, seed)
        state, tree = tree_of(problem)
        grow(state, tree)
        assert state.failures == [], seed
        assert state.is_closed, seed
        if wanted is None:
            assert state.is_infeasible, seed
        else:
            assert (state.cost, state.bound) == (wanted[1].cost, wanted[1].cost), seed


def test_the_bound_of_an_open_tree_is_below_the_optimum() -> None:
    for seed in SEEDS:
        problem, wanted = with_best(tiny_public, seed)
        if wanted is None or problem.limit is None:
            continue
        state, tree = tree_of(problem)
        bounds = [state.bound]
        while tree.can_grow and not state.is_exhausted:
            tree.grow()
            bounds.append(state.bound)
        assert bounds == sorted(bounds), seed
        assert bounds[-1] <= wanted[1].cost, seed


def _odd_knapsack() -> Problem:
    """Return nodes that use two bytes or, for 1000 and their number more, none, and a limit that is odd."""
    nodes = [Node(f"n{i}", np.array([0, 1000 + i]), np.array([2, 0]), (0, 1)) for i in range(NODES)]
    return Problem(nodes, [], NODES - 1)


def test_a_tree_of_a_knapsack_is_small() -> None:
    problem = _odd_knapsack()
    state, tree = tree_of(problem)
    assert grow(state, tree) <= 20
    assert state.cost == state.bound == sum(1000 + i for i in range(NODES - (NODES - 1) // 2))


def _too_large(count: int) -> Problem:
    """Return nodes of which even fractions use a byte more than the limit, so that linear programs have no optimum."""
    nodes = [Node(f"n{i}", np.array([0, 1000 + i]), np.array([2, 1]), (0, 1)) for i in range(count)]
    return Problem(nodes, [], count - 1)


def test_a_branch_whose_linear_program_has_no_optimum_is_closed_by_raising_its_multipliers() -> None:
    state, tree = tree_of(_too_large(NODES), multipliers={0: 500.0})
    assert not state.is_closed
    assert grow(state, tree) == 1
    assert state.is_infeasible


def test_a_tree_without_linear_programs_or_multipliers_enumerates() -> None:
    state, tree = tree_of(_too_large(4))
    assert grow(state, tree) == 2**5 - 1
    assert state.is_infeasible
    assert state.failures == []


def test_a_tree_keeps_its_bound_where_the_time_is_up() -> None:
    problem = _odd_knapsack()
    state, tree = tree_of(problem)
    before, state.stop_reason = state.bound, "time limit"
    tree.grow()
    assert tree.can_grow
    assert state.bound >= before
    state.stop_reason = ""
    grow(state, tree)
    assert state.assignment is not None
    assert state.bound == evaluate(problem, state.assignment).cost


def test_a_tree_with_too_many_open_branches_does_not_grow() -> None:
    _, tree = tree_of(_odd_knapsack())
    tree._open *= MAX_OPEN
    assert not tree.can_grow
