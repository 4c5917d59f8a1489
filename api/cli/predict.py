"""`predict`: predicts times from rows, one line of JSON out for each line in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.options import print_json
from planner.choose.hardware import load_profile
from planner.documents.json_reader import read_text
from planner.usecases.predict_ops import predict_ops
from planner.usecases.predict_steps import predict_steps, rank_steps

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@app.callback()
def predict() -> None:
    """Predict times from rows that describe kernels or training steps."""


@app.command("ops")
def predict_op_times(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="One JSON object a line: op, gpu, dtype, shape.")],
    like: Annotated[str | None, typer.Option(help="The profile to take for devices that have none.")] = None,
) -> None:
    """Predict the time of each kernel: time_s, low_s and high_s, or error with the reason."""
    for answer in predict_ops(_read_rows(file, like), like):
        print_json(answer)


@app.command("steps")
def predict_training_steps(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="One JSON object a line: shape, device, layout.")],
    like: Annotated[str | None, typer.Option(help="The profile to take for devices that have none.")] = None,
    best: Annotated[bool, typer.Option("--best", help="Order the answers: the fastest that fits first.")] = False,
) -> None:
    """Predict each training step: step_s, low_s, high_s and peak_memory_bytes, or error with the reason."""
    answers = predict_steps(_read_rows(file, like), like)
    for answer in rank_steps(answers) if best else answers:
        print_json(answer)


def _read_rows(file: Path, like: str | None) -> list[Any]:
    """Return the values of a file's lines, after a check that there is a profile `like`."""
    if like is not None:
        load_profile(like)
    return [_parse_line(line) for line in read_text(file).removesuffix("\n").split("\n")]


def _parse_line(line: str) -> Any:
    """Return the value of a line, or the line itself where it is not JSON, which no row may be."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return line
