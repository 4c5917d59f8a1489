"""Predicts seconds and memory of training steps from rows that describe model, device and layout.

The work of a step (`steps.work`: kernels by their fitted times, collectives by the network) and the constants of the
software that runs it (`steps.stacks`) make its time (`steps.step_time`) and its memory (`steps.memory`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from planner.errors import ShardplanError
from planner.usecases.steps.memory import count_peak_bytes
from planner.usecases.steps.rows import StepRow, read_step_row
from planner.usecases.steps.stacks import Stack, load_stacks
from planner.usecases.steps.step_time import list_sizes, time_step
from planner.usecases.steps.work import count_work

Answer = dict[str, Any]
ASSUMED = 1.25
"""Factor by which an interval widens on both sides where a size or the precision is assumed; judged, not fitted."""
HARMLESS = ("remat", "micro_batch")
"""Fields that software commonly leaves at its default, which its constants hold."""


def predict_steps(
    rows: Sequence[object], like: str | None = None, *, stacks: Mapping[str, Stack] | None = None
) -> list[Answer]:
    """Return one answer for each row, in order: seconds, interval, peak bytes, parts, or `error` with the reason.

    like    the profile of devices that have none
    stacks  constants of software by name; None: the fitted ones
    """
    known = load_stacks() if stacks is None else stacks
    return [_predict_row(row, like, known) for row in rows]


def rank_steps(answers: Sequence[Answer]) -> list[Answer]:
    """Return the answers with their line from 1, fastest first: those that fit, those that do not, then errors."""
    lines = [{"line": number, **answer} for number, answer in enumerate(answers, 1)]
    return sorted(lines, key=lambda each: ("error" in each, not each.get("fits"), each.get("step_s", 0.0)))


def _predict_row(row: object, like: str | None, stacks: Mapping[str, Stack]) -> Answer:
    try:
        return _predict_step(read_step_row(row, like), stacks)
    except ShardplanError as error:
        return {"error": str(error)}


def _predict_step(row: StepRow, stacks: Mapping[str, Stack]) -> Answer:
    stack = stacks[row.stack]
    parts = {part: float(s) for part, s in time_step(count_work(row), list_sizes(row), stack).items()}
    step, peak = sum(parts.values()), count_peak_bytes(row, stack)
    spread = ASSUMED if set(row.assumed) - set(HARMLESS) else 1.0
    return {
        "step_s": step,
        "low_s": step * stack.low / spread,
        "high_s": step * stack.high * spread,
        "peak_memory_bytes": peak,
        "fits": peak <= stack.usable * row.memory_bytes,
        "parts": parts,
        "stack": row.stack,
        **({"assumed": list(row.assumed)} if row.assumed else {}),
    }
