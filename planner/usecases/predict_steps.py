"""Predicts seconds and memory of training steps from rows that describe model, device and layout.

The work of a step (`steps.work`: kernels by their fitted times, collectives by the network) and the constants of the
software that runs it (`steps.stacks`) make its time (`steps.step_time`) and its memory (`steps.memory`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planner.choose.hardware.corrections import find_correction
from planner.errors import ShardplanError
from planner.usecases.predict_rows import BUILT_IN, RowProfiles
from planner.usecases.steps.memory import count_peak_bytes
from planner.usecases.steps.rows import StepRow, read_step_row
from planner.usecases.steps.stacks import load_stacks
from planner.usecases.steps.step_time import list_sizes, time_step
from planner.usecases.steps.work import count_work

Answer = dict[str, Any]
ASSUMED = 1.25
"""Factor by which an interval widens on both sides where a size or the precision is assumed; judged, not fitted."""
HARMLESS = ("remat", "micro_batch")
"""Fields that software commonly leaves at its default, which its constants hold."""


def predict_steps(rows: Sequence[object], profiles: RowProfiles = BUILT_IN) -> list[Answer]:
    """Return one answer for each row, in order: seconds, interval, peak bytes, parts, or `error` with the reason."""
    return [_predict_row(row, profiles) for row in rows]


def rank_steps(answers: Sequence[Answer]) -> list[Answer]:
    """Return the answers with their line from 1, fastest first: those that fit, those that do not, then errors."""
    lines = [{"line": number, **answer} for number, answer in enumerate(answers, 1)]
    return sorted(lines, key=lambda each: ("error" in each, not each.get("fits"), each.get("step_s", 0.0)))


def _predict_row(row: object, profiles: RowProfiles) -> Answer:
    try:
        return _predict_step(read_step_row(row, profiles))
    except ShardplanError as error:
        return {"error": str(error)}


def time_parts(row: StepRow) -> dict[str, float]:
    """Return the seconds of a step's parts, by the constants of its software."""
    parts = time_step(count_work(row), list_sizes(row), load_stacks()[row.stack])
    return {part: float(seconds) for part, seconds in parts.items()}


def _predict_step(row: StepRow) -> Answer:
    stack, parts = load_stacks()[row.stack], time_parts(row)
    predicted, peak = sum(parts.values()), count_peak_bytes(row, stack)
    own = find_correction(row.hardware.step_corrections, row.stack, (stack.low, stack.high))
    step = own.apply(predicted)
    if not own.is_identity:
        parts["correction_s"] = step - predicted
    spread = ASSUMED if set(row.assumed) - set(HARMLESS) else 1.0
    return {
        "step_s": step,
        "low_s": min(step * own.low / spread, step),
        "high_s": max(step * own.high * spread, step),
        "peak_memory_bytes": peak,
        "fits": peak <= stack.usable * row.memory_bytes,
        "parts": parts,
        "stack": row.stack,
        **({"assumed": list(row.assumed)} if row.assumed else {}),
    }
