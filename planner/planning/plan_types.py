"""Requests to the planner, and the plans that it returns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from planner.choose.cost import PICO, CostModel
from planner.choose.formulate import Choice
from planner.choose.hardware import Hardware
from planner.errors import InvalidRequest
from planner.ir.graph import Graph
from planner.judge.analysis import Analysis
from planner.judge.mfu import model_flops, utilisation
from planner.judge.standard_layouts import LayoutName
from planner.notebook import HtmlTable, notebook_html
from planner.rewrite.accumulate import MAX_MICROBATCHES
from planner.run.validate import Verdict
from planner.units import format_bytes, format_share, format_time

ObjectiveName = Literal["time", "bytes", "memory"]
RecomputeMode = Literal["none", "auto"]
SolverRow = Mapping[str, Any]
"""A line of the solver's log, or a point of its trajectory, by the names of their fields."""


@dataclass(frozen=True, slots=True)
class Request:
    """How to plan.

    memory_limit_bytes  per device; None: the memory of the hardware
    gap                 largest gap between cost and proven bound, as a share of the cost, at which the search may stop
    time_limit_s        of the search; None: no limit
    deterministic       whether the same request always returns the same plan
    recompute           "none", or "auto": values of the forward pass may be recomputed for the backward pass
    objective           least "time" of a step, "bytes" received or "memory" held; among equals, the fastest found
    microbatches        how often forward and backward passes run before the update (`planner.rewrite.accumulate`)
    global_batch        sequences of a step, which say how many micro-batches of the graph's own batch there are
    layout              a standard layout that the plan keeps to (`planner.judge.standard_layouts`); None: any
    overlap             share of what overlapping collectives with ops gains that counts; None: that of the hardware
    base_latency_s      seconds that any collective takes between nodes of the cluster; None: those of the hardware
    """

    memory_limit_bytes: int | None = None
    gap: float = 1e-3
    time_limit_s: float | None = None
    deterministic: bool = False
    seed: int = 0
    recompute: RecomputeMode = "none"
    objective: ObjectiveName = "time"
    microbatches: int = 1
    global_batch: int | None = None
    layout: LayoutName | None = None
    overlap: float | None = None
    base_latency_s: float | None = None

    def __post_init__(self) -> None:
        if self.memory_limit_bytes is not None and self.memory_limit_bytes < 1:
            raise InvalidRequest("memory limit", got=self.memory_limit_bytes, wanted="1 byte or more")
        if not 0 <= self.gap < 1:
            raise InvalidRequest("gap", got=self.gap, wanted="0 or more, below 1")
        if self.time_limit_s is not None and not (math.isfinite(self.time_limit_s) and self.time_limit_s > 0):
            raise InvalidRequest("time limit", got=self.time_limit_s, wanted="seconds above 0")
        if self.microbatches != 1 and self.global_batch is not None:
            got = f"{self.microbatches} micro-batches and a global batch of {self.global_batch}"
            raise InvalidRequest("micro-batches", got=got, wanted="one of the two")
        if not 1 <= self.microbatches <= MAX_MICROBATCHES:
            raise InvalidRequest("micro-batches", got=self.microbatches, wanted=f"1 to {MAX_MICROBATCHES}")
        if self.overlap is not None and not 0 <= self.overlap <= 1:
            raise InvalidRequest("overlap", got=self.overlap, wanted="0 to 1")
        if self.base_latency_s is not None and not (math.isfinite(self.base_latency_s) and self.base_latency_s >= 0):
            raise InvalidRequest("base latency", got=self.base_latency_s, wanted="0 seconds or more")
        for name, known in (("objective", ObjectiveName), ("recompute", RecomputeMode), ("layout", LayoutName)):
            value = getattr(self, name)
            if value not in get_args(known) and (name, value) != ("layout", None):
                raise InvalidRequest(name, got=value, wanted=f"one of {', '.join(get_args(known))}")

    def find_limit(self, hardware: Hardware) -> int:
        """Return the memory limit in bytes per device: the one that is asked for, else the memory of the hardware."""
        return self.memory_limit_bytes or hardware.memory_bytes

    def adjust_hardware(self, hardware: Hardware) -> Hardware:
        """Return the profile with the overlap and the base latency that are asked for."""
        if self.base_latency_s is not None:
            hardware = hardware.with_base_latency(self.base_latency_s)
        return hardware if self.overlap is None else replace(hardware, overlap=self.overlap)


