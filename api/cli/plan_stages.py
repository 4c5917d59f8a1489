"""`plan --pipeline`: plans a training step in pipeline stages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from api.cli.command_start import command_start
from api.cli.options import console, print_json
from api.cli.progress import show_plan_progress, show_run_progress
from api.cli.render_pipeline import render_pipeline
from planner import Mesh, Request, pipeline
from planner.choose import hardware
from planner.documents.graphs import read_graph
from planner.documents.hardware import read_hardware
from planner.documents.json_writer import write_json
from planner.documents.pipelines import add_pipeline_verdict, dump_pipeline
from planner.pipeline_stages.pipeline_plan import PipelinePlan
from planner.pipeline_stages.plan_pipeline import plan_pipeline
from planner.pipeline_stages.request import PipelineRequest
from planner.pipeline_stages.validate import validate_pipeline
from planner.planning.deadline import Deadline


def plan_stages(
    graph: Path,
    mesh: Mesh,
    name: str | None,
    *,
    stages: PipelineRequest,
    request: Request,
    pin: Path | None,
    deadline: Deadline,
) -> PipelinePlan:
    """Return the pipeline's plan of a graph file, showing progress.

    name      of the hardware; None: that of the mesh's device, or the default
    deadline  when planning ends
    """
    profile = read_hardware(name or mesh.device or hardware.DEFAULT_PROFILE)
    mesh = replace(mesh, device=profile.name)
    with show_plan_progress() as progress:
        read = read_graph(graph, mesh, pin)
        return plan_pipeline(
            read, mesh, profile, pipeline=stages, request=request, on_progress=progress, deadline=deadline
        )


def run_stages(planned: PipelinePlan, stages: PipelineRequest, output: Path | None) -> dict[str, Any]:
    """Return the document of a plan with the verdict of its run, which has what is left of the request's time limit.

    The plan is written to `output` before, so that it is kept where the run fails.
    """
    document = dump_pipeline(planned, stages)
    if output:
        write_json(output, document)
    with show_run_progress("validating", "passes") as running:
        checked = validate_pipeline(planned, pipeline.start_deadline(planned.request, command_start()), running)
    return add_pipeline_verdict(document, checked.verdict)


def print_stages(document: dict[str, Any], *, as_json: bool) -> None:
    """Print the plan of a pipeline, as JSON without the stages' own plans."""
    if not as_json:
        render_pipeline(console(), document)
        return
    solver, cost, schedule = document["solver"], document["cost"] or {}, document["schedule"] or {}
    shown = ("bubble", "mfu", "collective_bytes", "peak_memory_bytes", "sent_bytes", "devices")
    print_json(
        {
            "id": document["id"],
            **{key: solver[key] for key in ("status", "objective_s", "bound_s", "gap")},
            **{key: cost.get(key) for key in shown},
            "schedule": schedule.get("name"),
            "microbatches": schedule.get("microbatches"),
            "virtual_stages": schedule.get("virtual_stages"),
            "stages": [{key: value for key, value in stage.items() if key != "plan"} for stage in document["stages"]],
            "verdict": document["verdict"] and document["verdict"]["verdict"],
            **{key: solver[key] for key in ("reason", "wall_s")},
        }
    )
