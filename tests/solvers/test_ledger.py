"""The budget of a solve: seconds or work, and shares of what is left of them."""

from __future__ import annotations

import pytest

from solvers.ledger import TIME_LIMIT, WORK_LIMIT, WORK_PER_SECOND, Ledger
from tests.testing.random_problems import tiny_public


@pytest.mark.parametrize(("spent", "share"), [(0.0, 0.25), (0.5, 0.5), (0.0, 1.0)])
def test_a_share_of_the_work_that_is_left_may_be_used_for_a_while(spent: float, share: float) -> None:
    ledger = Ledger(tiny_public(0), 0.0, 1.0, True, None, None)
    ledger.spend(spent * WORK_PER_SECOND)
    allowed = share * (1 - spent) * WORK_PER_SECOND
    with ledger.within(share):
        ledger.spend(0.9 * allowed)
        assert not ledger.exhausted
        ledger.spend(0.2 * allowed)
        assert ledger.exhausted
        assert ledger.stop_reason == WORK_LIMIT
    assert ledger.exhausted == (share == 1.0)
    ledger.spend(WORK_PER_SECOND)
    assert ledger.exhausted


def test_a_share_of_the_clock_ends_before_the_clock() -> None:
    ledger = Ledger(tiny_public(0), 0.0, 1e6, False, None, None)
    with ledger.within(0.0):
        assert ledger.exhausted
        assert ledger.stop_reason == TIME_LIMIT
    assert not ledger.exhausted
    assert (ledger.seconds_left or 0.0) > 9e5


def test_what_was_cancelled_stays_so() -> None:
    ledger = Ledger(tiny_public(0), 0.0, 1.0, True, None, lambda: True)
    with ledger.within(0.5):
        assert ledger.exhausted
    assert ledger.stop_reason == "cancelled"
