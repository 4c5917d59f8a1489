"""What exports of a pipeline read of its plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.ir.program import Program
from planner.pipeline_stages.cuts import Tie
from planner.pipeline_stages.pipeline_plan import PipelinePlan
from planner.pipeline_stages.stage_graph import StageGraph
from planner.pipeline_stages.validate import list_programs
from planner.run.pipeline import StageProgram

Task = tuple[str, int, int]
"""forward, backward or weight; the stage; the micro-batch."""


@dataclass(frozen=True)
class StagePlan:
    """Stages in order, the tasks of each rank in order, and the originals of copies of parameters and states."""

    stages: Sequence[StageProgram]
    tasks: Sequence[Sequence[Task]]
    copies: Mapping[str, str]

    @classmethod
    def of(
        cls,
        stages: Sequence[tuple[StageGraph, Program]],
        ranks: int,
        *,
        tasks: Sequence[Sequence[Task]],
        ties: Sequence[Tie],
    ) -> StagePlan:
        """Return what exports read of stages on ranks."""
        inputs = {entry.id for _, program in stages for entry in program.graph.inputs}
        copies = {copy: original for tie in ties for copy, original in tie.copies.items() if copy in inputs}
        return cls(list_programs(stages, ranks), tasks, copies)

    @property
    def microbatches(self) -> int:
        return self.stages[0].program.graph.microbatches

    @property
    def head_fields(self) -> dict[str, object]:
        """What the head of every module of stages says of the plan, by the name of the field."""
        ranks = self.stages[: len(self.tasks)]
        meshes = [stage.program.mesh for stage in ranks]
        return {
            "stages": len(self.stages),
            "ranks": len(ranks),
            "meshes": ", ".join(dict.fromkeys(mesh.notation for mesh in meshes)),
            "world": sum(mesh.devices for mesh in meshes),
            "graph": self.stages[0].program.graph.name,
            "axes": tuple(dict(zip(mesh.names, mesh.shape, strict=True)) for mesh in meshes),
            "firsts": tuple(stage.devices[0] for stage in ranks),
            "microbatches": self.microbatches,
            "copies": dict(self.copies),
            "tasks": "(\n" + "".join(f"    {tuple(map(tuple, own))!r},\n" for own in self.tasks) + ")",
        }


def make_stage_plan(plan: PipelinePlan) -> StagePlan:
    """Return what exports read of a feasible plan."""
    assert plan.schedule is not None, "only a feasible plan has stages"
    tasks = [
        [(one.task.kind.value, one.task.stage, one.task.microbatch) for one in done] for done in plan.timeline.ranks
    ]
    return StagePlan.of(plan.programs, plan.schedule.ranks, tasks=tasks, ties=plan.ties)
