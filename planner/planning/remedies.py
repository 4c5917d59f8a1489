"""What would make an infeasible request feasible: recomputation, else more devices.

Each remedy is searched as the request would be, with a larger gap, and the first for which a plan is found is named
with its step and memory. More devices lengthen the first axis, the one whose devices are farthest apart: it is doubled
while the memory that a device has to hold at least (`planner.judge.roofline_bounds`) exceeds the limit, and then up to
DOUBLINGS times more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from planner.choose.rematerialization import find_recomputable_ops
from planner.ir.mesh import MAX_DEVICES, Mesh
from planner.judge.roofline_bounds import min_memory_bytes
from planner.planning.infeasible import FITS
from planner.planning.plan_search import PlanSearch, list_levels, start_deadline
from planner.planning.plan_types import Plan
from planner.units import format_bytes, format_time

REMEDY_GAP, REMEDY_S = 0.05, 30.0
"""The gap at which a search for a remedy ends, and its most seconds: the request is answered already."""
DOUBLINGS = 3


def try_remedies(plan: Plan, search: PlanSearch) -> Plan:
    """Return the plan of a search; where it is infeasible, with a remedy as its reason if one is found in the time."""
    if plan.certificate.status != "infeasible":
        return plan
    for remedy, tried in _list_remedies(search):
        left_s = tried.request.time_limit_s if tried.request.deterministic else tried.deadline.left_s
        if left_s == 0.0:
            break
        tried.report.begin(f"trying {remedy}")
        most_s = REMEDY_S if left_s is None else min(left_s, REMEDY_S)
        asked = replace(tried.request, time_limit_s=most_s, gap=max(tried.request.gap, REMEDY_GAP))
        if (fit := replace(tried, request=asked, deadline=start_deadline(asked)).find_fit()) is not None:
            found = f"a step of {format_time(fit.step_s)} in {format_bytes(fit.peak_bytes)} per device"
            return replace(plan, certificate=replace(plan.certificate, reason=f"{remedy}{FITS}{found}"))
    return plan


def _list_remedies(search: PlanSearch) -> Iterator[tuple[str, PlanSearch]]:
    """Yield the searches to try, each with what it changes, in the words of the command line."""
    if search.request.recompute == "none" and find_recomputable_ops(search.graph):
        yield "--recompute auto", replace(search, request=replace(search.request, recompute="auto"))
    for mesh in _list_larger_meshes(search):
        units, *_ = list_levels(search.graph, mesh, search.request)
        larger = replace(search, model=replace(search.model, mesh=mesh), units=units)
        yield f"--mesh {mesh.notation}", larger


def _list_larger_meshes(search: PlanSearch) -> Iterator[Mesh]:
    mesh, tried = search.model.mesh, 0
    while tried < DOUBLINGS and 2 * mesh.devices <= MAX_DEVICES:
        first, *others = mesh.axes
        mesh = replace(mesh, axes=(replace(first, size=2 * (first.size or 1)), *others))
        least_bytes = min_memory_bytes(search.graph, mesh.devices, search.request.recompute != "none")
        if least_bytes <= search.limit:
            tried += 1
            yield mesh
