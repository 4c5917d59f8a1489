"""Cuts implied by the limit: the laws of rounding, and that no assignment within the limit is cut off."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from solvers import Problem, evaluate
from solvers.mir_cuts import MirCut, _apply_mir, expected_usage, price_usage, separate_mir, usage_at, with_cuts
from tests.testing.random_problems import tiny, tiny_public
from tests.testing.seeds import seeds

SEEDS = seeds(120)


def test_a_rounding_never_falls_and_never_gives_a_sum_less_than_its_parts() -> None:
    sizes = np.arange(-30, 31)
    for divisor, room in product(range(1, 13), range(-9, 25)):
        rounded = _apply_mir(sizes, room, divisor)
        assert (np.diff(rounded) >= 0).all()
        sums = _apply_mir(sizes[:, None] + sizes, room, divisor)
        assert (sums >= rounded[:, None] + rounded).all(), (divisor, room)


def _limited(seed: int) -> Problem | None:
    problem = tiny_public(seed) if seed % 2 else tiny(seed)
    layout = problem.arrays
    return problem if problem.limit is not None and layout.time_steps and layout.cost.size else None


def _roundings(problem: Problem, rng: np.random.Generator) -> list[MirCut]:
    layout, found = problem.arrays, []
    for _ in range(6):
        moment = int(rng.integers(layout.time_steps))
        used = usage_at(layout, moment)
        at = layout.node_start[:-1] + rng.integers(0, np.diff(layout.node_start))
        found.append(MirCut(moment, used[at], int(rng.integers(1, max(int(used.max()), 1) + 2))))
    return found


def test_implied_limits_leave_exactly_the_feasible_choices() -> None:
    compared = 0
    for seed in SEEDS:
        problem = _limited(seed)
        if problem is None:
            continue
        stronger, places = with_cuts(problem, _roundings(problem, np.random.default_rng(seed)))
        assert len(places) == 6
        for choice in product(*(range(k) for k in np.diff(problem.arrays.node_start))):
            before, after = evaluate(problem, choice), evaluate(stronger, choice)
            assert after.cost == before.cost, (seed, choice)
            if places.count(-1) == 0 or before.feasible:
                assert after.feasible == before.feasible, (seed, choice)
            compared += 1
    assert compared > 8 * len(SEEDS)


def test_a_cut_that_a_point_violates_holds_for_every_feasible_choice() -> None:
    broken = 0
    for seed in SEEDS:
        problem = _limited(seed)
        if problem is None:
            continue
        rng, layout = np.random.default_rng(seed), problem.arrays
        sizes = np.diff(layout.node_start)
        shares = np.concatenate([rng.dirichlet(np.full(k, 0.3)) for k in sizes])
        for rounding in separate_mir(problem, shares, 20, time_steps=layout.time_steps):
            row, end = rounding.row(layout, problem.limit or 0)
            assert row @ shares > end
            broken += 1
            for choice in product(*(range(k) for k in sizes)):
                if (usage_at(layout, rounding.time_step)[layout.node_start[:-1] + choice]).sum() <= (
                    problem.limit or 0
                ):
                    assert row[layout.node_start[:-1] + choice].sum() <= end, (seed, choice)
    assert broken > len(SEEDS) // 6


def test_the_usage_expected_of_a_choice_is_its_usage_on_nodes() -> None:
    for seed in SEEDS:
        problem = _limited(seed)
        if problem is None:
            continue
        layout = problem.arrays
        choice = layout.node_start[:-1] + np.random.default_rng(seed).integers(0, np.diff(layout.node_start))
        point = np.zeros(layout.cost.size)
        point[choice] = 1.0
        wanted = [usage_at(layout, t)[choice].sum() for t in range(layout.time_steps)]
        assert np.allclose(expected_usage(layout, point), wanted), seed


def test_the_price_of_a_usage_is_that_of_each_of_its_time_steps() -> None:
    for seed in SEEDS:
        problem = _limited(seed)
        if problem is not None:
            arrays, rng = problem.arrays, np.random.default_rng(seed)
            steps = rng.permutation(arrays.time_steps)[: 1 + arrays.time_steps // 2]
            multipliers = {int(t): float(rng.random()) for t in steps}
            wanted = sum((price * usage_at(arrays, t) for t, price in multipliers.items()), np.zeros(arrays.cost.size))
            assert price_usage(arrays, multipliers) == pytest.approx(wanted), seed
