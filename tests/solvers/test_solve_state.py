"""The budget of a solve: seconds or work, and shares of what remains."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from solvers import evaluate
from solvers.solve_state import TIME_LIMIT, WORK_LIMIT, WORK_PER_SECOND, SolveState, UnsoundBound
from tests.testing.random_problems import tiny, tiny_public


@pytest.mark.parametrize(("spent", "share"), [(0.0, 0.25), (0.5, 0.5), (0.0, 1.0)])
def test_a_share_of_the_remaining_work_may_be_used_for_a_part(spent: float, share: float) -> None:
    ledger = SolveState(tiny_public(0), 0.0, 1.0, True, None, None)
    ledger.charge(spent * WORK_PER_SECOND)
    allowed = share * (1 - spent) * WORK_PER_SECOND
    with ledger.sub_budget(share):
        ledger.charge(0.9 * allowed)
        assert not ledger.is_exhausted
        ledger.charge(0.2 * allowed)
        assert ledger.is_exhausted
        assert ledger.stop_reason == WORK_LIMIT
    assert ledger.is_exhausted == (share == 1.0)
    ledger.charge(WORK_PER_SECOND)
    assert ledger.is_exhausted


def test_a_share_of_the_clock_ends_before_the_clock() -> None:
    ledger = SolveState(tiny_public(0), 0.0, 1e6, False, None, None)
    with ledger.sub_budget(0.0):
        assert ledger.is_exhausted
        assert ledger.stop_reason == TIME_LIMIT
    assert not ledger.is_exhausted
    assert (ledger.seconds_left or 0.0) > 9e5


def test_a_budget_is_whole_again_after_an_error() -> None:
    state = SolveState(tiny_public(0), 0.0, 1e6, False, None, None)
    with pytest.raises(KeyError), state.sub_budget(0.0):
        raise KeyError
    assert not state.is_exhausted


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
    with ledger.sub_budget(0.5):
        assert ledger.is_exhausted
    assert ledger.stop_reason == "cancelled"
