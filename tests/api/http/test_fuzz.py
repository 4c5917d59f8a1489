"""Some cases of benchmarks/fuzz_service.py: no answer is a 5xx, and none differs from the OpenAPI description."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")
pytest.importorskip("schemathesis", reason="schemathesis is not installed: make extras")

from benchmarks.fuzz_service import fuzz, house

pytestmark = pytest.mark.service

CASES = 60


@pytest.mark.filterwarnings("ignore:Do not use the `random` module")  # the service's threads do
def test_answers_fit_the_description() -> None:
    with house() as found:
        fuzzed = fuzz(found, CASES)
        described = sum(map(len, found.schema.raw_schema["paths"].values()))
    assert fuzzed.faults == []
    assert len(fuzzed.operations) == described
    assert sum(fuzzed.operations.values()) >= CASES
    assert {"200", "401", "404", "422"} <= set(fuzzed.statuses)
    assert not [status for status in fuzzed.statuses if status >= "500"]
