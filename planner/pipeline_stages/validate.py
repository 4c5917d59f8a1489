"""Validation of a pipeline's plan: all stages run in the order of the schedule (`planner.run.pipeline`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.errors import InvalidRequest
from planner.ir.graph import Graph
from planner.ir.program import Program
from planner.pipeline_stages.cuts import Tie
from planner.pipeline_stages.pipeline_plan import PipelinePlan, number_devices
from planner.pipeline_stages.simulate import Timeline
from planner.pipeline_stages.stage_graph import StageGraph
from planner.planning.deadline import Deadline, TimeLimitReached
from planner.rewrite.accumulate import accumulate_gradients
from planner.run.executor import Progress
from planner.run.pipeline import PRECISION, PipelineVerdict, RunTask, StageProgram, validate_stages

MAX_DEVICES = 1024


def check_stage_backend(backend: str, precision: str) -> None:
    """Raise InvalidRequest for a backend or a precision that stages are not run with."""
    if (backend, precision) != ("numpy", PRECISION):
        wanted = f"backend numpy, precision {PRECISION}"
        raise InvalidRequest("how a pipeline is run", got=f"{backend}, {precision}", wanted=wanted)


def validate_pipeline(
    plan: PipelinePlan, deadline: Deadline | None = None, on_progress: Progress | None = None
) -> PipelinePlan:
    """Run a pipeline's plan and return it with the verdict.

    An infeasible plan is returned unchanged, and so is one that has not ended its run at the deadline.
    """
    if plan.schedule is None:
        return plan
    tasks, watched = list_tasks(plan.timeline), (deadline or Deadline()).watch(on_progress)
    try:
        ranks, ties = plan.schedule.ranks, plan.ties
        verdict = run_stages(plan.graph, plan.programs, tasks, ranks=ranks, ties=ties, on_progress=watched)
    except TimeLimitReached:
        return plan
    return replace(plan, verdict=verdict)


def list_tasks(timeline: Timeline) -> list[RunTask]:
    """Return the tasks of all ranks in the order in which they begin."""
    timed = sorted((one for done in timeline.ranks for one in done), key=lambda one: (one.begin_ps, one.end_ps))
    return [RunTask(one.task.kind.value, one.task.stage, one.task.microbatch) for one in timed]


def run_stages(
    graph: Graph,
    stages: Sequence[tuple[StageGraph, Program]],
    tasks: Sequence[RunTask],
    *,
    ranks: int,
    ties: Sequence[Tie] = (),
    seed: int = 0,
    on_progress: Progress | None = None,
) -> PipelineVerdict:
    """Run stages with the tasks of all micro-batches. Raises InvalidRequest for more devices than can be run."""
    if (devices := sum(program.mesh.devices for _, program in stages[:ranks])) > MAX_DEVICES:
        raise InvalidRequest("too many logical devices to run", got=devices, wanted=f"at most {MAX_DEVICES}")
    microbatches = stages[0][1].graph.microbatches
    copies = {value: original for tie in ties for value, original in tie.copies.items()}
    step = accumulate_gradients(graph, microbatches)
    programs = list_programs(stages, ranks)
    return validate_stages(step, programs, tasks, copies=copies, seed=seed, on_progress=on_progress)


def list_programs(stages: Sequence[tuple[StageGraph, Program]], ranks: int) -> list[StageProgram]:
    """Return the stages as they are run; the meshes of ranks may differ."""
    meshes = [program.mesh for _, program in stages[:ranks]]
    return [
        StageProgram(
            program,
            number % ranks,
            number_devices(meshes, number % ranks),
            stage.sent,
            stage.sent_gradients,
            stage.received,
            stage.received_gradients,
            stage.sent_sums,
            stage.received_sums,
        )
        for number, (stage, program) in enumerate(stages)
    ]