@dataclass(frozen=True, slots=True)
class Folding:
    """How repeated layers were folded to find a start.

    layers           number of layers of each stack
    groups           groups of variables that share one decision
    variables        variables of the folded problem, of `total_variables`
    loss_bound       no plan is faster than the folded one by a larger share; None: no folded plan was found
    unfolded         whether the plan is a better one, in which equal layers differ
    """

    layers: tuple[int, ...]
    groups: int
    variables: int
    total_variables: int
    loss_bound: float | None
    unfolded: bool


@dataclass(frozen=True, slots=True)
class Certificate:
    """What is proven of a plan: none is faster than `bound_s` (gap = 1 - bound / objective), or none fits the limit.

    memory_price_s_per_gib   seconds by which the bound falls per additional GiB on every device
    least_limit_bytes        least memory limit known to be feasible, where the requested one is not
    least_limit_bound_bytes  no smaller memory limit is feasible
    folding                  how repeated layers were folded; None: they were not
    objective_bytes          where the objective is bytes or memory: bytes received in all collectives, or held at the
                             peak. Then no plan receives or holds less than `bound_bytes`, `gap` and `status` refer to
                             bytes, and `bound_s` is 0 for the objective bytes, and for memory the bound of plans that
                             hold no more.
    log, trajectory          what the solver did, and cost and bound over time, in ps (`solvers.Solution`); they are no
                             part of the plan's document
    """

    status: str
    objective_s: float | None
    bound_s: float
    gap: float | None
    wall_s: float
    reason: str
    reproducible: bool
    memory_price_s_per_gib: float
    least_limit_bytes: int | None
    least_limit_bound_bytes: int | None
    folding: Folding | None = None
    objective_bytes: int | None = None
    bound_bytes: int | None = None
    log: tuple[SolverRow, ...] = ()
    trajectory: tuple[SolverRow, ...] = ()


@dataclass(frozen=True, slots=True)
class BaselineFigures:
    """Figures of a named layout, by the same evaluator as the plan's; `fits`: within the memory limit."""

    name: str
    step_s: float
    collective_bytes: int
    peak_bytes: int
    fits: bool


@dataclass(frozen=True)
class Plan:
    """A graph planned on a mesh: choice, analysis and certificate. An infeasible plan has no choice and no analysis."""

    graph: Graph
    model: CostModel
    request: Request
    certificate: Certificate
    choice: Choice | None
    analysis: Analysis | None
    baselines: tuple[BaselineFigures, ...]
    verdict: Verdict | None = None

    @property
    def limit_bytes(self) -> int:
        return self.request.find_limit(self.model.hardware)

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        return _html(self)


def _html(plan: Plan) -> str:
    """Return a plan as HTML: what is proven, its figures, and the standard layouts under the same cost model."""
    mesh, hardware, proven = plan.model.mesh, plan.model.hardware, plan.certificate
    title = f"{plan.graph.name} on {mesh.notation} ({hardware.name}): {proven.status}"
    if plan.analysis is None:
        return notebook_html(title, f"No plan within {format_bytes(plan.limit_bytes)} per device: {proven.reason}")
    numbers = plan.analysis
    own = BaselineFigures("this plan", numbers.step_ps * PICO, numbers.collective_bytes, numbers.peak_bytes, fits=True)
    mfu = utilisation(model_flops(numbers.program.graph), hardware, mesh.devices, step_s=own.step_s)
    lead = (
        f"step {format_time(own.step_s)}, gap {format_share(proven.gap)}, model FLOPs utilisation {format_share(mfu)}; "
        f"peak memory {format_bytes(own.peak_bytes)} of {format_bytes(plan.limit_bytes)} per device"
    )
    columns = ("layout", "step", "received per device", "peak memory", "")
    return notebook_html(title, lead, HtmlTable("Standard layouts", columns, map(_row, (own, *plan.baselines))))


def _row(figures: BaselineFigures) -> tuple[str, ...]:
    sizes = map(format_bytes, (figures.collective_bytes, figures.peak_bytes))
    return figures.name, format_time(figures.step_s), *sizes, "fits" if figures.fits else "over the limit"
