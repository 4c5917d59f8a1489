"""The restricted MIP: its assignment keeps the limit, however large the costs."""

from __future__ import annotations

import numpy as np
import pytest

from solvers import Node, Problem, evaluate
from solvers.mip import RestrictedMip

# Costs of a strategy that uses much; in the last two the permitted costs add up to more than a forbidden one.
LARGE = [10**4, 10**12, 4 * 10**15, 9 * 10**15]


@pytest.mark.parametrize("large", LARGE)
def test_a_choice_over_the_limit_is_not_the_answer(large: int) -> None:
    nodes = [
        Node(f"n{i}", np.array([large, large + (100 + i) * (large // 1000)]), np.array([5, 1]), (0, 1))
        for i in range(6)
    ]
    problem = Problem(nodes, [], 18)
    result = RestrictedMip(problem, large / 1e5, None, [], None, None, 0.0, 0)()
    assert result.assignment is not None
    evaluation = evaluate(problem, result.assignment)
    assert evaluation.feasible
    assert evaluation.cost == 6 * large + 303 * (large // 1000)
