"""Options that several commands share, and how commands print."""

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
TimeLimitOption = Annotated[
    float | None,
    typer.Option("--time-limit", min=0, help="Seconds of the whole command; the answer is what is known by then."),
]
PlanArgument = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan document.")]


def console() -> Console:
    """Return a console as wide as the terminal, or 120 columns without one."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 120)


def print_json(value: object) -> None:
    """Print one JSON object on one line."""
    typer.echo(json.dumps(value, allow_nan=False))


def print_json_or_lines(document: Document, as_json: bool, describe: Callable[[Document], list[str]]) -> None:
    """Print a document as one line of JSON, or as the lines that describe it."""
    if as_json:
        print_json(document)
    else:
        typer.echo("\n".join(describe(document)))


@contextmanager
def requires_extra(extra: str, where: str) -> Iterator[None]:
    """Raise InvalidRequest where an import inside the block fails because an extra of the package is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise InvalidRequest(f"no module {error.name}", where=where, wanted=f"pip install shardplan[{extra}]") from None
