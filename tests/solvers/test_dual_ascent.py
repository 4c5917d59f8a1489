"""The dual bound is a proof at every step and for all multipliers; on an easy instance it meets the optimum."""

from __future__ import annotations

import numpy as np
import pytest

from solvers import IMPOSSIBLE, Edge, Node, Problem, usage_profile
from solvers.ascent_steps import step_multipliers
from solvers.dual_ascent import STEPS_PER_LOOK, _find_peaks
from tests.testing.random_problems import contracting, tiny, tiny_public, with_best
from tests.testing.root_duals import ascent_of
from tests.testing.seeds import at_least, seeds

SEEDS = seeds(120)


def test_no_step_of_the_dual_claims_more_than_the_optimum() -> None:
    for make in (tiny, tiny_public, contracting):
        feasible = 0
        for seed in SEEDS:
            problem, wanted = with_best(make, seed)
            if wanted is not None:
                dual = ascent_of(problem)
                dual.begin()
                steps = [dual.advance(step / 20) for step in range(20)]
                assert max(steps) <= dual.bound <= wanted[1].cost, (make.__name__, seed)
                feasible += 1
        assert feasible > at_least(1 / 4, len(SEEDS)), make.__name__


def test_a_later_cycle_keeps_the_bound_and_claims_no_more_than_the_optimum() -> None:
    feasible = 0
    for seed in SEEDS:
        problem, wanted = with_best(tiny_public, seed)
        if wanted is not None:
            dual = ascent_of(problem)
            dual.begin()
            dual.advance(0.0)
            before = dual.bound
            dual.restart()
            for step in range(10):
                dual.advance(1.0 + step / 10)
            assert before <= dual.bound <= wanted[1].cost, seed
            feasible += 1
    assert feasible > at_least(1 / 4, len(SEEDS))


