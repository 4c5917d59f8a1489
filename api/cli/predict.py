"""`predict`: predicts times from rows, one line of JSON out for each line in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from api.cli.options import print_json
from planner.documents.hardware import read_hardware
from planner.documents.json_reader import read_json_lines
from planner.errors import InvalidRequest
from planner.usecases.predict_ops import predict_ops
from planner.usecases.predict_rows import RowProfiles
from planner.usecases.predict_steps import predict_steps, rank_steps

LikeOption = Annotated[
    str | None, typer.Option(help="The profile to take for devices that have none: a name, or a profile.json.")
]
HardwareOption = Annotated[
    str | None, typer.Option(help="The profile of every row, whatever device it names: a name, or a profile.json.")
]

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@app.callback()
def predict() -> None:
    """Predict times from rows that describe kernels or training steps."""


@app.command("ops")
def predict_op_times(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="One JSON object a line: op, gpu, dtype, shape.")],
    like: LikeOption = None,
    hardware: HardwareOption = None,
) -> None:
    """Predict the time of each kernel: time_s, low_s and high_s, or error with the reason."""
    for answer in predict_ops(read_json_lines(file), _choose_profiles(like, hardware)):
        print_json(answer)


@app.command("steps")
def predict_training_steps(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="One JSON object a line: shape, device, layout.")],
    like: LikeOption = None,
    hardware: HardwareOption = None,
    *,
    best: Annotated[bool, typer.Option("--best", help="Order the answers: the fastest that fits first.")] = False,
) -> None:
    """Predict each training step: step_s, low_s, high_s and peak_memory_bytes, or error with the reason."""
    answers = predict_steps(read_json_lines(file), _choose_profiles(like, hardware))
    for answer in rank_steps(answers) if best else answers:
        print_json(answer)


def _choose_profiles(like: str | None, profile: str | None) -> RowProfiles:
    if like is not None and profile is not None:
        raise InvalidRequest("--like and --hardware", wanted="one of them")
    return RowProfiles(*(None if name is None else read_hardware(name) for name in (like, profile)))
