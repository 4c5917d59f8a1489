"""`diff`: compares two plans."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from api.cli.options import JsonOption, console, print_json
from api.cli.render_diff import render_diff
from planner.documents.diff import compare_documents
from planner.documents.plans import read_plan


def diff(
    base: Annotated[Path, typer.Argument(help="A plan document.")],
    new: Annotated[Path, typer.Argument(help="Another, of the same model or a later state of it.")],
    as_json: JsonOption = False,
) -> None:
    """Compare two plans: changed layouts, and the changed terms of time and memory."""
    comparison = compare_documents(read_plan(base), read_plan(new))
    if as_json:
        print_json(comparison)
    else:
        console().print(render_diff(comparison))
