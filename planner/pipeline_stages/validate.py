"""Validation of a pipeline's plan: all stages run in the order of the schedule (`planner.run.pipeline`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.errors import InvalidRequest
from planner.ir.graph import Graph
from planner.ir.program import Program
from planner.pipeline_stages.pipeline_plan import PipelinePlan
from planner.pipeline_stages.stage_graph import StageGraph
from planner.rewrite.accumulate import accumulate_gradients
from planner.run.pipeline import PipelineVerdict, RunTask, StageProgram, validate_stages

MAX_DEVICES = 1024


def validate_pipeline(plan: PipelinePlan) -> PipelinePlan:
    """Run a pipeline's plan and return it with the verdict; an infeasible one is returned unchanged."""
    if plan.schedule is None:
        return plan
    stages = [(one.stage, one.analysis.program) for one in plan.stages]
    timed = sorted((one for done in plan.timeline.ranks for one in done), key=lambda one: (one.begin_ps, one.end_ps))
    tasks = [RunTask(one.task.kind.value, one.task.stage, one.task.microbatch) for one in timed]
    return replace(plan, verdict=run_stages(plan.graph, stages, tasks, ranks=plan.schedule.ranks))


def run_stages(
    graph: Graph, stages: Sequence[tuple[StageGraph, Program]], tasks: Sequence[RunTask], *, ranks: int, seed: int = 0
) -> PipelineVerdict:
    """Run stages with the tasks of all micro-batches. Raises InvalidRequest for more devices than can be run."""
    if (devices := ranks * stages[0][1].mesh.devices) > MAX_DEVICES:
        raise InvalidRequest("too many logical devices to run", got=devices, wanted=f"at most {MAX_DEVICES}")
    listed = [
        StageProgram(
            program,
            number % ranks,
            stage.sent,
            stage.sent_gradients,
            stage.received,
            stage.received_gradients,
        )
        for number, (stage, program) in enumerate(stages)
    ]
    microbatches = stages[0][1].graph.microbatches
    return validate_stages(accumulate_gradients(graph, microbatches), listed, tasks, seed=seed)
