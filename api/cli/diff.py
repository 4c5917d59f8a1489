"""`diff`: compares two plans."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from api.cli.options import JsonOption, console, print_json
from api.cli.render_diff import render_diff
from planner.documents.diff import compare_documents
from planner.documents.json_reader import read_json
from planner.documents.pipelines import parse_any_plan


def diff(
    base: Annotated[Path, typer.Argument(help="A plan document.")],
    new: Annotated[Path, typer.Argument(help="Another, of the same model or a later state of it.")],
    as_json: JsonOption = False,
) -> None:
    """Compare two plans, with or without pipeline stages: changed layouts and cuts, and the changed terms of time and
    memory.
    """
    comparison = compare_documents(*(parse_any_plan(read_json(path), str(path)) for path in (base, new)))
    if as_json:
        print_json(comparison)
    else:
        console().print(render_diff(comparison))
