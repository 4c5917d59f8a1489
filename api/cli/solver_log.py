"""What `--log` writes: a line for each run of one of the solver's methods, and cost and bound over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from planner.documents.json_writer import write_json

LogOption = Annotated[
    Path | None, typer.Option("--log", help="Write what the solver did when, and cost and bound over time.")
]


def write_solver_log(path: Path, log: Sequence[Mapping[str, Any]], trajectory: Sequence[Mapping[str, Any]]) -> None:
    """Write the log of a solve, as rows by field (`solvers.OperatorSlice`, `solvers.TrajectoryPoint`)."""
    write_json(path, {"log": list(log), "trajectory": list(trajectory)})
