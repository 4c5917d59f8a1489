"""What is proven of a plan: the certificate, also where the time was up before the whole search.

The solver proves a bound of the problem that it solved. Where that problem left plans out (mesh axes were joined, or
recomputation was not searched yet), or there was no time for a bound, the roofline's holds (`judge.roofline_bounds`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from planner.choose.axis_units import AxisUnits
from planner.choose.cost import PICO, CostModel
from planner.choose.formulate import Choice
from planner.ir.graph import Graph
from planner.judge.analysis import Analysis
from planner.judge.roofline_bounds import min_memory_bytes, min_step_s
from planner.planning.infeasible import TIME_LIMIT
from planner.planning.objectives import ObjectiveResult
from planner.planning.plan_types import BaselineFigures, Certificate, Plan, Request

GIB = 1 << 30
OVER_LIMIT = "every plan holds more than the limit"


@dataclass(frozen=True)
class PricedLayout:
    """A standard layout as a choice, its program with figures, and those that plans are compared with."""

    choice: Choice
    analysis: Analysis
    figures: BaselineFigures


def certify(result: ObjectiveResult, graph: Graph, model: CostModel, *, request: Request) -> Certificate:
    """Return the certificate of a result; its bounds are the roofline's where the solver did not prove as much."""
    solution = result.solution
    least = solution.min_feasible_limit_bound
    if solution.cost is None:
        least = max(least or 0, min_memory_bytes(graph, model.mesh.devices, request.recompute != "none"))
    proven = Certificate(
        status=solution.status,
        objective_s=None if solution.cost is None else solution.cost * PICO,
        bound_s=solution.bound * PICO,
        gap=solution.gap,
        wall_s=solution.wall_s,
        reason=solution.reason,
        reproducible=solution.reproducible,
        memory_price_s_per_gib=solution.memory_price * PICO * GIB,
        least_limit_bytes=solution.min_feasible_limit,
        least_limit_bound_bytes=least,
        folding=result.folding,
        objective_bytes=result.least_bytes,
        bound_bytes=result.bound_bytes,
        log=tuple(map(asdict, solution.log)),
        trajectory=tuple(map(asdict, solution.trajectory)),
    )
    if proven.status not in ("feasible", "unknown") or request.objective != "time":
        return proven
    bound_s = max(proven.bound_s, min_step_s(graph, model.hardware, model.mesh.devices))
    return replace(proven, bound_s=bound_s, gap=1 - bound_s / proven.objective_s if proven.objective_s else proven.gap)


def leave_recomputation(kept: ObjectiveResult, graph: Graph, model: CostModel) -> ObjectiveResult:
    """Return the result without recomputation as the answer to a request that allows it."""
    return _leave_part(kept, graph, model, reason=f"{TIME_LIMIT}, before recomputation was searched")


def leave_joined(best: ObjectiveResult, graph: Graph, model: CostModel) -> ObjectiveResult:
    """Return the result of a search in which mesh axes were joined as the answer where the time is up."""
    return _leave_part(best, graph, model, reason=f"{TIME_LIMIT}, before axes were split apart")


def _leave_part(kept: ObjectiveResult, graph: Graph, model: CostModel, *, reason: str) -> ObjectiveResult:
    """Return the result of a part of the search, whose bound is none of the whole."""
    bound, cost = round(min_step_s(graph, model.hardware, model.mesh.devices) / PICO), kept.solution.cost
    gap = 1 - bound / cost if cost else 0.0
    return replace(kept, solution=replace(kept.solution, status="feasible", bound=bound, gap=gap, reason=reason))


def leave_coarse(best: Plan, request: Request, units: AxisUnits, *, wall_s: float) -> Plan:
    """Return the plan of a search in which mesh axes were joined to `units` as the answer where the time is up."""
    if best.choice is None:
        return leave_nothing(best.graph, best.model, request, wall_s=wall_s, coarse=best)
    joined = ", ".join("+".join(best.model.mesh.axes[axis].name for axis in unit) for unit in units.units)
    return _leave_plan(best, request, reason=f"{TIME_LIMIT}, before axes were split apart: {joined}", wall_s=wall_s)


