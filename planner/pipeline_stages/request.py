"""Which pipelines to consider for a training step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from planner.errors import InvalidRequest
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.pipeline_stages.schedules import PipelineSchedule, ScheduleName
from planner.planning.plan_types import Request

AUTO = "auto"
MAX_STAGES = 1024
SEPARATOR = "/"
"""Between the meshes of ranks as they are written."""
LEAST_BUBBLE = 0.02
"""Bubble, as a share of the work, below which more virtual stages are not considered where their number is open."""
AUTO_NAMES: tuple[ScheduleName, ...] = ("1f1b", "interleaved", "zb-h1", "gpipe")
ScheduleChoice = Literal["gpipe", "1f1b", "interleaved", "zb-h1", "auto"]


@dataclass(frozen=True, slots=True)
class PipelineRequest:
    """Which pipelines to consider.

    stages          ranks of the pipeline; None: 1, 2, 4, ... as many as there are units
    schedule        the order of passes; "auto": the fastest of all that the virtual stages allow
    virtual_stages  stages of each rank; None: 1 where the schedule has no more, and otherwise also 2, 4, 8, ... as far
                    as that many shorten the bubble
    meshes          of each rank, in order; None: all have the same one
    """

    stages: int | None = 1
    schedule: ScheduleChoice = "1f1b"
    virtual_stages: int | None = 1
    meshes: tuple[Mesh, ...] | None = None

    def __post_init__(self) -> None:
        if self.stages is not None and not 1 <= self.stages <= MAX_STAGES:
            raise InvalidRequest("pipeline stages", got=self.stages, wanted=f"1 to {MAX_STAGES}, or auto")
        if self.schedule not in get_args(ScheduleChoice):
            raise InvalidRequest("schedule", got=self.schedule, wanted=f"one of {', '.join(get_args(ScheduleChoice))}")
        if self.virtual_stages is not None and not 1 <= self.virtual_stages <= MAX_STAGES:
            raise InvalidRequest("virtual stages", got=self.virtual_stages, wanted=f"1 to {MAX_STAGES}")
        if self.meshes is not None and len(self.meshes) != self.stages:
            wanted = f"{self.stages or 'a number of stages'}, one mesh for each rank"
            raise InvalidRequest("meshes of pipeline stages", got=len(self.meshes), wanted=wanted)

    @classmethod
    def parse(
        cls, stages: str | None, schedule: ScheduleChoice, virtual_stages: int | None, meshes: str | None = None
    ) -> PipelineRequest:
        """Return the request for stages as they are written: a number, or `auto`; None: as many as there are meshes.

        meshes  of all ranks as they are written, `2x4/8`; None: all have the same one
        """
        listed = None if meshes is None else tuple(map(Mesh.parse, meshes.split(SEPARATOR)))
        if stages is None:
            stages = str(len(listed or ()))
        if stages != AUTO and not (stages.isascii() and stages.isdecimal()):
            raise InvalidRequest("pipeline stages", got=stages, wanted=f"1 to {MAX_STAGES}, or auto")
        if virtual_stages is None and schedule not in ("auto", "interleaved"):
            virtual_stages = 1
        return cls(None if stages == AUTO else int(stages[:9]), schedule, virtual_stages, listed)

    def list_meshes(self, graph: Graph, mesh: Mesh, layout: str | None) -> tuple[Mesh, ...]:
        """Return the mesh of each rank of a graph's pipeline, or one for all: `mesh`, which is that of the first rank.

        Raises InvalidRequest for another first mesh, and for pins or a layout that name axes which some mesh lacks;
        InvalidMesh for a mesh of unknown size.
        """
        if self.meshes is None:
            return (mesh,)
        if self.meshes[0].notation != mesh.notation:
            wanted = f"{self.meshes[0].notation}, that of the first rank"
            raise InvalidRequest("mesh of a pipeline", got=mesh.notation, wanted=wanted)
        other = next((each for each in self.meshes if each.names != mesh.names), None)
        if other is not None and (graph.annotations or layout):
            wanted = f"meshes with the axes {', '.join(mesh.names)} for all"
            raise InvalidRequest("pins or a layout of a pipeline", got=f"a rank on {other.notation}", wanted=wanted)
        return tuple(
            mesh if each.notation == mesh.notation else replace(each, device=mesh.device) for each in self.meshes
        )

    def list_stage_counts(self) -> list[int]:
        """Return the numbers of ranks to consider: the one that is given, or all powers of two.

        Virtual stages need two ranks or more.
        """
        if self.stages is not None:
            return [self.stages]
        first = 0 if self.virtual_stages in (None, 1) else 1
        return [1 << power for power in range(first, MAX_STAGES.bit_length())]

    def check_schedule(self, microbatches: int) -> None:
        """Raise InvalidRequest where the given number of stages has no such schedule, whatever the graph is."""
        if self.stages is not None:
            self.list_schedules(self.stages, microbatches, MAX_STAGES)

    def list_schedules(self, ranks: int, microbatches: int, units: int) -> list[PipelineSchedule]:
        """Return the schedules to consider with a number of ranks, for a graph of so many units.

        Raises InvalidRequest where no schedule is possible.
        """
        if ranks == 1 and self.virtual_stages in (None, 1):
            return [PipelineSchedule("1f1b", 1, microbatches)]
        chunks = {"interleaved": self._list_chunks(ranks, microbatches, units)}
        if self.schedule != "auto":
            listed = chunks.get(self.schedule) or [self.virtual_stages or (2 if self.schedule in chunks else 1)]
            return [PipelineSchedule(self.schedule, ranks, microbatches, count) for count in listed]
        alone = [1] if self.virtual_stages in (None, 1) else []
        return [
            PipelineSchedule(name, ranks, microbatches, count)
            for name in AUTO_NAMES
            for count in chunks.get(name, alone)
        ]

    def _list_chunks(self, ranks: int, microbatches: int, units: int) -> list[int]:
        """Return the virtual stages of each rank to consider with the schedule interleaved."""
        if self.virtual_stages is not None:
            return [self.virtual_stages] if self.virtual_stages > 1 else []
        listed, chunks = list[int](), 1
        while microbatches % ranks == 0 and ranks - 1 > LEAST_BUBBLE * microbatches * chunks:
            chunks *= 2
            listed += [chunks] if ranks * chunks <= units else []
        return listed


def check_stage_overlap(request: Request) -> None:
    """Raise InvalidRequest for a request with stages that asks for overlap."""
    if request.overlap:
        raise InvalidRequest("overlap of a pipeline", got=request.overlap, wanted="0: stages are priced without it")
