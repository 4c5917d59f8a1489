"""`validate` and `show`: a plan run, and a plan read."""

from __future__ import annotations

from typing import Annotated

import typer

from api.console import MAX_SEED, Backend, Json, PlanFile, Shrink, console, print_json
from api.pages import show_plan, verdict_lines
from api.progress import running
from planner.documents.plans import read_plan, verdict_document
from planner.documents.programs import program_from
from planner.run.validate import validate as run_plan


def validate(
    plan_file: PlanFile,
    backend: Backend = "numpy",
    shrink: Shrink = "auto",
    precision: Annotated[str, typer.Option(help="f64 or f32: the type in which floats are computed.")] = "f64",
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of the inputs.")] = 0,
    as_json: Json = False,
) -> None:
    """Run a plan on logical devices and compare it with the unsharded graph (exit code 1 where they differ)."""
    program = program_from(read_plan(plan_file))
    with running("validating") as progress:
        verdict = verdict_document(run_plan(program, backend, shrink, precision, seed, progress))
    if as_json:
        print_json(verdict)
    else:
        console().print("\n".join(verdict_lines(verdict)), highlight=False)
    if verdict["verdict"] == "different":
        raise typer.Exit(1)


def show(
    plan_file: PlanFile,
    program: Annotated[bool, typer.Option("--program", help="Print the SPMD program instead.")] = False,
    as_json: Json = False,
) -> None:
    """Show a plan as a page to review."""
    document = read_plan(plan_file)
    if program:
        typer.echo(str(program_from(document)))
    elif as_json:
        print_json(document.model_dump(mode="json", exclude_unset=True))
    else:
        show_plan(console(), document.model_dump(mode="json", exclude_unset=True))
