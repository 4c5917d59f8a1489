"""Trees whose branches are bounded by dual ascent: exact on small problems, and quick where rows cross."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from solvers import Node, Problem
from solvers.ascent_bounding import AscentBounding
from solvers.branching import Branching
from solvers.evaluation import evaluate
from solvers.proof_tree import ProofTree
from solvers.solve_state import SolveState
from tests.testing.ascents import crossing_rows, root_of
from tests.testing.random_problems import contracting, dear, tiny, tiny_public, with_best
from tests.testing.seeds import seeds

SEEDS = seeds(40, 3000)


def grow(state: SolveState, tree: ProofTree) -> list[int]:
    """Grow the tree until nothing is open; return the state's bounds."""
    bounds = [state.bound]
    while tree.can_grow and not state.is_exhausted:
        tree.grow()
        bounds.append(state.bound)
    return bounds


@pytest.mark.parametrize("make", [tiny, tiny_public, contracting, dear])
def test_a_tree_alone_proves_what_the_exhaustive_search_finds(make: Callable[[int], Problem]) -> None:
    """Without an incumbent to start from; `tiny` has usage on edges, some without a limit."""
    for seed in SEEDS:
        problem, wanted = with_best(make, seed)
        state, relaxation, ascent = root_of(problem)
        bounding = AscentBounding(relaxation, ascent)
        bounding.patience = 1 << 62
        bounds = grow(state, ProofTree(state, relaxation, bounding))
        assert bounds == sorted(bounds), seed
        assert state.is_closed, seed
        if wanted is None:
            assert state.is_infeasible, seed
        else:
            assert (state.cost, state.bound) == (wanted[1].cost, wanted[1].cost), seed


def test_time_steps_that_turn_out_to_matter_are_watched_from_then_on() -> None:
    for seed in range(5):
        problem = crossing_rows(np.random.default_rng(seed))
        state, relaxation, ascent = root_of(problem)
        relaxation.set_multipliers({})
        bounding = AscentBounding(relaxation, ascent)
        bounding.patience = 1 << 62
        grow(state, ProofTree(state, relaxation, bounding))
        assert state.is_closed, seed
        assert state.assignment is not None
        assert evaluate(problem, state.assignment).cost == state.bound, seed
        assert bounding._watched.size > 1, seed


def _alike(count: int) -> Problem:
    """Return nodes that all use two bytes for nothing or none for 1000, and a limit that is odd: all branches cost the
    same."""
    nodes = [Node(f"n{i}", np.array([0, 1000]), np.array([2, 0]), (0, 1)) for i in range(count)]
    return Problem(nodes, [], count - 1)


def test_a_tree_that_gains_nothing_gives_way_to_linear_programs() -> None:
    state, relaxation, ascent = root_of(_alike(60))
    state.submit((np.arange(60) < 31).astype(np.int64))
    branching = Branching(state, ascent)
    branching.grow(relaxation, 2000)
    assert branching.dual is None
    assert state.is_optimal
    assert state.cost == 31_000
