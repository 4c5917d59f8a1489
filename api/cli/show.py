"""`show`: shows a plan."""

from __future__ import annotations

from typing import Annotated

import typer

from api.cli.options import JsonOption, PlanArgument, console, print_json
from api.cli.render_plan import render_plan
from planner.documents.plans import read_plan
from planner.documents.programs import load_program


def show(
    plan_file: PlanArgument,
    program: Annotated[bool, typer.Option("--program", help="Print the SPMD program instead.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show a plan for review."""
    document = read_plan(plan_file)
    if program:
        typer.echo(str(load_program(document)))
    elif as_json:
        print_json(document.model_dump(mode="json", exclude_unset=True))
    else:
        render_plan(console(), document.model_dump(mode="json", exclude_unset=True))
