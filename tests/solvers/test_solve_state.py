"""The budget of a solve: seconds or work, and shares of what remains."""

from __future__ import annotations

import pytest

from solvers.solve_state import TIME_LIMIT, WORK_LIMIT, WORK_PER_SECOND, SolveState
from tests.testing.random_problems import tiny_public


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


def test_a_cancelled_solve_stays_cancelled() -> None:
    ledger = SolveState(tiny_public(0), 0.0, 1.0, True, None, lambda: True)
    with ledger.sub_budget(0.5):
        assert ledger.is_exhausted
    assert ledger.stop_reason == "cancelled"
