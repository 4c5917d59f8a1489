"""The trees together: exact whatever the turns, planted anew for better incumbents, and what the elites' tree finds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from solvers import Problem, branching, elite_tree, solve
from solvers.branching import Branching
from solvers.elite_tree import EliteTree
from solvers.evaluation import evaluate
from solvers.restriction import Restriction
from tests.testing.ascents import crossing_rows, root_of
from tests.testing.exhaustive import find_cheapest
from tests.testing.random_problems import contracting, dear, tiny, tiny_public, with_best
from tests.testing.seeds import seeds
from tests.testing.solver_instances import layered

SEEDS = seeds(40, 4000)


@pytest.mark.parametrize("make", [tiny, tiny_public, contracting, dear])
def test_the_trees_together_prove_what_the_exhaustive_search_finds(
    make: Callable[[int], Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With turns and first trees so small that all of them come up."""
    monkeypatch.setattr(branching, "TURN", 2)
    monkeypatch.setattr(elite_tree, "FIRST_PAIRS", 1)
    for seed in SEEDS:
        problem, wanted = with_best(make, seed)
        state, relaxation, ascent = root_of(problem)
        trees = Branching(state, ascent)
        while trees.can_grow(relaxation) and not state.is_exhausted:
            trees.grow(relaxation, 10)
        assert state.is_closed, seed
        if wanted is None:
            assert state.is_infeasible, seed
        else:
            assert (state.cost, state.bound) == (wanted[1].cost, wanted[1].cost), seed


def test_a_closed_tree_of_elites_has_found_the_best_of_their_strategies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elite_tree, "FIRST_PAIRS", 10)
    for seed in SEEDS:
        problem = tiny_public(seed)
        random = np.random.default_rng(seed)
        state, relaxation, ascent = root_of(problem)
        for _ in range(3):
            state.submit(random.integers(problem.arrays.counts))
        flags = relaxation.nearest(10)[0] | relaxation.incumbent_flags()
        best = find_cheapest(Restriction.identity(problem).restricted_to(flags).problem)
        tree = EliteTree(state)
        tree.plant(relaxation, ascent)
        while tree.can_grow and not state.is_exhausted:
            tree.grow()
        if tree.count and best is not None:
            assert state.cost is not None, seed
            assert state.cost <= best[1].cost, seed


def test_a_tree_of_elites_finds_a_cheaper_assignment_and_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elite_tree, "FIRST_PAIRS", 100)
    state, relaxation, ascent = root_of(layered(seed=1, layers=4, width=8))
    random = np.random.default_rng(1)
    for _ in range(20):
        guess = random.integers(state.problem.arrays.counts)
        state.submit(relaxation.messages.run_icm(relaxation.lagrangian_potentials, guess))
    tree = EliteTree(state)
    tree.plant(relaxation, ascent)
    before, bound = state.cost, state.bound
    while tree.can_grow:
        tree.grow()
    assert before is not None
    assert state.cost is not None
    assert state.cost < before
    assert state.bound == bound


def test_the_elites_tree_is_widened_once_it_is_closed_and_narrowed_for_a_new_incumbent() -> None:
    problem = crossing_rows(np.random.default_rng(1))
    state, relaxation, ascent = root_of(problem)
    state.submit(np.full(18, 3))
    tree = EliteTree(state)
    pairs = list[int]()
    for _ in range(3):
        tree.plant(relaxation, ascent)
        pairs.append(tree._pairs)
    assert pairs == [elite_tree.FIRST_PAIRS << k for k in range(3)]
    assert not tree.is_outdated
    state.submit(solve(problem).assignment or ())
    assert tree.is_outdated
    tree.plant(relaxation, ascent)
    assert tree._pairs == elite_tree.FIRST_PAIRS


def test_a_proof_begins_anew_once_incumbents_have_left_it_behind() -> None:
    problem = crossing_rows(np.random.default_rng(3))
    best = solve(problem).assignment
    assert best is not None
    state, relaxation, ascent = root_of(problem)
    state.submit(np.full(18, 3))
    trees = Branching(state, ascent)
    trees.grow(relaxation, 4)
    first = trees._tree
    state.submit(best)
    trees.grow(relaxation, 3)
    assert trees._tree is first
    trees.grow(relaxation, 6)
    assert trees._tree is not first
    while trees.can_grow(relaxation) and not state.is_exhausted:
        trees.grow(relaxation, 10)
    assert state.is_optimal
    assert state.cost == evaluate(problem, best).cost
