"""Presolve against the exhaustive oracle: the optimum before is the optimum after, and its choice leads back."""

from __future__ import annotations

import pytest

from solvers import IMPOSSIBLE, Problem, evaluate
from solvers.exhaustive import cheapest, least_peak
from solvers.presolve import REDUCTIONS, presolve
from tests.solvers.random_problems import contracting, tiny, tiny_public

BATCHES = [range(start, start + 100) for start in range(0, 300, 100)]
KINDS = [tiny, tiny_public, contracting]


def _check(problem: Problem, seed: int, **options: object) -> None:
    wanted, reduced = cheapest(problem), presolve(problem, **options)  # type: ignore[arg-type]
    if reduced is None:
        assert wanted is None, seed
        return
    found = cheapest(reduced.problem)
    assert (wanted is None) == (found is None), seed
    if wanted is None or found is None:
        return
    assert found[1].cost == wanted[1].cost, seed
    lifted = evaluate(problem, reduced.lift(found[0]))
    assert lifted.feasible, seed
    assert lifted.cost == wanted[1].cost, seed


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("seeds", BATCHES, ids=lambda seeds: f"from{seeds[0]}")
def test_the_optimum_before_is_the_optimum_after(kind, seeds: range) -> None:  # type: ignore[no-untyped-def]
    for seed in seeds:
        _check(kind(seed), seed)


@pytest.mark.parametrize("reduction", REDUCTIONS, ids=lambda reduction: reduction.__module__.rpartition(".")[2])
def test_each_reduction_is_exact_alone(reduction) -> None:  # type: ignore[no-untyped-def]
    for seed in range(2000, 2040):
        for kind in KINDS:
            _check(kind(seed), seed, reductions=(reduction,))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_choice_of_the_reduced_problem_leads_back_at_its_own_cost_and_peak(kind) -> None:  # type: ignore[no-untyped-def]
    for seed in range(3000, 3100):
        problem = kind(seed)
        reduced = presolve(problem)
        if reduced is None:
            continue
        choice = [seed % node.cost.size for node in reduced.problem.nodes]
        before, after = evaluate(reduced.problem, choice), evaluate(problem, reduced.lift(choice))
        assert (before.cost >= IMPOSSIBLE) == (after.cost >= IMPOSSIBLE), seed
        assert before.feasible == after.feasible, seed
        if before.feasible:
            assert before.cost == after.cost, seed
            lowered = reduced.lower(reduced.lift(choice))
            assert lowered is not None, seed
            assert evaluate(reduced.problem, lowered).cost <= before.cost, seed


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_feasible_choice_lowers_to_one_that_is_feasible_and_costs_no_more(kind) -> None:  # type: ignore[no-untyped-def]
    for seed in range(4000, 4100):
        problem = kind(seed)
        wanted, reduced = cheapest(problem), presolve(problem)
        if wanted is not None:
            assert reduced is not None, seed
            lowered = reduced.lower(wanted[0])
            assert lowered is not None, seed
            assert evaluate(reduced.problem, lowered).feasible, seed


def test_the_least_limit_above_the_limit_stays_what_it_is() -> None:
    for seed in range(5000, 5300):
        problem = tiny(seed)
        least, reduced = least_peak(problem), presolve(problem)
        if problem.limit is not None and least is not None and least > problem.limit:
            assert reduced is not None, seed
            assert least_peak(reduced.problem) == least, seed


def test_presolve_reduces_what_is_made_to_collapse() -> None:
    for seed in range(50):
        reduced = presolve(Problem(contracting(seed).nodes, contracting(seed).edges))
        assert reduced is None or sum(node.cost.size > 1 for node in reduced.problem.nodes) <= 2, seed
