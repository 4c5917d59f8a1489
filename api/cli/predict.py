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

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@app.callback()
def predict() -> None:
    """Predict times from rows that describe kernels."""


@app.command("ops")
def predict_op_times(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="One JSON object a line: op, gpu, dtype, shape.")],
    like: Annotated[str | None, typer.Option(help="The profile to take for devices that have none.")] = None,
) -> None:
    """Predict the time of each kernel: time_s, low_s and high_s, or error with the reason."""
    if like is not None:
        load_profile(like)
    rows = [_parse_line(line) for line in read_text(file).removesuffix("\n").split("\n")]
    for answer in predict_ops(rows, like):
        print_json(answer)


def _parse_line(line: str) -> Any:
    """Return the value of a line, or the line itself where it is not JSON, which no row may be."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return line
