"""`validate`: runs a plan and compares it with the unsharded graph."""

from __future__ import annotations

import typer

from api.cli.options import JsonOption, PlanArgument, console, print_json
from api.cli.parameters import with_options
from api.cli.progress import show_run_progress
from api.cli.render_plan import format_verdict
from api.options import ValidationOptions
from planner.documents.plans import dump_verdict, read_plan
from planner.documents.programs import load_program
from planner.run.validate import validate as run_plan


@with_options
def validate(
    plan_file: PlanArgument,
    options: ValidationOptions,
    as_json: JsonOption = False,
) -> None:
    """Run a plan, compare it with the unsharded graph, and show the first difference (exit code 1 where they differ).

    The devices are logical ones in one process (numpy, cupy), or a process each (mpi, nccl).
    """
    program = load_program(read_plan(plan_file))
    with show_run_progress("validating") as progress:
        verdict = dump_verdict(
            run_plan(program, options.backend, options.shrink, options.precision, options.seed, progress)
        )
    if as_json:
        print_json(verdict)
    else:
        console().print("\n".join(format_verdict(verdict)), highlight=False)
    if verdict["verdict"] == "different":
        raise typer.Exit(1)
