"""Probing: what is excluded is no loss, and where rows cross it closes what ascents on the whole problem do not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from solvers import Problem, solve
from solvers.dual_lns import find_min_usage_assignment
from solvers.probing import Probing, probe
from solvers.relaxation import Relaxation
from tests.testing.ascents import crossing_rows, root_of
from tests.testing.random_problems import contracting, dear, tiny, tiny_public, with_best
from tests.testing.seeds import seeds

SEEDS = seeds(60, 4000)


def is_left(relaxation: Relaxation, assignment: tuple[int, ...] | np.ndarray) -> bool:
    crushed = relaxation.model.restriction.crush(np.array(assignment, np.int64))
    first = relaxation.model.arrays.node_start[:-1]
    return crushed is not None and bool(relaxation.allowed[first + crushed].all())


@pytest.mark.parametrize("has_incumbent", [False, True])
@pytest.mark.parametrize("make", [tiny, tiny_public, contracting, dear])
def test_the_best_assignment_is_excluded_only_where_its_cost_is_known(
    make: Callable[[int], Problem], has_incumbent: bool
) -> None:
    """`tiny` has usage on edges, some without a limit, and problems without any assignment."""
    for seed in SEEDS:
        problem, wanted = with_best(make, seed)
        state, root, ascent = root_of(problem)
        if has_incumbent:
            state.submit(find_min_usage_assignment(problem))
        left = probe(root, ascent)
        if wanted is None:
            assert state.cost is None, seed
            continue
        assignment, best = wanted
        assert state.bound <= best.cost, seed
        assert left.bound <= best.cost or state.cost == best.cost, seed
        assert is_left(left, assignment) or state.cost == best.cost, seed


def test_probing_closes_much_of_what_ascents_leave_open() -> None:
    closed = list[float]()
    for seed in range(20):
        problem = crossing_rows(np.random.default_rng(seed))
        state, root, ascent = root_of(problem)
        best = solve(problem, gap=0.0, deterministic=True).assignment
        if best is None:
            continue
        state.submit(best)
        for step in range(300):
            ascent.advance(step / 300)
        root.set_multipliers(ascent.multipliers)
        root.pass_messages(50, 0.0)
        before = state.upper_cutoff - state.bound
        probe(root, ascent)
        closed.append(1 - (state.upper_cutoff - state.bound) / max(before, 1))
    assert np.median(closed) > 0.1


def test_probing_is_due_once_half_of_the_gap_is_left() -> None:
    problem = crossing_rows(np.random.default_rng(0))
    state, root, ascent = root_of(problem)
    state.submit(find_min_usage_assignment(problem))
    probing, gap = Probing(), state.upper_cutoff
    root.bound = 0
    assert probing.run(root, ascent, at_once=False) is root
    root.bound = gap // 3
    assert probing.run(root, ascent, at_once=False) is root
    assert not state.log
    root.bound = gap - gap // 3
    probing.run(root, ascent, at_once=False)
    assert [entry.operator for entry in state.log] == ["probing"]


def test_without_an_ascent_nothing_is_probed() -> None:
    state, root, _ = root_of(crossing_rows(np.random.default_rng(0)))
    assert Probing().run(root, None, at_once=True) is root
    assert not state.log
