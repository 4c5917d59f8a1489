"""Presolve compared with the exhaustive oracle: the same optimum, and a solution that can be restored."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from solvers import IMPOSSIBLE, Edge, Node, Problem, evaluate
from solvers.presolve import REDUCTIONS, presolve
from solvers.presolve.state import PresolveState
from tests.testing.exhaustive import find_cheapest, find_min_peak
from tests.testing.random_problems import contracting, tiny, tiny_nodes, tiny_public, with_best
from tests.testing.seeds import batches, seeds

BATCHES = batches(300, 100)
ABSORPTION, CONTRACTION, DOMINANCE, ELIMINATION, PARALLEL = (
    next(each for each in REDUCTIONS if each.__module__.endswith(name))
    for name in (
        "cost_projection",
        "functional_aggregation",
        "dead_end_elimination",
        "degree2_elimination",
        "parallel_edges",
    )
)
KINDS = [tiny_nodes, tiny_public, contracting]


def _check(kind: Callable[[int], Problem], seed: int, **options: object) -> None:
    problem, wanted = with_best(kind, seed)
    reduced = presolve(problem, **options)  # type: ignore[arg-type]
    if reduced is None:
        assert wanted is None, seed
        return
    found = find_cheapest(reduced.problem)
    assert (wanted is None) == (found is None), seed
    if wanted is None or found is None:
        return
    assert found[1].cost == wanted[1].cost, seed
    lifted = evaluate(problem, reduced.postsolve(found[0]))
    assert lifted.feasible, seed
    assert lifted.cost == wanted[1].cost, seed


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("numbers", BATCHES, ids=lambda numbers: f"from{numbers[0]}")
def test_the_optimum_before_is_the_optimum_after(kind, numbers: list[int]) -> None:  # type: ignore[no-untyped-def]
    for seed in numbers:
        _check(kind, seed)


def test_a_problem_with_usage_on_edges_is_left_as_it_is() -> None:
    with_usage = [each for each in map(tiny, range(50)) if each.arrays.edge_usage_edge.size]
    assert with_usage
    for problem in with_usage:
        reduced = presolve(problem)
        assert reduced is not None
        assert reduced.problem is problem


@pytest.mark.parametrize("reduction", REDUCTIONS, ids=lambda reduction: reduction.__module__.rpartition(".")[2])
def test_each_reduction_is_exact_on_its_own(reduction) -> None:  # type: ignore[no-untyped-def]
    for seed in seeds(40, 2000):
        for kind in KINDS:
            _check(kind, seed, reductions=(reduction,))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_solution_of_the_reduced_problem_is_restored_with_its_cost_and_peak(kind) -> None:  # type: ignore[no-untyped-def]
    led_back = 0
    for seed in seeds(100, 3000):
        problem = kind(seed)
        reduced = presolve(problem)
        if reduced is None:
            continue
        choice = seed % reduced.problem.arrays.counts
        before, after = evaluate(reduced.problem, choice), evaluate(problem, reduced.postsolve(choice))
        assert (before.cost >= IMPOSSIBLE) == (after.cost >= IMPOSSIBLE), seed
        assert before.feasible == after.feasible, seed
        if before.feasible:
            assert before.cost == after.cost, seed
            lowered = reduced.crush(reduced.postsolve(choice))
            assert lowered is not None, seed
            assert evaluate(reduced.problem, lowered).cost <= before.cost, seed
            led_back += 1
    assert led_back


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_feasible_choice_lowers_to_one_that_is_feasible_and_costs_no_more(kind) -> None:  # type: ignore[no-untyped-def]
    feasible = 0
    for seed in seeds(100, 4000):
        problem, wanted = with_best(kind, seed)
        reduced = presolve(problem)
        if wanted is not None:
            assert reduced is not None, seed
            lowered = reduced.crush(wanted[0])
            assert lowered is not None, seed
            assert evaluate(reduced.problem, lowered).feasible, seed
            feasible += 1
    assert feasible


def test_the_least_limit_above_the_limit_stays_what_it_is() -> None:
    too_tight = 0
    for seed in seeds(300, 5000):
        problem = tiny_nodes(seed)
        least, reduced = find_min_peak(problem), presolve(problem)
        if problem.limit is not None and least is not None and least > problem.limit:
            assert reduced is not None, seed
            assert find_min_peak(reduced.problem) == least, seed
            too_tight += 1
    assert too_tight


def test_presolve_reduces_what_is_made_to_collapse() -> None:
    for seed in seeds(50):
        reduced = presolve(Problem(contracting(seed).nodes, contracting(seed).edges))
        assert reduced is None or (reduced.problem.arrays.counts > 1).sum() <= 2, seed


def test_a_strategy_above_the_hull_of_cost_and_usage_may_be_the_best() -> None:
    front = Node("alone", np.array([0, 6, 10]), np.array([10, 5, 0]), (0, 1))
    assert _strategies(Problem([front], [], 5)) == 3
    assert find_cheapest(Problem([front], [], 5))[1].cost == 6  # type: ignore[index]


def test_an_isolated_node_keeps_its_pareto_front_alone() -> None:
    node = Node("alone", np.array([0, 6, 10, 7, 6]), np.array([10, 5, 0, 5, 5]), (0, 1))
    assert _strategies(Problem([node], [], 5)) == 3


@pytest.mark.parametrize("level", [0, 50, 10**6])
def test_a_strategy_that_costs_more_next_to_every_neighbour_goes_whatever_the_edges_cost_at_all(level: int) -> None:
    both, kinds = np.arange(2, dtype=np.int32), (0, 1)
    for first, kept in ((np.array([0, 3]), 1), (np.array([0, 1]), 2)):
        nodes = [Node("n", first, np.zeros(2, np.int64), kinds), Node("m", np.array([0, 0]), np.array([1, 0]), kinds)]
        edge = Edge(0, 1, both, both, level + np.array([[2, 5], [0, 7]]))
        reduced = presolve(Problem(nodes, [edge], 0), reductions=(DOMINANCE,))
        assert reduced is not None
        assert reduced.problem.arrays.counts[0] == kept, first


@pytest.mark.parametrize(("rows", "columns"), [(2, 5), (5, 2), (1, 1)])
def test_there_is_room_for_the_classes_of_either_end_of_an_edge(rows: int, columns: int) -> None:
    sizes = (rows, columns)
    nodes = [Node(f"n{i}", np.zeros(size, np.int64), np.zeros(size, np.int64), (0, 0)) for i, size in enumerate(sizes)]
    ends = [np.arange(size, dtype=np.int32) for size in sizes]
    edge = Edge(0, 1, ends[0], ends[1], np.arange(rows * columns).reshape(sizes))
    assert PresolveState(Problem(nodes, [edge]), 1, lambda: False).edges.most_classes == max(sizes)


def test_every_strategy_that_projection_leaves_has_a_partner_across_every_edge() -> None:
    gone = 0
    for seed in range(8000, 8300):
        problem = tiny_nodes(seed)
        reduced = presolve(problem, reductions=(ABSORPTION,))
        if reduced is None:
            continue
        gone += problem.arrays.cost.size - reduced.problem.arrays.cost.size
        arrays = reduced.problem.arrays
        possible = np.split(arrays.cost < IMPOSSIBLE, arrays.node_start[1:-1])
        sources = np.split(arrays.source_class, arrays.source_start[1:-1])
        targets = np.split(arrays.target_class, arrays.target_start[1:-1])
        for e, (i, j) in enumerate(zip(arrays.source.tolist(), arrays.target.tolist(), strict=True)):
            matrix = arrays.pair_cost[arrays.pair_start[e] + arrays.kinds_of(e).astype(np.int64)]
            allowed = matrix[sources[e]][:, targets[e]] < IMPOSSIBLE
            assert (allowed & possible[j])[possible[i]].any(axis=1).all(), seed
            assert (allowed.T & possible[i])[possible[j]].any(axis=1).all(), seed
    assert gone > 10


@pytest.mark.parametrize("seed", range(5))
def test_of_nodes_that_each_determine_the_next_one_is_left_to_choose(seed: int) -> None:
    rng, strategies = np.random.default_rng(seed), np.arange(4, dtype=np.int32)
    nodes = [Node(f"n{i}", rng.integers(0, 99, 4), rng.integers(0, 9, 4), (0, 1)) for i in range(5)]
    forced = [np.where(np.eye(4, dtype=bool)[rng.permutation(4)], rng.integers(0, 99), IMPOSSIBLE) for _ in range(4)]
    edges = [Edge(i, i + 1, strategies, strategies, matrix) for i, matrix in enumerate(forced)]
    reduced = presolve(Problem(nodes, edges, 25), reductions=(CONTRACTION,))
    assert reduced is not None
    assert sorted(reduced.problem.arrays.counts)[-2:] in ([4], [1, 4])


@pytest.mark.parametrize("large_first", [True, False])
def test_a_node_that_another_with_more_strategies_determines_goes_whichever_comes_first(large_first: bool) -> None:
    large = Node("large", np.arange(4), np.arange(4), (0, 1))
    small = Node("small", np.arange(2), np.arange(2), (0, 1))
    allowed = np.where(np.arange(4)[:, None] // 2 == np.arange(2), 5, IMPOSSIBLE)
    four, two = np.arange(4, dtype=np.int32), np.arange(2, dtype=np.int32)
    edge = Edge(0, 1, four, two, allowed) if large_first else Edge(0, 1, two, four, allowed.T)
    nodes = [large, small] if large_first else [small, large]
    reduced = presolve(Problem(nodes, [edge], 3), reductions=(CONTRACTION,))
    assert reduced is not None
    assert sorted(reduced.problem.arrays.counts)[-2:] in ([4], [1, 4])


@pytest.mark.parametrize(("between", "leaves"), [(12, True), (9, False)])  # 20 * 12 twice, and 20 * 20
def test_a_node_between_two_leaves_where_one_table_is_no_larger_than_the_two(between: int, leaves: bool) -> None:
    rng, sizes = np.random.default_rng(0), (20, between, 20)
    nodes = [
        Node(f"n{i}", rng.permutation(size), np.arange(size) * (i != 1), (i, i + 1)) for i, size in enumerate(sizes)
    ]
    ends = [np.arange(size, dtype=np.int32) for size in sizes]
    edges = [Edge(i, i + 1, ends[i], ends[i + 1], rng.integers(0, 99, (sizes[i], sizes[i + 1]))) for i in (0, 1)]
    reduced = presolve(Problem(nodes, edges, 15), reductions=(ELIMINATION,))
    assert reduced is not None
    counts = reduced.problem.arrays.counts
    assert sorted(counts[counts > 1]) == sorted({False: sizes, True: (20, 20)}[leaves])


def _strategies(problem: Problem) -> int:
    reduced = presolve(problem)
    assert reduced is not None
    return int(reduced.problem.arrays.node_start[1])


def test_a_fully_reduced_problem_is_one_node_at_no_cost() -> None:
    reduced = presolve(Problem([Node("free", np.zeros(2, np.int64), np.zeros(2, np.int64), (0, 0))], []))
    assert reduced is not None
    assert (reduced.problem.arrays.counts.tolist(), reduced.problem.arrays.cost.tolist()) == ([1], [0])
    assert reduced.postsolve([0]).tolist() == [0]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_presolve_stopped_at_any_time_is_exact(kind) -> None:  # type: ignore[no-untyped-def]
    for seed in seeds(40, 6000):
        left = seed % 20

        def stopped() -> bool:
            nonlocal left
            left -= 1
            return left < 0

        _check(kind, seed, stopped=stopped)


def test_an_edge_that_costs_what_its_ends_cost_apart_goes() -> None:
    rng, strategies = np.random.default_rng(0), np.arange(5, dtype=np.int32)
    nodes = [Node(f"n{i}", rng.integers(0, 9, 5), np.zeros(5, np.int64), (0, 0)) for i in range(2)]
    apart = rng.integers(0, 9, 5)[:, None] + rng.integers(0, 9, 5)
    reduced = presolve(Problem(nodes, [Edge(0, 1, strategies, strategies, apart)]), reductions=(ABSORPTION,))
    assert reduced is not None
    assert reduced.problem.arrays.source.size == 0


@pytest.mark.parametrize(("classes", "left"), [(10, 1), (9, 2)])  # 20 * 10 twice, and 20 * 20
def test_two_edges_become_one_where_one_table_is_no_larger_than_the_two(classes: int, left: int) -> None:
    rng, fine = np.random.default_rng(0), np.arange(20, dtype=np.int32)
    nodes = [Node(f"n{i}", np.zeros(20, np.int64), np.zeros(20, np.int64), (0, 0)) for i in range(2)]
    coarse = fine * classes // 20
    edges = [
        Edge(0, 1, fine, coarse, rng.integers(0, 99, (20, classes))),
        Edge(0, 1, coarse, fine, rng.integers(0, 99, (classes, 20))),
    ]
    reduced = presolve(Problem(nodes, edges), reductions=(PARALLEL,))
    assert reduced is not None
    assert reduced.problem.arrays.source.size == left


def test_nodes_that_wait_for_their_neighbours_are_eliminated_in_one_pass() -> None:
    nodes = [Node(f"n{i}", np.array([i, 0]), np.zeros(2, np.int64), (0, 0)) for i in range(5)]
    two = np.arange(2, dtype=np.int32)
    edges = [Edge(min(i, 1), max(i, 1), two, two, np.array([[1, 2], [3, i]])) for i in (0, 2, 3, 4)]
    state = PresolveState(Problem(nodes, edges), 1, lambda: False)
    ELIMINATION(state, 0)
    assert not state.alive.any()


def test_an_irreducible_problem_is_left_unchanged() -> None:
    front = Node("alone", np.array([0, 6, 10]), np.array([10, 5, 0]), (0, 1))
    reduced = presolve(Problem([front], [], 5))
    assert reduced is not None
    same = reduced.problem.arrays
    assert (same.cost.tolist(), same.span_usage.tolist()) == ([0, 6, 10], [10, 5, 0])
    assert (same.span_start.tolist(), same.span_stop.tolist()) == ([0], [1])


def test_an_assignment_of_excluded_strategies_lowers_to_none() -> None:
    nodes = [Node(f"n{i}", np.array([3, 0, 9]), np.zeros(3, np.int64), (0, 1)) for i in range(2)]
    ends, nothing_with_the_last = np.arange(3, dtype=np.int32), np.array([[0, 0, 0], [0, 0, 0], [IMPOSSIBLE] * 3])
    reduced = presolve(Problem(nodes, [Edge(0, 1, ends, ends, nothing_with_the_last)]), reductions=(ABSORPTION,))
    assert reduced is not None
    assert [reduced.crush([x, 1]) is None for x in range(3)] == [False, False, True]


def test_presolve_gives_the_same_problem_every_time() -> None:
    compared = 0
    for seed in seeds(20, 7000):
        one, two = presolve(tiny_public(seed)), presolve(tiny_public(seed))
        assert (one is None) == (two is None), seed
        if one is not None and two is not None:
            assert all(
                np.array_equal(getattr(one.problem.arrays, name), getattr(two.problem.arrays, name))
                for name in type(one.problem.arrays).__slots__
            ), seed
            compared += 1
    assert compared
