"""The figures of predicted steps: order, regret, and what failed rows count for."""

from __future__ import annotations

from typing import Any

from benchmarks import predicted_steps

Pair = tuple[dict[str, Any], float]


def sweep(group: str, *times: tuple[float, float]) -> list[Pair]:
    """Measured and predicted seconds of a sweep."""
    return [({"group": group, "source": "s", "step_s": measured}, predicted) for measured, predicted in times]


def test_pairs_of_a_sweep_that_differ_are_ordered_and_others_are_not_compared() -> None:
    pairs = sweep("a", (1.0, 1.0), (2.0, 3.0), (2.04, 0.5)) + sweep("b", (9.0, 0.1))
    assert predicted_steps.order(pairs) == (1, 2)


def test_regret_is_of_the_layout_that_is_picked_in_sweeps_of_four() -> None:
    pairs = sweep("a", (1.0, 2.0), (1.5, 1.0), (3.0, 4.0), (4.0, 5.0)) + sweep("b", (1.0, 2.0), (5.0, 1.0))
    assert predicted_steps.regrets(pairs) == [0.5]


def answer(step_s: float, fits: bool) -> dict[str, Any]:
    return {"step_s": step_s, "low_s": 0.9, "high_s": 1.1, "peak_memory_bytes": 10, "fits": fits}


def test_failed_rows_say_something_of_memory_only() -> None:
    row = {"group": "a", "source": "s", "layout": {}, "micro_batch": 1}
    rows = [row | {"status": "ok", "step_s": 1.0}, row | {"status": "failed", "step_s": None}]
    found = predicted_steps.score(rows, [answer(1.5, fits=True), answer(9.0, fits=True)])
    assert (found["timed"], found["median_error"], found["coverage"]) == (1, 0.5, 1.0)
    assert found["fits"] == {"ok": 1.0, "failed": 0.0}
