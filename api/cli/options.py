"""What the commands share: where they print, and the options they have in common."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from planner.errors import InvalidRequest

Document = dict[str, Any]

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", help="Where to write the document (.json or .json.gz).")
]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        envvar="SHARDPLAN_DATABASE",
        help="A file of SQLite (else one in the user's data directory), or postgresql://….",
    ),
]
PlanArgument = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan document.")]


def console() -> Console:
    """As wide as the terminal; 120 columns where there is none."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 120)


def print_json(value: object) -> None:
    """One object on one line."""
    typer.echo(json.dumps(value, allow_nan=False))


def print_json_or_lines(document: Document, as_json: bool, describe: Callable[[Document], list[str]]) -> None:
    """One object on one line, or the lines that describe it."""
    if as_json:
        print_json(document)
    else:
        typer.echo("\n".join(describe(document)))


@contextmanager
def requires_service_extra() -> Iterator[None]:
    """Imports inside belong to the service. Raises InvalidRequest where they are not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        wanted = "pip install shardplan[service]"
        raise InvalidRequest(f"no module {error.name}", where="the service", wanted=wanted) from None
