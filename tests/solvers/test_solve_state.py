"""The budget of a solve, seconds or work, and the checks of what it takes in."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pytest

from solvers import evaluate
from solvers.solve_state import TIME_LIMIT, WORK_LIMIT, WORK_PER_SECOND, SolveState, UnsoundBound
from tests.testing.random_problems import tiny, tiny_public


def test_work_ends_a_solve_without_a_clock_and_time_one_with_a_clock() -> None:
    state = SolveState(tiny_public(0), 0.0, 1.0, True, None, None)
    state.charge(0.9 * WORK_PER_SECOND)
    assert not state.is_exhausted
    state.charge(0.2 * WORK_PER_SECOND)
    assert state.is_exhausted
    assert (state.stop_reason, state.reproducible) == (WORK_LIMIT, True)
    timed = SolveState(tiny_public(0), 0.0, 0.0, False, None, None)
    assert timed.is_exhausted
    assert (timed.stop_reason, timed.reproducible) == (TIME_LIMIT, False)


# A seed whose problem has a feasible assignment of each node's first strategies.
FEASIBLE = next(seed for seed in range(100) if evaluate(tiny(seed), [0] * len(tiny(seed).nodes)).feasible)


@pytest.mark.parametrize("bound_first", [True, False])
def test_a_bound_above_a_known_assignment_is_an_error(bound_first: bool) -> None:
    state = SolveState(tiny(FEASIBLE), 0.0, 1.0, True, None, None)
    first = [0] * len(tiny(FEASIBLE).nodes)
    known = evaluate(tiny(FEASIBLE), first)
    steps: list[Callable[[], object]] = [
        lambda: state.submit(first),
        lambda: state.raise_lower_bound(known.cost + 1),
    ]
    steps[not bound_first]()
    with pytest.raises(UnsoundBound, match=f"lower bound of the solve: got {known.cost + 1}, .* {known.cost}"):
        steps[bound_first]()


def test_a_bound_of_the_peak_above_a_known_one_is_an_error() -> None:
    state = SolveState(tiny(FEASIBLE), 0.0, 1.0, True, None, None)
    state.submit([0] * len(tiny(FEASIBLE).nodes))
    state.raise_min_peak_bound(state.min_peak or 0)
    with pytest.raises(UnsoundBound, match="lower bound of the peak"):
        state.raise_min_peak_bound((state.min_peak or 0) + 1)


def test_a_cancelled_solve_stays_cancelled() -> None:
    ledger = SolveState(tiny_public(0), 0.0, 1.0, True, None, lambda: True)
    assert ledger.is_exhausted
    assert ledger.stop_reason == "cancelled"


def test_what_goes_on_beside_a_worker_may_wait_for_a_worker_of_its_own() -> None:
    state, results = SolveState(tiny_public(0), 0.0, 60.0, False, None, None), list[int | None]()

    def solve_beside(has_result: Callable[[], bool]) -> bool:
        results.append(state.run_in_worker(partial(pow, 2, 3)))
        return True

    state.meanwhile = solve_beside
    numbers = range(3 * 10**7)
    assert state.run_in_worker(partial(sum, numbers)) == len(numbers) * (len(numbers) - 1) // 2
    assert set(results) == {8}
    assert state.meanwhile is solve_beside


def test_a_result_is_taken_in_while_another_worker_is_waited_for() -> None:
    taken = list[int]()
    # The inner task would take an hour: it is cancelled once the outer one's result has been taken in.
    state = SolveState(tiny_public(0), 0.0, 60.0, False, None, lambda: bool(taken))

    def wait_for_another(has_result: Callable[[], bool]) -> bool:
        assert state.run_in_worker(partial(time.sleep, 3600.0)) is None
        assert has_result()
        return True

    numbers = range(10**7)
    found = state.run_in_worker(partial(sum, numbers), wait_for_another, taken.append)
    assert taken == [found] == [len(numbers) * (len(numbers) - 1) // 2]
    assert state.stop_reason == "cancelled"
