"""`plan`: chooses how every op of a graph is sharded, runs the plan, shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.command_start import command_start
from api.cli.options import JsonOption, OutputOption, console, print_json
from api.cli.parameters import with_options
from api.cli.plan_stages import plan_stages, print_stages, run_stages
from api.cli.progress import report_progress, show_plan_progress, show_run_progress
from api.cli.render_plan import render_plan
from api.cli.solver_log import LogOption, write_solver_log
from api.options import PlanOptions, RunOptions
from api.pipeline_options import PipelineOptions
from planner import Mesh, Plan, Request, pipeline
from planner.choose import hardware
from planner.choose.formulate import Choice
from planner.documents.graphs import read_graph, read_mesh
from planner.documents.hardware import read_hardware
from planner.documents.json_writer import check_writable, write_json
from planner.documents.pipelines import dump_pipeline
from planner.documents.plans import add_verdict, dump_plan
from planner.errors import InvalidRequest
from planner.pipeline_stages.validate import check_stage_backend
from planner.planning.deadline import Deadline, TimeLimitReached
from planner.run.pipeline import PRECISION
from planner.run.validate import check_backend
from planner.usecases.prove import check_provable, prove_plan

FOLLOWING_SHARE = 0.5
"""Share of the time that is left for the run of a plan, and of the rest for its proof, which formulates the problem
again, as planning did."""
INFEASIBLE = 4
"""The exit code where no plan fits the memory limit."""


@with_options
def plan(
    graph: Annotated[Path, typer.Argument(help="A graph document (.json or .json.gz).")],
    mesh: Annotated[str, typer.Option(help="dp=2,tp=4, or 2x4, or a mesh document.")],
    hardware_name: Annotated[str | None, typer.Option("--hardware", help="A profile: its name, or a file.")] = None,
    *,
    pin: Annotated[Path | None, typer.Option(help="Annotations (a pins document) the plan must meet.")] = None,
    options: PlanOptions,
    pipeline_options: PipelineOptions,
    validate: Annotated[bool, typer.Option("--validate", help="Run the plan and add the verdict.")] = False,
    run: RunOptions,
    output: OutputOption = None,
    proof: Annotated[Path | None, typer.Option(help="Write a proof of the plan's bound, for `verify`.")] = None,
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Choose how every op of a graph is sharded. The exit code is 4 where no plan fits the memory limit."""
    for path in filter(None, (output, proof, log)):
        check_writable(path)
    if proof:
        check_provable(options.objective)
    devices, request, stages = read_mesh(mesh), options.to_request(), pipeline_options.to_pipeline()
    if validate:
        _check_run(run, devices, in_stages=stages is not None)
    ends = _leave_time(pipeline.start_deadline(request, command_start()), [validate, proof])
    if stages is not None:
        _refuse_with_pipeline({"--proof": proof, "--log": log})
        cut = plan_stages(graph, devices, hardware_name, stages=stages, request=request, pin=pin, deadline=ends)
        document = run_stages(cut, stages, output) if validate else dump_pipeline(cut, stages)
    else:
        planned = plan_graph(graph, devices, hardware_name, request=request, pin=pin, deadline=ends)
        document = _dump_validated(planned, run, proof) if validate else dump_plan(planned)
        if proof and planned.choice:
            _write_proof(proof, document, planned.choice, request=request)
        if log:
            write_solver_log(log, planned.certificate.log, planned.certificate.trajectory)
    if output:
        write_json(output, document)
    (_print_plan if stages is None else print_stages)(document, as_json=as_json)
    if document["solver"]["status"] == "infeasible":
        raise typer.Exit(INFEASIBLE)


def _check_run(run: RunOptions, mesh: Mesh, *, in_stages: bool) -> None:
    if in_stages:
        check_stage_backend(run.backend, PRECISION)
    check_backend(run.backend, run.shrink, PRECISION, mesh=mesh)


def _refuse_with_pipeline(given: Mapping[str, Path | None]) -> None:
    for option in filter(given.get, given):
        raise InvalidRequest("option of a pipeline", got=option, wanted="a plan without --pipeline")


def _dump_validated(planned: Plan, run: RunOptions, proof: Path | None) -> dict[str, Any]:
    """Return the document of a plan with the verdict of its run, if this ends in time.

    The document is made before the run, so that this can use all the time that is left.
    """
    document = dump_plan(planned)
    deadline = _leave_time(pipeline.start_deadline(planned.request, command_start()), [proof])
    with show_run_progress("validating") as progress:
        checked = pipeline.validate_plan(planned, run.backend, run.shrink, on_progress=progress, deadline=deadline)
    return add_verdict(document, checked.verdict)


def _leave_time(deadline: Deadline, following: Sequence[object]) -> Deadline:
    """Return when a part of the command has to end so that there is time for those of the following that are asked."""
    for _ in filter(None, following):
        deadline = deadline.sooner(FOLLOWING_SHARE * (deadline.left_s or 0.0))
    return deadline


def _write_proof(path: Path, document: dict[str, Any], choice: Choice, *, request: Request) -> None:
    """Write the proof of a plan, or say why there is none: the plan is written in any case."""
    try:
        with report_progress(pipeline.start_deadline(request, command_start())) as report:
            proof = prove_plan(document, choice, report=report)
    except TimeLimitReached:
        typer.echo(f"shardplan: {path}: no proof is written, as the time limit was up", err=True)
    except InvalidRequest as error:
        typer.echo(f"shardplan: {path}: no proof is written: {error}", err=True)
    else:
        write_json(path, proof)


def plan_graph(
    graph: Path,
    mesh: Mesh,
    name: str | None,
    *,
    request: Request,
    pin: Path | None = None,
    deadline: Deadline | None = None,
) -> Plan:
    """Return the plan of a graph file, showing progress.

    name      of the hardware; None: that of the mesh's device, or the default
    deadline  None: the request's time limit from the start of the command
    """
    deadline = deadline or pipeline.start_deadline(request, command_start())
    profile = read_hardware(name or mesh.device or hardware.DEFAULT_PROFILE)
    mesh = replace(mesh, device=profile.name)
    with show_plan_progress() as progress:
        read = read_graph(graph, mesh, pin)
        return pipeline.plan(read, mesh, profile, request=request, on_progress=progress, deadline=deadline)


def _print_plan(document: dict[str, Any], *, as_json: bool) -> None:
    if not as_json:
        render_plan(console(), document)
        return
    solver, verdict = document["solver"], document["verdict"]
    overlap = document["cost"].get("overlap", {})
    print_json(
        {
            "id": document["id"],
            **{key: solver[key] for key in ("status", "objective_s", "bound_s", "gap")},
            "step_s": overlap.get("step_s"),
            **{key: document["cost"].get("interval", {}).get(key) for key in ("low_s", "high_s", "out_of_range_s")},
            "step_bound_s": overlap.get("bound_s"),
            "overlap": document["hardware"].get("overlap", 0.0),
            **{key: document["cost"].get(key) for key in ("mfu", "collective_bytes")},
            "peak_memory_bytes": document["memory"].get("peak_bytes"),
            "verdict": verdict and verdict["verdict"],
            "objective": document["request"]["objective"],
            **{key: solver[key] for key in ("objective_bytes", "bound_bytes")},
            **{key: solver[key] for key in ("least_limit_bytes", "least_limit_bound_bytes", "reason", "wall_s")},
        }
    )
