"""Brute-force oracles for tests: they enumerate every assignment, in exponential time."""

from __future__ import annotations

from itertools import product

from solvers.evaluation import Evaluation, evaluate
from solvers.problem import Problem


def find_cheapest(problem: Problem) -> tuple[tuple[int, ...], Evaluation] | None:
    """Return the cheapest feasible assignment, the first in lexicographic order, or None if there is none."""
    best: tuple[tuple[int, ...], Evaluation] | None = None
    for assignment in product(*map(range, problem.arrays.counts.tolist())):
        evaluation = evaluate(problem, assignment)
        if evaluation.feasible and (best is None or evaluation.cost < best[1].cost):
            best = (assignment, evaluation)
    return best


def find_min_peak(problem: Problem) -> int | None:
    """Return the least peak usage, in bytes, of any assignment without anything forbidden; the limit is ignored.

    None if there is no such assignment.
    """
    unlimited = Problem.from_arrays(problem.arrays, None)
    assignments = product(*map(range, problem.arrays.counts.tolist()))
    evaluations = (evaluate(unlimited, assignment) for assignment in assignments)
    return min((evaluation.peak for evaluation in evaluations if evaluation.feasible), default=None)
