"""Run a plan and compare it with the unsharded graph."""

from __future__ import annotations

from typing import Annotated

import typer

from api.cli.options import MAX_SEED, BackendOption, JsonOption, PlanArgument, ShrinkOption, console, print_json
from api.cli.progress import show_run_progress
from api.cli.render_plan import format_verdict
from planner.documents.plans import dump_verdict, read_plan
from planner.documents.programs import load_program
from planner.run.validate import validate as run_plan

PRECISION_HELP = "f64, f32, or rounded (each in its own dtype, f16 and bf16 rounded after every op); on a GPU f16 too"


def validate(
    plan_file: PlanArgument,
    backend: BackendOption = "numpy",
    shrink: ShrinkOption = "auto",
    *,
    precision: Annotated[str, typer.Option(help=f"What floats are run in: {PRECISION_HELP}.")] = "f64",
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of the inputs.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Run a plan and compare it with the unsharded graph; say where they begin to differ (exit code 1 where they do).

    Devices are logical ones of one process (numpy, cupy), or processes (mpi, nccl).
    """
    program = load_program(read_plan(plan_file))
    with show_run_progress("validating") as progress:
        verdict = dump_verdict(run_plan(program, backend, shrink, precision, seed, progress))
    if as_json:
        print_json(verdict)
    else:
        console().print("\n".join(format_verdict(verdict)), highlight=False)
    if verdict["verdict"] == "different":
        raise typer.Exit(1)
