"""The figures of predicted steps: order, regret, halves of sweeps, and what a source never seen is worth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import predicted_steps
from benchmarks.predicted_steps import HOST_US

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


def test_a_sweep_is_in_one_half() -> None:
    rows: list[dict[str, Any]] = [{"source": "s", "group": f"g{n // 3}", "id": n} for n in range(90)]
    halves = {row["group"]: predicted_steps.is_kept_apart(row) for row in rows}
    assert all(predicted_steps.is_kept_apart(row) is halves[row["group"]] for row in rows)
    assert 0 < sum(halves.values()) < len(halves)


def test_a_source_is_scored_with_the_constant_of_the_others() -> None:
    best_at_20 = {us: [(False, 1 - abs(us - 20) / 1000), (True, 0.5)] for us in HOST_US}
    best_at_60 = {us: [(False, 1 - abs(us - 60) / 1000), (True, 0.5)] for us in HOST_US}
    found = predicted_steps.leave_one_out({"seen": best_at_20, "unseen": best_at_60})["unseen"]
    assert (found["host_us"], found["rows"], found["interval"]) == (20, 2, [1.0, 1.0])
    assert found["median_error"] == 0.27
    assert found["coverage"] == 0.0


def test_rows_without_a_time_are_not_compared(tmp_path: Path) -> None:
    rows = [{"status": "ok", "step_s": 1.0}, {"status": "failed", "step_s": None}, {"status": "ok", "step_s": None}]
    (tmp_path / "source.json").write_text(json.dumps({"rows": rows}))
    assert predicted_steps.read_rows(tmp_path) == {"source": rows[:1]}
