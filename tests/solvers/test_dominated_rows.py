"""Time steps that another one covers are dropped; the others stay."""

from __future__ import annotations

import numpy as np
import pytest

from solvers import Node, Problem
from solvers.presolve import REDUCTIONS, presolve


@pytest.mark.parametrize("limit", [199, 100])  # which may be exceeded at one moment, and at many
def test_time_steps_that_another_covers_are_removed_in_one_pass(limit: int) -> None:
    rises = [Node(f"n{i}", np.zeros(2, np.int64), np.array([3, 4]), (i, 50 + i)) for i in range(50)]
    reduced = presolve(Problem(rises, [], limit), reductions=REDUCTIONS[-1:])
    assert reduced is not None
    assert reduced.problem.arrays.time_steps == 1


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0)])
def test_time_steps_of_which_neither_covers_the_other_stay_whichever_node_comes_first(order: tuple[int, ...]) -> None:
    lives = [((0, 1), [0, 1]), ((1, 2), [0, 1]), ((0, 2), [2, 6])]
    nodes = [Node(f"n{i}", np.zeros(2, np.int64), np.array(lives[i][1]), lives[i][0]) for i in order]
    reduced = presolve(Problem(nodes, [], 5), reductions=REDUCTIONS[-1:])
    assert reduced is not None
    assert reduced.problem.arrays.time_steps == 2
