"""The search for multipliers: cutting planes agree with evaluation, and the bound is nearly the optimum."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from solvers import Edge, EdgeUsage, Node, Problem, evaluate
from solvers.dual_ascent import DualAscent
from solvers.kelley_dual import MAX_HALVINGS, KelleyDual, KelleyModel, _damp_multipliers
from solvers.potentials import FixedPoint
from solvers.relaxation import Relaxation
from solvers.solve_state import SolveState
from tests.testing.exhaustive import find_cheapest
from tests.testing.random_problems import tiny_public
from tests.testing.seeds import at_least

SEEDS = range(60)
CEILING = 3.0
# Nodes that live at each moment, of which half have to use less: the first moment has room for all.
GROUPS = [(4,), (4, 20), (4, 20, 30, 10)]
BASE, ROOM = 10_000, 8


def knapsacks(sizes: tuple[int, ...]) -> tuple[Problem, int]:
    """Nodes that use two bytes, or one for 1000 and their number more, a group a moment; and the least cost in all.

    Every group but the first is as large as that it does not fit; a node that always uses what it leaves of the limit
    makes half of it use one byte.
    """
    limit, nodes, wanted = 3 * max(sizes) // 2 + ROOM, list[Node](), 0
    for moment, count in enumerate(sizes):
        nodes += [
            Node(f"n{moment}.{i}", BASE + np.array([0, 1000 + i]), np.array([2, 1]), (moment, moment + 1))
            for i in range(count)
        ]
        wanted += BASE * count
        if moment:
            filler = np.array([limit - count - count // 2])
            nodes.append(Node(f"filler {moment}", np.array([0]), filler, (moment, moment + 1)))
            wanted += sum(1000 + i for i in range(count // 2))
    return Problem(nodes, [], limit), wanted


def search(problem: Problem) -> tuple[SolveState, Relaxation, KelleyDual]:
    ledger = SolveState(problem, 1e-6, 60.0, True, None, None)
    relaxation = Relaxation.for_problem(ledger, FixedPoint.of(16, ledger.largest_cost))
    relaxation.pass_messages(8, 0.0)
    return ledger, relaxation, KelleyDual(ledger, relaxation, problem.limit or 0)


def test_the_least_plane_is_nowhere_higher_than_at_the_prices_found() -> None:
    looked_at = 0
    for seed in SEEDS:
        problem = tiny_public(seed)
        planes, limit, moments = (
            KelleyModel(problem),
            problem.limit or 0,
            list(range(min(problem.arrays.time_steps, 2))),
        )
        for choice in product(*(range(node.cost.size) for node in problem.nodes)):
            evaluation = evaluate(problem, choice)
            if evaluation.allowed:
                planes.add(np.array(choice), evaluation.cost)
        if not planes.costs:
            continue
        costs, over = np.array(planes.costs), np.array(planes.profiles)[:, moments] - limit
        prices, height = planes.maximize(moments, limit, CEILING)
        found = np.array(list(prices.values()))
        assert ((found >= -1e-9) & (found <= CEILING + 1e-9)).all(), seed
        assert height == pytest.approx((costs + over @ found).min(), rel=1e-6, abs=1e-6), seed
        for tried in product(np.linspace(0, CEILING, 9), repeat=len(moments)):
            assert (costs + over @ np.array(tried)).min() <= height + 1e-6 * max(1, abs(height)), seed
        looked_at += 1
    assert looked_at > at_least(1 / 2, len(SEEDS))


@pytest.mark.parametrize("sizes", GROUPS)
def test_prices_are_found_at_every_moment_that_is_overfilled_and_make_the_bound_tight(sizes: tuple[int, ...]) -> None:
    problem, wanted = knapsacks(sizes)
    _, relaxation, prices = search(problem)
    prices.run(np.zeros(len(problem.nodes), np.int64), 40, 16)
    assert 0.99 * wanted <= relaxation.bound <= wanted
    assert {moment for moment, price in relaxation.multipliers.items() if price > 0} == set(range(1, len(sizes)))


def test_prices_rise_from_where_they_stand_however_low_the_least_of_them() -> None:
    problem, wanted = knapsacks(GROUPS[-1])
    ledger, relaxation, _ = search(problem)
    relaxation.set_multipliers({1: 1000.0, 2: 1.0, 3: 1.0})
    relaxation.pass_messages(8, 0.0)
    prices = KelleyDual(ledger, relaxation, problem.limit or 0)
    prices.run(np.zeros(len(problem.nodes), np.int64), 40, 16)
    assert 0.99 * wanted <= relaxation.bound <= wanted


def test_assignments_that_cost_too_much_add_no_time_step() -> None:
    nodes = [Node(f"n{t}", np.zeros(2, np.int64), np.array([0, use]), (t, t + 1)) for t, use in enumerate((5, 7))]
    for height, more in ((0.0, False), (20.0, True)):  # the choice that overfills both moments costs 10 * (5 - 3)
        _, _, prices = search(Problem(nodes, [], 3))
        prices._add_assignment(np.array([1, 0]))
        prices._add_assignment(np.array([1, 1]))
        prices._time_steps = [0]
        assert prices._track_more_steps({0: 10.0}, height) == more
        assert prices._time_steps == [0, 1][: 1 + more]


def test_no_search_claims_more_than_the_optimum_or_less_than_before() -> None:
    feasible = 0
    for seed in SEEDS:
        problem = tiny_public(seed)
        wanted = find_cheapest(problem)
        if wanted is not None and problem.limit is not None:
            _, relaxation, prices = search(problem)
            before = relaxation.bound
            prices.run(np.zeros(len(problem.nodes), np.int64), 10, 8)
            assert before <= relaxation.bound <= wanted[1].cost, seed
            feasible += 1
    assert feasible > at_least(1 / 4, len(SEEDS))


def test_multipliers_that_gained_nothing_are_moved_halfway_to_the_best() -> None:
    for leaps in range(10):
        share = 1 / 2 ** min(leaps, MAX_HALVINGS)
        assert _damp_multipliers({0: 8.0, 1: 4.0}, {0: 0.0, 2: 4.0}, leaps) == pytest.approx(
            {0: 8 * share, 1: 4 * share, 2: 4 * (1 - share)}
        )


def test_usage_on_edges_moves_the_planes_and_not_the_ascent() -> None:
    """Why there are two: the ascent's direction is the expected usage of nodes."""
    own, none = np.arange(2, dtype=np.int32), np.zeros(2, np.int64)
    nodes = [Node(name, np.array([10**6, 2 * 10**6]), none, (0, 1)) for name in "ab"]
    copy = EdgeUsage(0, 1, np.array([[10, 0], [0, 0]]))
    problem = Problem(nodes, [Edge(0, 1, own, own, np.zeros((2, 2), np.int64), usages=(copy,))], 5)
    _, relaxation, planes = search(problem)
    ascent = DualAscent(relaxation.copy())
    ascent.begin()
    for step in range(50):
        ascent.advance(step / 50)
    planes.run(np.array([0, 0]), 40, 16)
    # Strategies 0 and 0 do not fit; half of them and half of the cheapest that fits would cost 2.5 million.
    assert (ascent.bound, ascent.multipliers, relaxation.bound) == (2 * 10**6, {}, 25 * 10**5)
