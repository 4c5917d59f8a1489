"""Plan a training step in pipeline stages: how many, where they are cut, in which schedule, and each stage's plan.

The mesh is that of one stage, and the step has as many devices as all ranks together. A request may give each rank a
mesh of its own (`PipelineRequest.meshes`); devices are numbered rank after rank. Where the number of stages is
open (`auto`), 1, 2, 4, ... are considered, and the one with the least device-seconds of a step is taken: steps of more
stages are shorter, on more devices. Where time is limited, every number and schedule has stages in standard layouts
first, and the fastest of these are searched first, each in half of the time that is left.

The bound is that of all partitions, in the schedules considered, whatever the layouts of the stages are. It does not
count sends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from planner.choose.cost import PICO, CostModel
from planner.choose.hardware import Hardware
from planner.errors import InvalidRequest
from planner.ir.graph import Graph, check_sizes
from planner.ir.mesh import Mesh
from planner.pipeline import start_deadline
from planner.pipeline_stages.cuts import Units
from planner.pipeline_stages.pipeline_plan import PipelineCertificate, PipelinePlan
from planner.pipeline_stages.rank_costs import RankCosts
from planner.pipeline_stages.request import PipelineRequest, check_stage_overlap
from planner.pipeline_stages.schedules import PipelineSchedule
from planner.pipeline_stages.search import StageSearch, StageSearchResult
from planner.pipeline_stages.stage_costs import StageCosts
from planner.pipeline_stages.tied_parameters import list_units
from planner.planning.deadline import Deadline, OnPlanProgress, ProgressReporter
from planner.planning.infeasible import describe_infeasible
from planner.planning.plan_types import Request
from planner.planning.step_graph import build_step
from planner.rewrite.accumulate import accumulate_gradients

WRITE_SHARE = 14.0
"""Bounding the step for the last time, and writing the stages and their document, takes about so many times as long as
finding where the step may be cut."""


def plan_pipeline(
    graph: Graph,
    mesh: Mesh,
    hardware: Hardware,
    *,
    pipeline: PipelineRequest,
    request: Request | None = None,
    on_progress: OnPlanProgress | None = None,
    deadline: Deadline | None = None,
    is_standard: bool = False,
) -> PipelinePlan:
    """Plan a training step in stages, each on a mesh of its own of the shape `mesh`.

    mesh         of each rank; where the request has one for each, the first of these
    is_standard  whether only stages in standard layouts are compared, without any search

    Raises InvalidGraph for a graph without phases, and InvalidRequest for more stages than the graph has units, for
    micro-batches that the schedule cannot order, for another objective than time, and for a layout that the graph
    cannot have on the mesh; InvalidSharding for a pin that no option of an op meets.
    """
    request = request or Request()
    check_pipeline_request(request)
    check_sizes(graph)
    priced, meshes = request.adjust_hardware(hardware), pipeline.list_meshes(graph, mesh, request.layout)
    models = price_ranks(meshes, priced)
    deadline = deadline or start_deadline(request)
    began_s, report = deadline.elapsed_s, ProgressReporter(deadline, on_progress)
    report.begin("finding where the step may be cut")
    units = list_units(build_step(graph, mesh, layout=request.layout))
    request = count_microbatches(graph, request)
    search_ends = deadline if is_standard else deadline.sooner(WRITE_SHARE * (deadline.elapsed_s - began_s))
    search = _PipelineSearch(graph, units, models, request, pipeline, search_ends, report)
    return search.run(list(search.price_all() if is_standard else search.search_all()))


def price_ranks(meshes: Sequence[Mesh], hardware: Hardware) -> list[CostModel]:
    """Return the cost model of each rank's stages, one for all ranks with equal meshes."""
    models = {mesh: price_stages(CostModel(mesh, hardware)) for mesh in set(meshes)}
    return [models[mesh] for mesh in meshes]


def price_stages(model: CostModel) -> CostModel:
    """Return the cost model of stages, which are priced without overlap."""
    return CostModel(model.mesh, replace(model.hardware, overlap=0.0))


def count_microbatches(graph: Graph, request: Request) -> Request:
    """Return the request with the number of micro-batches in the place of a global batch."""
    microbatches = accumulate_gradients(graph, request.microbatches, request.global_batch).microbatches
    return replace(request, microbatches=microbatches, global_batch=None)


def check_pipeline_request(request: Request) -> None:
    """Raise InvalidRequest for what stages cannot be asked for."""
    if request.objective != "time":
        raise InvalidRequest("objective of a pipeline", got=request.objective, wanted="time")
    check_stage_overlap(request)


