"""solve() compared with the oracle on thousands of tiny problems, and laws that every solver obeys."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from solvers import CUT_OFF, IMPOSSIBLE, Edge, Node, Problem, Progress, evaluate, solve
from solvers.potentials import FixedPoint
from solvers.relaxation import Relaxation
from solvers.solve_state import SolveState
from tests.testing.exhaustive import find_min_peak
from tests.testing.random_problems import dear, tiny, with_best
from tests.testing.seeds import at_least, batches, seeds

BATCHES = batches(1500, 150)
LAWFUL = seeds(60, 5000)
# Seeds tried in place of one whose problem allows nothing, and how far they are apart.
TRIES, STRIDE = 20, 1_000_003
# Seeds that once failed: a plane without moments, a node without strategies, usages scaled as if they were costs.
ONCE_WRONG = [9, 10, 76, 1167, 1339]


@pytest.mark.parametrize("numbers", [*BATCHES, ONCE_WRONG], ids=lambda numbers: f"from{numbers[0]}")
def test_solve_equals_the_exhaustive_search(numbers: list[int]) -> None:
    for seed in numbers:
        problem, wanted = with_best(tiny, seed)
        found = solve(problem)
        if wanted is None:
            assert (found.status, found.assignment) == ("infeasible", None), seed
            continue
        assert found.assignment is not None, seed
        assert (found.status, found.cost) == ("optimal", wanted[1].cost), seed
        assert evaluate(problem, found.assignment).cost == found.cost, seed
        assert found.bound <= wanted[1].cost, seed


def test_a_cutoff_ends_the_search_where_nothing_costs_less_and_changes_no_cheaper_answer() -> None:
    for seed in seeds(100):
        problem, wanted = with_best(tiny, seed)
        if wanted is None:
            assert solve(problem, cutoff=1).status in ("infeasible", "unknown"), seed
            continue
        least = wanted[1].cost
        cheaper, cut = solve(problem, cutoff=least + 1), solve(problem, cutoff=least)
        assert (cheaper.status, cheaper.cost) == ("optimal", least), seed
        assert cut.reason == CUT_OFF or cut.status == "optimal", seed
        assert cut.bound <= least, seed


def test_an_infeasible_answer_brackets_the_least_limit() -> None:
    exact = bracketed = 0
    for seed in seeds(700):
        problem = tiny(seed)
        found = solve(problem)
        if found.status != "infeasible":
            continue
        least = find_min_peak(problem)
        if least is None:
            assert found.min_feasible_limit is None, seed
            continue
        assert found.min_feasible_limit_bound is not None, seed
        assert found.min_feasible_limit is not None, seed
        assert found.min_feasible_limit_bound <= least <= found.min_feasible_limit, seed
        assert found.min_peak_assignment is not None, seed
        assert evaluate(problem, found.min_peak_assignment).peak == found.min_feasible_limit, seed
        bracketed += 1
        exact += found.min_feasible_limit == least
    assert exact >= 0.9 * bracketed > 0


def test_what_is_forbidden_stays_so_beside_permitted_costs_that_add_up_to_more() -> None:
    own, forbidden = np.arange(2, dtype=np.int32), np.full((2, 2), IMPOSSIBLE)
    nodes = [Node(f"n{i}", np.array([7, IMPOSSIBLE - 1]), np.zeros(2, np.int64), (0, 1)) for i in range(5)]
    state = SolveState(Problem(nodes, [Edge(0, 1, own, own, forbidden)]), 0.0, 1.0, True, None, None)
    Relaxation.for_problem(state, FixedPoint.of(1, state.largest_cost)).pass_messages(1, 0.0)
    assert state.is_infeasible
    assert solve(Problem(nodes, [])).cost == 5 * 7


# Problems at the ends of what can be asked.
LARGEST = (1 << 63) - 1
EXTREME = [
    (Problem([Node("n", np.array([LARGEST, 4]), np.array([0, 0]), (0, 1))], [], 0), "optimal", 4),
    (Problem([Node("n", np.array([LARGEST]), np.array([0]), (0, 1))], []), "infeasible", None),
    (Problem([Node("n", np.array([1, 2]), np.array([1, 0]), (0, 1))], [], 0), "optimal", 2),
    (Problem([Node("n", np.array([1]), np.array([1]), (0, 1))], [], 0), "infeasible", None),
    (Problem([Node("n", np.array([1]), np.array([1]), (0, 0))], [], 0), "optimal", 1),
]


@pytest.mark.parametrize(("problem", "status", "cost"), EXTREME)
def test_extreme_problems_have_an_answer(problem: Problem, status: str, cost: int | None) -> None:
    for deterministic in (False, True):
        found = solve(problem, time_limit=5.0, deterministic=deterministic)
        assert (found.status, found.cost) == (status, cost)


def test_costs_that_add_up_to_more_than_a_forbidden_one_change_no_answer() -> None:
    feasible = infeasible = over = 0
    numbers = seeds(300)
    for seed in numbers:
        problem, wanted = with_best(dear, seed)
        found = solve(problem, gap=0.0)
        assert found.failures == (), seed
        if wanted is not None:
            assert found.status in ("optimal", "feasible"), seed
            assert found.cost is not None, seed
            assert found.bound <= wanted[1].cost <= found.cost, seed
            feasible += 1
            over += wanted[1].cost >= IMPOSSIBLE
        else:
            least = find_min_peak(problem)
            assert found.assignment is None, seed
            assert found.status == "unknown" or (found.min_feasible_limit is None) == (least is None), seed
            infeasible += found.status == "infeasible"
    assert feasible > at_least(1 / 2, len(numbers))
    assert infeasible > at_least(1 / 10, len(numbers))
    assert over > at_least(1 / 10, len(numbers))


def _with_limit(problem: Problem, limit: int | None) -> Problem:
    return Problem(problem.nodes, problem.edges, limit)


def _allowed_without_limit(seed: int) -> Problem:
    """Return `tiny`'s problem of this seed or, as a third of them allow nothing at any limit, the first one after it in
    long strides that allows something."""
    problems = (tiny(other) for other in range(seed, seed + TRIES * STRIDE, STRIDE))
    return next((each for each in problems if solve(_with_limit(each, None)).assignment is not None), tiny(seed))


def test_a_tighter_limit_never_lowers_the_cost() -> None:
    compared = 0
    for seed in LAWFUL:
        problem = _allowed_without_limit(seed)
        free = solve(_with_limit(problem, None))
        if free.assignment is None:
            continue
        compared += 1
        cost = free.cost or 0
        peak = evaluate(problem, free.assignment).peak
        for limit in (peak, peak * 3 // 4, peak // 2):
            found = solve(_with_limit(problem, limit))
            assert found.cost is None or found.cost >= cost, seed
            cost = cost if found.cost is None else found.cost
    assert compared > len(LAWFUL) / 2


def test_more_options_never_raise_the_optimum() -> None:
    for seed in LAWFUL:
        problem = tiny(seed)
        fewer = _without_last_strategies(problem)
        some, all_of_them = solve(fewer).cost, solve(problem).cost
        assert some is None or (all_of_them is not None and all_of_them <= some), seed


def _without_last_strategies(problem: Problem) -> Problem:
    keep = [max(node.cost.size - 1, 1) for node in problem.nodes]
    nodes = [replace(n, cost=n.cost[:k], usage=n.usage[:k]) for n, k in zip(problem.nodes, keep, strict=True)]
    edges = [
        replace(e, source_class=e.source_class[: keep[e.source]], target_class=e.target_class[: keep[e.target]])
        for e in problem.edges
    ]
    return Problem(nodes, edges, problem.limit)


def test_two_deterministic_runs_are_identical() -> None:
    for seed in LAWFUL:
        first, second = (solve(tiny(seed), deterministic=True, time_limit=5) for _ in range(2))
        assert replace(first, wall_s=0.0) == replace(second, wall_s=0.0), seed
        assert first.reproducible


def test_a_known_choice_never_beats_the_answer() -> None:
    feasible = 0
    for seed in LAWFUL:
        problem, wanted = with_best(tiny, seed)
        if wanted is not None:
            found = solve(problem, starts=[wanted[0]], time_limit=0.0)
            assert found.assignment is not None, seed
            assert found.cost == wanted[1].cost, seed
            feasible += 1
    assert feasible > at_least(1 / 2, len(LAWFUL))


def _chain(length: int, strategies: int) -> Problem:
    rng = np.random.default_rng(0)
    nodes = [
        Node(f"n{i}", rng.integers(0, 10**9, strategies), rng.integers(0, 10**9, strategies), (i, i + 8))
        for i in range(length)
    ]
    classes = np.arange(strategies, dtype=np.int32)
    matrix = rng.integers(0, 10**9, (strategies, strategies))
    pairs = [(i, j) for i in range(length) for j in (i + 1, i + 5) if j < length]
    return Problem(nodes, [Edge(i, j, classes, classes, matrix) for i, j in pairs], 3 * 10**9)


def test_a_time_limit_stops_with_an_answer_and_says_so() -> None:
    found = solve(_chain(300, 12), time_limit=0.3, gap=0.0)
    assert found.status == "feasible"
    assert found.reason == "time limit"
    assert not found.reproducible
    assert found.wall_s < 3.0


def test_cancelling_stops_and_progress_only_improves() -> None:
    seen: list[Progress] = []
    found = solve(_chain(200, 8), gap=0.0, on_progress=seen.append, cancelled=lambda: len(seen) > 5)
    assert found.reason == "cancelled"
    bounds = [progress.bound for progress in seen]
    costs = [progress.incumbent for progress in seen if progress.incumbent is not None]
    assert bounds == sorted(bounds)
    assert costs == sorted(costs, reverse=True)


def test_huge_costs_stay_exact() -> None:
    cost = np.array([10**15 + 1, 10**15], np.int64)
    nodes = [Node(f"n{i}", cost, np.zeros(2, np.int64), (0, 1)) for i in range(60)]
    assert solve(Problem(nodes, []), gap=0.0).bound == 60 * 10**15


def test_a_problem_without_nodes_costs_nothing() -> None:
    found = solve(Problem([], [], 5))
    assert (found.status, found.assignment, found.cost) == ("optimal", (), 0)


def test_a_numpy_integer_as_the_limit_changes_nothing() -> None:
    """Its products would wrap around: bounds multiply the limit by multipliers of 60 bits."""
    for seed in seeds(40):
        problem = tiny(seed)
        if problem.limit is not None:
            same = solve(Problem(problem.nodes, problem.edges, np.int64(problem.limit)), deterministic=True)  # type: ignore[arg-type]
            found = solve(problem, deterministic=True)
            assert (same.cost, same.bound, type(same.bound)) == (found.cost, found.bound, int), seed


def test_a_proven_gap_is_reported_however_large_the_costs_are() -> None:
    """The gap of such costs, as a float, is rounded to above the target."""
    dear, own = np.array([IMPOSSIBLE - 1, IMPOSSIBLE - 2]), np.arange(2, dtype=np.int32)
    matrix = np.array([[IMPOSSIBLE - 1, IMPOSSIBLE - 1], [IMPOSSIBLE - 1, IMPOSSIBLE - 8]])
    nodes = [Node(f"n{i}", dear, np.array([3, 4]), (0, 1)) for i in range(1000)]
    found = solve(Problem(nodes, [Edge(i, i + 1, own, own, matrix) for i in range(999)], 3500), deterministic=True)
    assert (found.status, found.reason) == ("optimal", "gap proven")
