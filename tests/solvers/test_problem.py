"""What a problem refuses, and how an assignment is evaluated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from solvers import IMPOSSIBLE, Edge, EdgeUsage, InvalidProblem, Node, Problem, evaluate, usage_profile
from solvers.evaluation import lagrangian_value
from solvers.model import UsageIntervals
from solvers.problem_arrays import ProblemArrays
from tests.testing.random_problems import tiny
from tests.testing.seeds import seeds

TWO = np.array([1, 2], np.int64)
CLASSES = np.array([0, 1], np.int32)
MATRIX = np.array([[0, 5], [7, IMPOSSIBLE]], np.int64)


def node(**changes: object) -> Node:
    return Node(**{"name": "a", "cost": TWO, "usage": TWO, "interval": (0, 2), **changes})  # type: ignore[arg-type]


def edge(**changes: object) -> Edge:
    parts = {"source": 0, "target": 1, "source_class": CLASSES, "target_class": CLASSES, "matrix": MATRIX}
    return Edge(**{**parts, **changes})  # type: ignore[arg-type]


HUGE = np.array([0, 6 * 10**17])
# The sum of the largest usages wraps around in 64 bits.
MORE = UsageIntervals(np.arange(2, 34), np.arange(3, 35), np.tile(HUGE, (32, 1)))


def with_usage(name: str) -> ProblemArrays:
    """Return the arrays of a problem in whose further spans, or on whose edges, two usages are huge."""
    usage = EdgeUsage(0, 1, MATRIX % IMPOSSIBLE)
    spans = UsageIntervals(np.arange(2, 4), np.arange(3, 5), np.ones((2, 2), np.int64))
    arrays = Problem([node(more_usage=spans), node()], [edge(usages=(usage, usage))]).arrays
    values = getattr(arrays, name).copy()
    values[-2:] = values[-4:-2] = HUGE[1]
    return replace(arrays, **{name: values})


REFUSED: list[tuple[str, Callable[[], object]]] = [
    ("cost of node 'a'", lambda: node(cost=np.array([1.5, 2.0]))),
    ("cost of node 'a'", lambda: node(cost=np.zeros(0, np.int64))),
    ("cost of node 'a': got list", lambda: node(cost=[1, 2])),
    ("cost of node 'a'", lambda: node(cost=np.array([1, 1 << 63]))),
    ("limit of problem: got nan", lambda: Problem([node()], [], float("nan"))),  # type: ignore[arg-type]
    ("sum of the largest usages", lambda: Problem([node(usage=np.array([1, (1 << 63) - 1]))], [])),
    ("cost of node 'a'.*-1", lambda: node(cost=np.array([-1, 2]))),
    ("usage of node 'a'", lambda: node(usage=np.array([1]))),
    ("interval of node 'a'", lambda: node(interval=(3, 2))),
    ("multiplicity of node 'a'", lambda: node(multiplicity=0)),
    ("cost times multiplicity of node 'a'", lambda: node(cost=TWO * 10**15, multiplicity=10)),
    ("ends of edge 0 -> 0", lambda: edge(target=0)),
    ("classes of edge 0 -> 1", lambda: edge(source_class=np.array([0, 2], np.int32))),
    ("classes of edge 0 -> 1", lambda: edge(source_class=np.array([0, 1]))),
    ("usage of edge 0 -> 1", lambda: edge(usages=(EdgeUsage(0, 1, TWO[None, :]),))),
    ("interval of edge usage", lambda: EdgeUsage(2, 1, MATRIX)),
    ("ends of edge 0 -> 1.*got 1", lambda: Problem([node()], [edge()])),
    ("number of classes of edge", lambda: Problem([node(), node()], [edge(source_class=np.zeros(3, np.int32))])),
    ("limit of problem", lambda: Problem([node()], [], -1)),
    ("limit of problem: got nan", lambda: Problem([node()], [], float("nan"))),  # type: ignore[arg-type]
    ("limit of problem", lambda: Problem.from_arrays(Problem([node()], []).arrays, -1)),
    ("sum of the largest usages", lambda: Problem([node(usage=HUGE), node(usage=HUGE)], [])),
    ("sum of the largest usages", lambda: Problem([node(more_usage=MORE)], [])),
    ("sum of the largest usages", lambda: Problem.from_arrays(with_usage("span_usage"), None)),
    ("sum of the largest usages", lambda: Problem.from_arrays(with_usage("pair_usage"), None)),
    ("length of assignment", lambda: evaluate(Problem([node()], []), (0, 0))),
    ("strategy of node 'a'", lambda: evaluate(Problem([node()], []), (2,))),
]


@pytest.mark.parametrize(("message", "make"), REFUSED)
def test_an_invalid_problem_is_refused_by_name(message: str, make: Callable[[], object]) -> None:
    with pytest.raises(InvalidProblem, match=message):
        make()


def test_a_choice_costs_its_strategies_and_pairs_times_their_multiplicities() -> None:
    problem = Problem([node(multiplicity=3), node()], [edge(multiplicity=2)], 4)
    assert evaluate(problem, (1, 0)).cost == 3 * 2 + 1 + 2 * 7
    forbidden = evaluate(problem, (1, 1))
    assert (forbidden.allowed, forbidden.feasible) == (False, False)
    assert forbidden.cost == 3 * 2 + 2 + IMPOSSIBLE


def test_permitted_costs_that_add_up_to_more_than_a_forbidden_one_are_permitted() -> None:
    problem = Problem([node(cost=np.array([IMPOSSIBLE - 1, 0])) for _ in range(3)], [], 4)
    dear = evaluate(problem, (0, 0, 0))
    assert (dear.cost, dear.allowed, dear.feasible) == (3 * (IMPOSSIBLE - 1), True, True)
    over = evaluate(problem, (0, 1, 1))
    assert (over.cost, over.allowed, over.feasible) == (IMPOSSIBLE - 1, True, False)


def test_usage_counts_over_half_open_intervals_of_nodes_and_edges() -> None:
    usage = EdgeUsage(1, 3, np.array([[0, 10], [20, 30]], np.int64))
    problem = Problem([node(), node(interval=(1, 4))], [edge(usages=(usage,))], 13)
    assert usage_profile(problem, (0, 1)).tolist() == [1, 13, 12, 2]
    found = evaluate(problem, (0, 1))
    assert (found.peak, found.peak_step, found.feasible) == (13, 1, True)
    assert not evaluate(problem, (1, 0)).feasible


def test_evaluation_equals_a_plain_loop() -> None:
    for seed in seeds(200):
        problem = tiny(seed)
        rng = np.random.default_rng(seed)
        choice = [int(rng.integers(n.cost.size)) for n in problem.nodes]
        pairs = [e.matrix[e.source_class[choice[e.source]], e.target_class[choice[e.target]]] for e in problem.edges]
        parts = [(int(n.cost[x]), n.multiplicity) for n, x in zip(problem.nodes, choice, strict=True)]
        parts += [(int(cost), e.multiplicity) for cost, e in zip(pairs, problem.edges, strict=True)]
        expected = sum(IMPOSSIBLE if cost >= IMPOSSIBLE else cost * times for cost, times in parts)
        found = evaluate(problem, choice)
        assert found.cost == expected
        assert found.peak == usage_profile(problem, choice).max(initial=0)


def test_at_prices_a_choice_is_worth_its_cost_and_what_it_uses_above_the_limit_at_each_of_them() -> None:
    tried = 0
    for seed in range(40):
        problem, rng = tiny(seed), np.random.default_rng(seed)
        choice = [int(rng.integers(node.cost.size)) for node in problem.nodes]
        prices = {moment: float(rng.integers(1, 50)) / 8 for moment in range(0, problem.arrays.time_steps, 2)}
        over = usage_profile(problem, choice) - (problem.limit or 0)
        wanted = 7 + sum(price * over[moment] for moment, price in prices.items())
        assert lagrangian_value(problem, choice, 7, multipliers=prices) == wanted, seed
        tried += wanted not in (7, int(wanted))
    assert tried > 10
