"""What a capacity search is asked, and what it learns of one mesh."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from planner.choose.formulate import Choice
from planner.errors import InvalidRequest
from planner.ir.mesh import Mesh
from planner.judge.mesh_candidates import MeshCandidate
from planner.judge.pareto import Point
from planner.planning.plan_types import Request

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class CapacityWorkload:
    """A graph and how many tokens a step of it takes in, if known."""

    document: Mapping[str, Any]
    tokens: int | None


@dataclass(frozen=True, slots=True)
class HardwareOffer:
    """A hardware profile, and what a device of it costs an hour, if known."""

    document: Mapping[str, Any]
    price_per_device_hour: float | None


@dataclass(frozen=True)
class CapacityQuestion:
    """Graphs, hardware, and the meshes to look at. Raises InvalidRequest for what cannot be compared."""

    graphs: tuple[CapacityWorkload, ...]
    offers: tuple[HardwareOffer, ...]
    candidates: tuple[MeshCandidate, ...]
    request: Request

    def __post_init__(self) -> None:
        if not self.candidates:
            raise InvalidRequest("no mesh to look at", wanted="numbers of devices that the mesh's known sizes divide")
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
            raise InvalidRequest("several graphs are compared by the token", wanted="how many tokens each takes in")

    @cached_property
    def unit(self) -> str:
        return "step" if any(asked.tokens is None for asked in self.graphs) else "token"

    def point(self, candidate: MeshCandidate, step_s: float) -> Point:
        """Cost (in device-seconds where nothing has a price) and seconds of a step, or of a token."""
        devices, hour = candidate.mesh.devices, self.offers[candidate.hardware].price_per_device_hour
        seconds = step_s / (self.graphs[candidate.graph].tokens or 1)
        return Point(devices, devices * seconds * (1.0 if hour is None else hour / SECONDS_PER_HOUR), seconds)


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """What planning a candidate gave: status as of a plan, or `BOUNDED`; times in s, of a step."""

    status: str
    objective_s: float | None
    bound_s: float
    gap: float | None
    peak_bytes: int | None
    least_limit_bytes: int | None
    wall_s: float
    choice: Choice | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class CandidateTask:
    """A candidate to be planned, with a choice to start from; a step that takes `cutoff_s` is of no interest."""

    graph: Mapping[str, Any]
    profile: Mapping[str, Any]
    mesh: Mesh
    request: Request
    start: Choice | None
    cutoff_s: float | None


@dataclass(frozen=True, slots=True)
class CapacityBudget:
    """The most seconds of a step, and the most that a step, or a token, may cost."""

    step_s: float | None = None
    cost: float | None = None

    def allows(self, step_s: float, point: Point) -> bool:
        return step_s <= (self.step_s or math.inf) and point.cost <= (self.cost or math.inf)


@dataclass(frozen=True, slots=True)
class SkippedCandidate:
    """Why a candidate was not planned: memory, infeasible, bound, or time where the limit ran out; and by which other
    candidate, by number."""

    skip_reason: str
    dominated_by: int | None = None
