"""`show`: shows a plan."""

from __future__ import annotations

from typing import Annotated

import typer

from api.cli.options import JsonOption, PlanArgument, console, print_json
from api.cli.render_pipeline import render_pipeline
from api.cli.render_plan import render_plan
from planner.documents.json_reader import read_json
from planner.documents.pipeline_sections import PipelineDocument
from planner.documents.pipelines import is_pipeline, load_stages, parse_pipeline
from planner.documents.plans import parse_plan
from planner.documents.programs import load_program


def show(
    plan_file: PlanArgument,
    program: Annotated[bool, typer.Option("--program", help="Print the SPMD program instead.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show a plan for review."""
    raw = read_json(plan_file)
    if is_pipeline(raw):
        _show_pipeline(parse_pipeline(raw, str(plan_file)), program=program, as_json=as_json)
        return
    document = parse_plan(raw, str(plan_file))
    if program:
        typer.echo(str(load_program(document)))
    elif as_json:
        print_json(document.model_dump(mode="json", exclude_unset=True))
    else:
        render_plan(console(), document.model_dump(mode="json", exclude_unset=True))


def _show_pipeline(document: PipelineDocument, *, program: bool, as_json: bool) -> None:
    raw = document.model_dump(mode="json", exclude_unset=True)
    if program:
        for number, (_, each) in enumerate(load_stages(document)):
            typer.echo(f"stage {number}\n{each}")
    elif as_json:
        print_json(raw)
    else:
        render_pipeline(console(), raw)
