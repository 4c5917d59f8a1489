"""Damaged rows of `predict ops` and `predict steps`: each has a finite answer within its interval, or one reason."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from planner.usecases.predict_ops import predict_ops
from planner.usecases.predict_steps import predict_steps
from tests.testing.kernel_rows import PREDICTED

ROWS = 1_000
STEPS = [json.loads(line) for line in Path("examples/steps.jsonl").read_text().splitlines()]
JUNK: list[object] = [
    *(None, True, False, 0, -1, 1, 0.5, 3.7, 65537, 1 << 60, 10**400),
    *(1e-300, 1e308, -1e308, float("nan"), float("inf")),
    *("", "x", "1", "1e3", "bf16", "h100-sxm", "\ud800", [], [1], {}, {"a": 1}),
]
PREDICTORS: list[tuple[Callable[[Sequence[object]], list[dict[str, Any]]], list[dict[str, Any]], str]] = [
    (predict_ops, PREDICTED, "time_s"),
    (predict_steps, STEPS, "step_s"),
]


def damage_row(draw: random.Random, row: dict[str, Any]) -> object:
    """Return a copy of a row of which one to three fields are removed, replaced, exchanged or added."""
    damaged = json.loads(json.dumps(row))
    for _ in range(draw.randint(1, 3)):
        inside = [each for each in damaged.values() if isinstance(each, dict) and each]
        fields = draw.choice([damaged, *inside])
        if not fields:
            return draw.choice(JUNK)
        name = draw.choice(list(fields))
        what = draw.randrange(8)
        if what == 0:
            del fields[name]
        elif what == 1:
            fields[draw.choice(list(fields))] = fields[name]
        elif what == 2:
            fields[draw.choice(["", "kind", "devices", f"{name}s"])] = draw.choice(JUNK)
        else:
            fields[name] = draw.choice(JUNK)
    return damaged


@pytest.mark.parametrize(("predict", "rows", "key"), PREDICTORS, ids=["ops", "steps"])
def test_every_damaged_row_has_one_answer_or_one_reason(
    predict: Callable[[Sequence[object]], list[dict[str, Any]]], rows: list[dict[str, Any]], key: str
) -> None:
    draw = random.Random(0)
    damaged = [damage_row(draw, draw.choice(rows)) for _ in range(ROWS)]
    answers = predict(damaged)
    assert len(answers) == ROWS
    for row, answer in zip(damaged, answers, strict=True):
        json.dumps(answer, allow_nan=False)
        if "error" in answer:
            assert "\n" not in answer["error"], row
        else:
            assert 0 < answer["low_s"] <= answer[key] <= answer["high_s"], row
    assert 0 < sum("error" in answer for answer in answers) < ROWS
