"""Where plans change, a version must change, so that ids are never stale (`tests/testing/golden_plans.py`)."""

from __future__ import annotations

import json

import pytest

from tests.testing.golden_plans import FILE, PLANS, current, fault, may_be_written
from tests.testing.small_documents import Document, changed

KEPT: Document = json.loads(FILE.read_text())
FIRST = next(iter(PLANS))
OTHER = changed(KEPT, f"plans.{FIRST}.digest", "another")

RENEW = "renew them: python -m tests.testing.golden_plans --write"

# versions and plans now, words of the message (None: nothing is wrong), whether the file may be written
FAULTS = [
    (KEPT, None, False),
    (OTHER, "raise VERSION in planner/choose/cost.py where costs changed, else the number after .dev", False),
    (changed(KEPT, "versions.ortools", "9.99"), None, False),
    (changed(OTHER, "versions.ortools", "9.99"), "another OR-Tools makes other plans", True),
    (changed(KEPT, "versions.cost_model", 99), RENEW, True),
    (changed(OTHER, "versions.shardplan", "99.0"), RENEW, True),
]


def test_plans_change_only_where_a_version_does() -> None:
    wrong = fault(KEPT, current())
    if wrong is not None:
        pytest.fail(wrong, pytrace=False)


@pytest.mark.parametrize(("now", "words", "writes"), FAULTS)
def test_a_changed_plan_is_reported_with_the_remedy_and_stored_only_under_another_version(
    now: Document, words: str | None, writes: bool
) -> None:
    told = fault(KEPT, now)
    assert (told is None) if words is None else words in (told or "")
    assert may_be_written(KEPT, now) is writes
