"""`validate`, `show` and `diff`: a plan run, a plan read, two plans compared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from api.comparing import comparison_page
from api.console import MAX_SEED, Backend, Json, PlanFile, Shrink, console, print_json
from api.pages import show_plan, verdict_lines
from api.progress import running
from planner.documents.comparisons import comparison_document
from planner.documents.plans import read_plan, verdict_document
from planner.documents.programs import program_from
from planner.run.validate import validate as run_plan

RUN_IN = "f64, f32, or rounded (each in its own dtype, f16 and bf16 rounded after every op); on a GPU f16 too"


def validate(
    plan_file: PlanFile,
    backend: Backend = "numpy",
    shrink: Shrink = "auto",
    precision: Annotated[str, typer.Option(help=f"What floats are run in: {RUN_IN}.")] = "f64",
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of the inputs.")] = 0,
    as_json: Json = False,
) -> None:
    """Run a plan and compare it with the unsharded graph; say where they begin to differ (exit code 1 where they do).

    Devices are logical ones of one process (numpy, cupy), or processes (mpi, nccl).
    """
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


def diff(
    base: Annotated[Path, typer.Argument(help="A plan document.")],
    new: Annotated[Path, typer.Argument(help="Another, of the same model or a later state of it.")],
    as_json: Json = False,
) -> None:
    """Compare two plans: what is laid out otherwise, and which terms of time and memory that moved."""
    found = comparison_document(read_plan(base), read_plan(new))
    if as_json:
        print_json(found)
    else:
        console().print(comparison_page(found))
