"""The question of a capacity search, and the results of its candidates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

from planner.choose.formulate import Choice
from planner.errors import InvalidRequest
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.judge.mesh_candidates import MeshCandidate
from planner.judge.pareto import Point
from planner.pipeline_stages.request import PipelineRequest, check_stage_overlap
from planner.planning.deadline import Deadline
from planner.planning.plan_types import Request
from planner.rewrite.accumulate import accumulate_gradients

SECONDS_PER_HOUR = 3600.0


FIRST_SHARE, TIME_SHARE = 0.8, 0.5
"""A candidate gets no more than this share of the time that is left, so that others are planned too: the first share
while no plan of as few devices is known."""
STAGES_SHARE = 0.25
"""The same for a search for stages, which takes all its time."""
PRICING_SHARE = 0.5
"""The share of a limited time in which candidates with stages are priced in standard layouts before any is searched."""


@dataclass(frozen=True, slots=True)
class CapacityWorkload:
    """A graph document, and the tokens and sequences of one pass over it (None: unknown)."""

    document: Mapping[str, Any]
    tokens: int | None
    batch: int | None = None


@dataclass(frozen=True, slots=True)
class HardwareOffer:
    """A hardware profile document, and the price of one device per hour (None: unknown)."""

    document: Mapping[str, Any]
    price_per_device_hour: float | None


@dataclass(frozen=True)
class CapacityQuestion:
    """Graphs, hardware, and candidate meshes. Raises InvalidRequest where they cannot be compared.

    `run_tokens` is how many tokens a whole run processes; None: not asked. With a global batch in the request a step of
    every graph is one update on so many sequences, in as many micro-batches as they take. `pipeline` says which stages
    and schedules are considered; each candidate has its own number of stages, one or more, priced without overlap.
    """

    graphs: tuple[CapacityWorkload, ...]
    offers: tuple[HardwareOffer, ...]
    candidates: tuple[MeshCandidate, ...]
    request: Request
    run_tokens: float | None = None
    pipeline: PipelineRequest | None = None

    def __post_init__(self) -> None:
        if not self.candidates:
            stages = (
                "" if self.pipeline is None or self.pipeline.stages is None else f"{self.pipeline.stages} stages and "
            )
            wanted = f"numbers of devices that {stages}the mesh's known sizes divide"
            raise InvalidRequest("no candidate mesh", wanted=wanted)
        if len({offer.price_per_device_hour is None for offer in self.offers}) > 1:
            raise InvalidRequest("a price for some hardware only", wanted="one for each, or none")
        for offer in self.offers:
            if offer.price_per_device_hour is not None and not (
                math.isfinite(offer.price_per_device_hour) and offer.price_per_device_hour > 0
            ):
                raise InvalidRequest(
                    "price of a device-hour", got=offer.price_per_device_hour, wanted="a number above 0"
                )
        if len(self.graphs) > 1 and any(asked.tokens is None for asked in self.graphs):
            raise InvalidRequest("several graphs are compared per token", wanted="the tokens of a step of each graph")
        self._check_run()
        if self.pipeline is not None and self.pipeline.meshes is not None:
            got, wanted = f"meshes of {len(self.pipeline.meshes)} ranks", "stages on meshes of one shape"
            raise InvalidRequest("stages of a capacity question", got=got, wanted=wanted)
        if self.pipeline is not None:
            check_stage_overlap(self.request)
            object.__setattr__(self, "request", replace(self.request, overlap=0.0))

    def _check_run(self) -> None:
        if self.run_tokens is not None:
            if not (math.isfinite(self.run_tokens) and self.run_tokens > 0):
                raise InvalidRequest("tokens of a run", got=self.run_tokens, wanted="a number above 0, such as 15e12")
            if self.unit == "step":
                raise InvalidRequest("tokens of a run", wanted="graphs with an input of tokens")
        whole = self.request.global_batch
        for asked in self.graphs:
            if whole is not None and (asked.batch is None or whole % asked.batch):
                got = f"{whole}, with {asked.batch or 'an unknown number of'} sequences a pass"
                raise InvalidRequest("global batch", got=got, wanted="a multiple of the sequences of every graph")

    def build_step(self, graph: Graph) -> Graph:
        """Return the graph of a step of all micro-batches, the same one for all candidates of a graph."""
        return _build_step(graph, self.request.microbatches, self.request.global_batch)

    @cached_property
    def unit(self) -> str:
        return "step" if any(asked.tokens is None for asked in self.graphs) else "token"

    def count_microbatches(self, workload: CapacityWorkload) -> int:
        """Return the passes over a graph before each update."""
        whole, request = self.request.global_batch, self.request
        return request.microbatches if whole is None or workload.batch is None else whole // workload.batch

    def count_tokens(self, candidate: MeshCandidate) -> int | None:
        """Return the tokens of a step of a candidate, of all its micro-batches; None: unknown."""
        workload = self.graphs[candidate.graph]
        return None if workload.tokens is None else workload.tokens * self.count_microbatches(workload)

    def point(self, candidate: MeshCandidate, step_s: float) -> Point:
        """Return devices, cost and seconds of a step, or per token; the cost is in device-seconds without prices."""
        devices, hour = candidate.devices, self.offers[candidate.hardware].price_per_device_hour
        seconds = step_s / (self.count_tokens(candidate) or 1)
        return Point(devices, devices * seconds * (1.0 if hour is None else hour / SECONDS_PER_HOUR), seconds)


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """Result of planning a candidate: the status of a plan, or `BOUNDED`; times in seconds per step.

    step_s            the step that counts, with the overlap of the hardware or the request
    objective_s       the sum of its instructions; no plan of the candidate has one below `bound_s`
    low_s, high_s     the interval of `step_s` (`planner.judge.step_interval`), where it is known
    schedule, bubble  of a candidate in stages, whose step has no overlap; `virtual_stages` of each rank
    is_searched       False for a plan in standard layouts, which no search has improved
    """

    status: str
    step_s: float | None
    objective_s: float | None
    bound_s: float
    gap: float | None
    peak_bytes: int | None
    least_limit_bytes: int | None
    wall_s: float
    choice: Choice | None = field(default=None, repr=False)
    schedule: str | None = None
    bubble: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    virtual_stages: int | None = None
    is_searched: bool = True


@dataclass(frozen=True, slots=True)
class CandidateTask:
    """A candidate to plan, with a choice to start from.

    Plans whose instructions take `cutoff_s` or longer one after the other are of no interest.
    `deadline` is that of the whole search; the candidate gets no more than a `share` of the time that is left.
    `is_standard`: only stages in standard layouts are compared, in every schedule.
    """

    graph: Mapping[str, Any]
    profile: Mapping[str, Any]
    mesh: Mesh
    request: Request
    start: Choice | None
    cutoff_s: float | None
    deadline: Deadline = field(default_factory=Deadline)
    pipeline: PipelineRequest | None = None
    share: float = TIME_SHARE
    is_standard: bool = False


@dataclass(frozen=True, slots=True)
class CapacityBudget:
    """Upper limits on the seconds of a step, and on the cost of a step or a token; None: no limit."""

    step_s: float | None = None
    cost: float | None = None

    def allows(self, step_s: float, point: Point) -> bool:
        return step_s <= (self.step_s or math.inf) and point.cost <= (self.cost or math.inf)


@dataclass(frozen=True, slots=True)
class SkippedCandidate:
    """Why a candidate was not planned.

    It is "layout" where the mesh cannot have the one asked for, "stages" where the graph or the schedule cannot have so
    many, "memory", "infeasible", "bound", "time" where the time limit ran out, or "cancelled". `dominated_by` is the
    number of the candidate that proves it, if one does.
    """

    skip_reason: str
    dominated_by: int | None = None


@lru_cache(maxsize=64)
def _build_step(graph: Graph, microbatches: int, global_batch: int | None) -> Graph:
    return accumulate_gradients(graph, microbatches, global_batch)
