"""`validate`: runs a plan and compares it with the unsharded graph."""

from __future__ import annotations

from typing import Any

import typer

from api.cli.command_start import command_deadline
from api.cli.options import JsonOption, PlanArgument, TimeLimitOption, console, print_json
from api.cli.parameters import with_options
from api.cli.progress import show_run_progress
from api.cli.render_pipeline import format_stage_verdict
from api.cli.render_plan import format_verdict
from api.options import ValidationOptions
from planner.documents.json_reader import read_json
from planner.documents.pipeline_sections import PipelineDocument
from planner.documents.pipelines import dump_pipeline_verdict, is_pipeline, parse_pipeline, run_document
from planner.documents.plans import dump_verdict, parse_plan
from planner.documents.programs import load_program
from planner.pipeline_stages.validate import check_stage_backend
from planner.run.validate import validate as run_plan


@with_options
def validate(
    plan_file: PlanArgument,
    options: ValidationOptions,
    *,
    time_limit: TimeLimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a plan, compare it with the unsharded graph, and show the first difference (exit code 1 where they differ,
    or the run does not end within --time-limit).

    The devices are logical ones in one process (numpy, cupy), or a process each (mpi, nccl).
    """
    raw = read_json(plan_file)
    if is_pipeline(raw):
        _validate_stages(parse_pipeline(raw, str(plan_file)), options, time_limit, as_json=as_json)
        return
    program = load_program(parse_plan(raw, str(plan_file)))
    with show_run_progress("validating") as progress:
        watched = command_deadline(time_limit).watch(progress)
        verdict = dump_verdict(
            run_plan(program, options.backend, options.shrink, options.precision, options.seed, watched)
        )
    if as_json:
        print_json(verdict)
    else:
        console().print("\n".join(format_verdict(verdict)), highlight=False)
    _exit_if_different(verdict)


def _validate_stages(
    document: PipelineDocument, options: ValidationOptions, time_limit: float | None, *, as_json: bool
) -> None:
    check_stage_backend(options.backend, options.precision)
    with show_run_progress("validating", "passes") as progress:
        watched = command_deadline(time_limit).watch(progress)
        verdict = dump_pipeline_verdict(run_document(document, seed=options.seed, on_progress=watched))
    if as_json:
        print_json(verdict)
    else:
        console().print("\n".join(format_stage_verdict(verdict)), highlight=False)
    _exit_if_different(verdict)


def _exit_if_different(verdict: dict[str, Any]) -> None:
    if verdict["verdict"] == "different":
        raise typer.Exit(1)
