"""Edges that store the kind of each pair of classes are solved like edges with an entry for each pair."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from solvers import Edge, EdgeUsage, InvalidProblem, Problem, evaluate, number_rows, solve, usage_profile
from solvers.restriction import Restriction
from tests.testing.random_problems import tiny
from tests.testing.seeds import seeds


def with_kinds(problem: Problem) -> Problem:
    """Return the problem with edges that store kinds: every second one, so that both forms meet."""
    edges = [_with_kinds(edge) if n % 2 == 0 else edge for n, edge in enumerate(problem.edges)]
    return Problem(problem.nodes, edges, problem.limit)


def _with_kinds(edge: Edge) -> Edge:
    matrices = [edge.matrix.ravel(), *(usage.matrix.ravel() for usage in edge.usages)]
    kinds, first = number_rows(matrices)
    cost, *held = (matrix[first] for matrix in matrices)
    usages = tuple(EdgeUsage(u.start, u.stop, entries) for u, entries in zip(edge.usages, held, strict=True))
    return replace(edge, matrix=cost, usages=usages, kinds=kinds.reshape(edge.shape))


def test_rows_are_numbered_in_the_order_of_their_first_appearance() -> None:
    kinds, first = number_rows([np.array([5, 5, 2, 5, 2]), np.array([0, 1, 0, 0, 0])])
    assert kinds.tolist() == [0, 1, 2, 0, 2]
    assert first.tolist() == [0, 1, 2]
    assert kinds.dtype == np.uint16


def test_many_rows_need_wider_numbers_and_differ_where_any_column_does() -> None:
    rows = np.arange(1 << 17)
    kinds, first = number_rows([rows // 2, rows % 2, np.zeros_like(rows)])
    assert kinds.dtype == np.uint32
    assert np.array_equal(kinds, rows)
    assert np.array_equal(first, rows)


@pytest.mark.parametrize("seed", seeds(40))
def test_a_problem_with_kinds_is_evaluated_and_solved_like_its_dense_form(seed: int) -> None:
    dense = tiny(seed)
    problem = with_kinds(dense)
    random = np.random.default_rng(seed)
    assignment = tuple(int(random.integers(node.cost.size)) for node in dense.nodes)
    assert evaluate(problem, assignment) == evaluate(dense, assignment)
    assert usage_profile(problem, assignment).tolist() == usage_profile(dense, assignment).tolist()
    ours, theirs = (solve(each, time_limit=5, deterministic=True) for each in (problem, dense))
    assert (ours.status, ours.cost, ours.bound) == (theirs.status, theirs.cost, theirs.bound)
    assert ours.min_feasible_limit == theirs.min_feasible_limit


@pytest.mark.parametrize("seed", seeds(40))
def test_a_restriction_keeps_the_costs_of_what_it_keeps(seed: int) -> None:
    problem = with_kinds(tiny(seed))
    random = np.random.default_rng(seed)
    starts = problem.arrays.node_start[:-1]
    chosen = starts + [int(random.integers(node.cost.size)) for node in problem.nodes]
    allowed = random.random(int(problem.arrays.node_start[-1])) < 0.5
    allowed[chosen] = True
    restricted = Restriction.identity(problem).restricted_to(allowed)
    for _ in range(5):
        there = random.integers(restricted.problem.arrays.counts)
        original = restricted.postsolve(there)
        assert evaluate(restricted.problem, there).cost == evaluate(problem, original).cost
        assert usage_profile(restricted.problem, there).tolist() == usage_profile(problem, original).tolist()


REFUSED = [
    ("kinds of edge", np.array([[0, 1], [1, 0]])),
    ("kinds of edge", np.array([0, 1, 1, 0], np.uint16)),
    ("kinds of edge 0 -> 1: got 2, wanted less than 2", np.array([[0, 1], [2, 0]], np.uint16)),
]


@pytest.mark.parametrize(("message", "kinds"), REFUSED)
def test_kinds_that_do_not_fit_are_refused(message: str, kinds: np.ndarray) -> None:
    own = np.arange(2, dtype=np.int32)
    with pytest.raises(InvalidProblem, match=message):
        Edge(0, 1, own, own, np.array([3, 4]), kinds=kinds)
