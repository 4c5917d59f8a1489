"""The slow, obvious oracle: every choice, one by one."""

from __future__ import annotations

from itertools import product

from solvers.evaluation import Evaluation, evaluate
from solvers.problem import Problem


def find_cheapest(problem: Problem) -> tuple[tuple[int, ...], Evaluation] | None:
    """The first cheapest feasible choice in lexicographic order, or None: exponential, for tests."""
    best: tuple[tuple[int, ...], Evaluation] | None = None
    for assignment in product(*(range(node.cost.size) for node in problem.nodes)):
        found = evaluate(problem, assignment)
        if found.feasible and (best is None or found.cost < best[1].cost):
            best = (assignment, found)
    return best


def find_min_peak(problem: Problem) -> int | None:
    """The least peak usage of any choice that takes nothing forbidden, whatever the limit; None if there is none."""
    unlimited = Problem(problem.nodes, problem.edges)
    found = (evaluate(unlimited, choice) for choice in product(*(range(node.cost.size) for node in problem.nodes)))
    return min((evaluation.peak for evaluation in found if evaluation.feasible), default=None)