@dataclass
class _PipelineSearch:
    """The search over numbers of stages, schedules, and which tied parameters have a copy in each of two stages.

    models  of each rank, or one for all
    """

    graph: Graph
    units: list[Units]
    models: list[CostModel]
    request: Request
    pipeline: PipelineRequest
    deadline: Deadline
    report: ProgressReporter

    def __post_init__(self) -> None:
        self.costs: dict[tuple[bool, int, Units], RankCosts] = {}

    def run(self, found: list[StageSearchResult]) -> PipelinePlan:
        """Return the best plan of all that was found."""
        fitting = [each for each in found if each.stages]
        if not fitting:
            return self._leave_nothing(found)
        best = min(fitting, key=lambda each: each.step_ps * each.schedule.ranks)
        ranks = best.schedule.ranks
        bound_s = min(each.bound_ps * each.schedule.ranks for each in found) / ranks * PICO
        objective_s = best.step_ps * PICO
        gap = max(0.0, 1 - bound_s / objective_s)
        is_closed = gap <= self.request.gap
        reason = "gap proven" if is_closed else "methods exhausted" if best.is_complete else "work or time limit"
        certificate = PipelineCertificate(
            "optimal" if is_closed else "feasible", objective_s, bound_s, gap, self.deadline.elapsed_s, reason
        )
        return PipelinePlan(
            self.graph, self.models[0], self.request, certificate, best.schedule, best.stages, best.units.ties
        )

    def price_all(self) -> Iterator[StageSearchResult]:
        """Yield the stages in standard layouts of each number of stages and schedule."""
        return (search.leave_standard() for search in self._sort_by_standard())

    def _begin_searches(self) -> list[StageSearch]:
        choices = self._list_choices()
        return [StageSearch(schedule, self._costs_of(schedule, units), self.request.gap) for schedule, units in choices]

    def _sort_by_standard(self) -> list[StageSearch]:
        """Return the searches with stages in standard layouts, those with the least device-seconds first.

        Schedules of small bubbles come first; once one has an answer, the others have half of the time that is left for
        theirs, and those whose bubble alone makes them slower have none.
        """
        searches, until, work, least = self._begin_searches(), Deadline(), 0.0, float("inf")
        for search in sorted(searches, key=lambda search: search.schedule.bubble_overhead):
            if work * (1 + search.schedule.bubble_overhead) >= least:
                break
            self.report.begin(f"{search.schedule.stages} stages in standard layouts, {search.schedule.name}")
            search.try_standard(until)
            least = min(least, search.step_ps * search.schedule.ranks)
            work = min(filter(None, (work, search.fastest_ps)), default=0.0)
            if search.best and until.seconds is None:
                until = self.deadline.sooner((self.deadline.left_s or 0.0) / 2)
        return sorted(searches, key=lambda search: search.step_ps * search.schedule.ranks)

    def search_all(self) -> Iterator[StageSearchResult]:
        """Yield the result of each number of stages and schedule, as long as one may be better than those before."""
        least = float("inf")
        searches = self._begin_searches() if self.deadline.seconds is None else self._sort_by_standard()
        for number, search in enumerate(searches):
            schedule, is_last = search.schedule, number == len(searches) - 1
            self.report.begin(f"planning {schedule.stages} stages, {schedule.name}")
            search.costs.end_at(self.deadline.sooner((self.deadline.left_s or 0.0) * (0.0 if is_last else 0.5)))
            is_late = self.deadline.left_s == 0.0
            if least < float("inf") and (is_late or search.least_device_ps() >= least):
                search.is_cut_short = is_late
                yield search.leave()
                continue
            found = search.run()
            least = min(least, found.step_ps * schedule.ranks)
            yield found

    def _list_choices(self) -> Iterator[tuple[PipelineSchedule, Units]]:
        for schedule in self._list_schedules():
            yield from ((schedule, units) for units in self.units if units.can_be(schedule.stages))

    def _list_schedules(self) -> list[PipelineSchedule]:
        """Return the schedules of all numbers of stages that have any. Raises InvalidRequest where none has."""
        listed, refused = list[PipelineSchedule](), list[InvalidRequest]()
        for ranks in self.pipeline.list_stage_counts():
            try:
                schedules = self.pipeline.list_schedules(ranks, self.request.microbatches, self.most_units.count)
                self._check_units(schedules[0])
                listed += schedules
            except InvalidRequest as error:
                refused.append(error)
        if not listed:
            raise refused[0]
        return listed

    @property
    def most_units(self) -> Units:
        """The units among which more stages are possible than among any others."""
        return max(self.units, key=lambda units: units.count)

    def _check_units(self, schedule: PipelineSchedule) -> None:
        if not any(units.can_be(schedule.stages) for units in self.units):
            wanted = f"at most {self.most_units.count}: {self.most_units.describe_limit()}"
            where = f"graph {self.graph.name!r}"
            raise InvalidRequest("more stages than parts of the graph", where=where, got=schedule.stages, wanted=wanted)

    def _costs_of(self, schedule: PipelineSchedule, units: Units) -> RankCosts:
        key, count = (schedule.is_split, schedule.chunks), self.request.microbatches
        if (*key, units) not in self.costs:
            self.costs[*key, units] = RankCosts.of(
                self.models, lambda model: StageCosts(units, model, self.request, count, *key, self.deadline)
            )
        return self.costs[*key, units]

    def _leave_nothing(self, found: list[StageSearchResult]) -> PipelinePlan:
        """Return the answer where no pipeline fits, with the least memory limit known to be enough."""
        limit = self.request.find_limit(self.models[0].hardware)
        is_proven = all(each.is_complete and each.schedule.chunks == 1 for each in found)
        fits = [each.least_limit_bytes for each in found if each.least_limit_bytes is not None]
        reason = describe_infeasible(limit, min(fits, default=None), limit) if is_proven else "work or time limit"
        if is_proven and self.pipeline.schedule == "gpipe" and (other := self._try_1f1b()) is not None:
            reason += f"; the schedule 1f1b fits, with a step of {other:.4g} s"
        bound_s = min(each.bound_ps for each in found) * PICO if not is_proven else 0.0
        status = "infeasible" if is_proven else "unknown"
        certificate = PipelineCertificate(status, None, bound_s, None, self.deadline.elapsed_s, reason)
        return PipelinePlan(self.graph, self.models[0], self.request, certificate, None, ())

    def _try_1f1b(self) -> float | None:
        """Return the step of the schedule that holds the fewest micro-batches, in seconds, or None where none fits."""
        other = replace(self, pipeline=replace(self.pipeline, schedule="1f1b"))
        return other.run(list(other.search_all())).certificate.objective_s