def _knapsack(count: int) -> Problem:
    """Each node either costs nothing and uses two bytes, or costs its number and uses one; not all may use two."""
    nodes = [Node(f"n{i}", np.array([0, 1000 + i]), np.array([2, 1]), (0, 1)) for i in range(count)]
    return Problem(nodes, [], limit=count + count // 2)


def test_prices_rise_until_the_limit_holds_and_the_bound_is_tight() -> None:
    count = 60
    wanted = sum(1000 + i for i in range(count // 2))
    dual = ascent_of(_knapsack(count))
    dual.begin()
    for step in range(400):
        dual.advance(step / 400)
    assert 0.99 * wanted <= dual.bound <= wanted
    assert 1000 <= dual.multipliers[0] <= 1000 + count


def test_a_restart_goes_on_with_the_steps_that_the_first_price_gave() -> None:
    dual = ascent_of(_knapsack(60))
    dual.begin()
    step = dual._step
    for progress in range(20):
        dual.advance(progress / 20)
    dual.restart()
    assert dual._step == step > 0
    assert dict(zip(dual._time_steps.tolist(), dual._adam[0].tolist(), strict=True)) == dual.multipliers


def test_a_moment_that_is_overfilled_only_once_others_have_their_price_gets_one_too() -> None:
    """A choice that is made at three moments, and uses much at one of them, whose price has it made otherwise."""
    costs, uses = np.array([0, 1000, 3000, 100_000]), np.where(np.eye(3, 4, dtype=bool), 9, 1)
    nodes = [Node(f"n{t}", costs * (t == 0), uses[t], (t, t + 1)) for t in range(3)]
    four, same = np.arange(4, dtype=np.int32), np.where(np.eye(4, dtype=bool), 0, IMPOSSIBLE)
    dual = ascent_of(Problem(nodes, [Edge(t, t + 1, four, four, same) for t in range(2)], 3))
    dual.begin()
    for step in range(200):
        dual.advance(step / 200)
    assert dual.multipliers.keys() == {0, 1, 2}


def test_the_first_price_is_that_of_the_moment_that_is_overfilled_most() -> None:
    crowds = [3, 9, 5]
    nodes = [
        Node(f"n{moment}.{i}", np.array([0, 1000 + i]), np.array([2, 1]), (moment, moment + 1))
        for moment, crowd in enumerate(crowds)
        for i in range(crowd)
    ]
    dual = ascent_of(Problem(nodes, [], limit=9))
    dual.begin()
    assert dual.multipliers.keys() == {1}
    assert dual.multipliers[1] > 0


def test_at_temperature_zero_the_expected_usage_is_that_of_the_cheapest_strategies() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        spans = np.sort(rng.integers(0, 7, (6, 2)), axis=1).tolist()
        nodes = [
            Node(f"n{i}", rng.permutation(4) * 1000, rng.integers(0, 9, 4), (start, stop))
            for i, (start, stop) in enumerate(spans)
        ]
        problem = Problem(nodes, [], limit=12)
        dual = ascent_of(problem)
        dual.begin()
        looks = dual._relaxation.messages.min_marginals.reshape(6, 4)
        assert (np.diff(np.sort(looks, axis=1)[:, :2], axis=1) > 0).all(), "no ties"
        wanted = usage_profile(problem, looks.argmin(axis=1)) - 12
        assert dual._find_overload(1e-9) == pytest.approx(wanted), seed


def test_nothing_is_excluded_where_costs_are_too_large_to_be_compared() -> None:
    """Sums of these costs exceed 2**61, up to which bounds of the ascent are told apart."""
    count = 600
    nodes = [Node(f"n{i}", np.array([9 * 10**15, 5 * 10**15 + i]), np.array([1, 3]), (0, 1)) for i in range(count)]
    problem = Problem(nodes, [], 2 * count)
    dual = ascent_of(problem)
    dual.begin()
    for step in range(40):
        dual.advance(step / 40)
    assert dual._relaxation.allowed.all()
    assert dual.bound <= count // 2 * (9 * 10**15 + 5 * 10**15) + sum(range(count // 2))


def test_an_ascent_without_an_overload_resumes_in_a_branch_without_steps() -> None:
    """A branch names its time steps as the whole problem does, and watches few: none may be taken for another."""
    nodes = [Node(f"n{t}", np.array([t, 1000]), np.array([1, 25]), (t, t + 1)) for t in range(6)]
    problem = Problem(nodes, [], 9)
    dual = ascent_of(problem)
    dual.begin()
    assert dual._step == 0
    branch = dual._relaxation.with_rows(
        Problem.from_arrays(problem.arrays.at_time_steps(np.array([4])), 9), {}, np.array([4])
    )
    resumed = dual.resume(branch.copy())
    resumed.take(0.5, 3)
    assert resumed._time_steps.tolist() == [4]
    assert resumed.bound <= sum(range(6))


def test_each_overloaded_stretch_is_represented_by_its_peak_the_highest_first() -> None:
    overload = np.array([0.0, 3.0, 5.0, 0.0, 9.0, -1.0, 2.0, 1.0])
    assert _find_peaks(overload, np.zeros(0, np.int64)).tolist() == [4, 2, 6]
    assert _find_peaks(overload, np.array([2])).tolist() == [4, 6]
    many = np.repeat(np.arange(1.0, 2 * STEPS_PER_LOOK + 1), 2) * np.tile([1, 0], 2 * STEPS_PER_LOOK)
    assert _find_peaks(many, np.zeros(0, np.int64)).tolist() == [
        2 * (2 * STEPS_PER_LOOK - 1 - k) for k in range(STEPS_PER_LOOK)
    ]


def test_an_ascent_moves_each_price_by_a_step_towards_its_overload() -> None:
    values, mean, square = np.zeros(2), np.zeros(2), np.zeros(2)
    step_multipliers(values, mean, square, 1, np.array([5.0, -5.0]), 0.25)
    assert values.tolist() == [0.25, 0.0]
    step_multipliers(values, mean, square, 2, np.array([1e9, -1.0]), 0.25)
    assert values[0] > 0.25


def test_a_problem_without_a_limit_has_no_prices() -> None:
    problem = tiny_public(0)
    dual = ascent_of(Problem(problem.nodes, problem.edges))
    dual.begin()
    dual.advance(0.0)
    dual.restart()
    assert dual.multipliers == {}
