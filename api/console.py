"""What the commands share: where they print, and the options they have in common."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

MAX_SEED = (1 << 31) - 1

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Where to write the document (.json or .json.gz).")]
Backend = Annotated[str, typer.Option(help="numpy or cupy.")]
Shrink = Annotated[str, typer.Option(help="auto: run on small sizes with the same program; none: full sizes.")]
PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan document.")]


def console() -> Console:
    """As wide as the terminal; 120 columns where there is none."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 120)


def print_json(value: object) -> None:
    """One object on one line."""
    typer.echo(json.dumps(value, allow_nan=False))