def leave_layout(
    graph: Graph,
    model: CostModel,
    request: Request,
    *,
    layouts: Sequence[PricedLayout],
    wall_s: float,
    ended: str = TIME_LIMIT,
) -> Plan:
    """Return the best of the standard layouts that fit as the answer where the time is up before a search finds one.

    Where none of them fits, no plan is known; the least that one of them holds is a sufficient limit. `ended`: why
    the search did.
    """
    nothing = leave_nothing(graph, model, request, wall_s=wall_s)
    sufficient = min((each.figures.peak_bytes for each in layouts), default=None)
    nothing = replace(
        nothing,
        baselines=tuple(each.figures for each in layouts),
        certificate=replace(nothing.certificate, least_limit_bytes=sufficient),
    )
    objectives: dict[str, Callable[[BaselineFigures], float]] = {
        "time": lambda each: each.step_s,
        "bytes": lambda each: each.collective_bytes,
        "memory": lambda each: each.peak_bytes,
    }
    least = objectives[request.objective]
    best = min((each for each in layouts if each.figures.fits), key=lambda each: least(each.figures), default=None)
    if best is None:
        return nothing
    known = replace(
        nothing.certificate,
        objective_s=best.figures.step_s,
        objective_bytes=None if request.objective == "time" else int(least(best.figures)),
        least_limit_bytes=None,
        least_limit_bound_bytes=None,
    )
    plan = replace(nothing, certificate=known, choice=best.choice, analysis=best.analysis)
    return _leave_plan(plan, request, reason=f"{ended}, before the search: {best.figures.name}", wall_s=wall_s)


def keep_bounds(plan: Plan, searched: Certificate) -> Plan:
    """Return a plan with what a search of the same request proved where that is more."""
    known, is_time = plan.certificate, plan.request.objective == "time"
    bound_s = max(known.bound_s, searched.bound_s if is_time else 0.0)
    if plan.choice is not None:
        gap = 1 - bound_s / known.objective_s if is_time and known.objective_s else known.gap
        kept = replace(known, bound_s=bound_s, gap=gap, reproducible=searched.reproducible)
        return replace(plan, certificate=kept)
    limits = (known.least_limit_bytes, searched.least_limit_bytes)
    bounds = (known.least_limit_bound_bytes, searched.least_limit_bound_bytes)
    kept = replace(
        known,
        bound_s=bound_s,
        least_limit_bytes=min((each for each in limits if each is not None), default=None),
        least_limit_bound_bytes=max((each for each in bounds if each is not None), default=None),
    )
    return replace(plan, certificate=kept)


def describe_layout(name: str, analysis: Analysis, limit_bytes: int) -> BaselineFigures:
    """Return the figures of a standard layout's program."""
    peak = analysis.peak_bytes
    return BaselineFigures(name, analysis.step_ps * PICO, analysis.collective_bytes, peak, peak <= limit_bytes)


def _leave_plan(best: Plan, request: Request, *, reason: str, wall_s: float) -> Plan:
    """Return a plan of less than the whole search as the answer where the time is up."""
    model, known = best.model, best.certificate
    certificate = replace(
        known,
        status="feasible",
        wall_s=wall_s,
        reason=reason,
        reproducible=False,
        memory_price_s_per_gib=0.0,
        folding=None,
    )
    bound_s = min_step_s(best.graph, model.hardware, model.mesh.devices)
    if known.objective_bytes is None:
        gap = 1 - bound_s / known.objective_s if known.objective_s else 0.0
        return replace(best, request=request, certificate=replace(certificate, bound_s=bound_s, gap=gap))
    held, least = known.objective_bytes, 0
    if request.objective == "memory":
        least = min(held, min_memory_bytes(best.graph, model.mesh.devices, request.recompute != "none"))
    gap = 1 - least / held if held else 0.0
    return replace(best, request=request, certificate=replace(certificate, bound_s=0.0, gap=gap, bound_bytes=least))


def leave_nothing(
    graph: Graph, model: CostModel, request: Request, *, wall_s: float, coarse: Plan | None = None
) -> Plan:
    """Return the answer where the time is up before any plan that fits is known, with what is proven all the same.

    Where the least that every plan holds is over the limit, nothing fits. `coarse`: the plan of a search in which mesh
    axes were joined, and which found that nothing fits.
    """
    devices = model.mesh.devices
    bound_s = min_step_s(graph, model.hardware, devices)
    least = min_memory_bytes(graph, devices, request.recompute != "none")
    fits = None if coarse is None else coarse.certificate.least_limit_bytes
    is_proven = least > request.find_limit(model.hardware)
    certificate = Certificate(
        status="infeasible" if is_proven else "unknown",
        objective_s=None,
        bound_s=bound_s,
        gap=None,
        wall_s=wall_s,
        reason=OVER_LIMIT if is_proven else TIME_LIMIT,
        reproducible=False,
        memory_price_s_per_gib=0.0,
        least_limit_bytes=fits,
        least_limit_bound_bytes=least if fits is None else min(least, fits),
    )
    return Plan(graph, model, request, certificate, None, None, () if coarse is None else coarse.baselines)
