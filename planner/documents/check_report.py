"""The result of `check` as JSON: the comparison of two plans, and what became of every limit.

Figures are picoseconds, bytes, or, for gaps, shares. The terms of a broken limit add up to its change exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

from planner.choose.cost import PICO
from planner.documents.diff import dump_regression, dump_unchanged, has_program, load_regression, totals_document
from planner.documents.graphs import load_mesh
from planner.documents.pipeline_sections import AnyPlanDocument, PipelineDocument
from planner.judge.check.edits import Edit, Revision
from planner.judge.check.limits import MEASURE_UNITS, SHARE_UNITS, Threshold
from planner.judge.check.measures import ChangedTerm
from planner.judge.check.verdict import CheckedLimit, ProvenObjective, Waiver, check_limits, to_share_units
from planner.judge.graph_matching import match_edited, match_graphs
from planner.usecases.check import ComparedPlans, Replanned, read_graph

Document = dict[str, Any]
FEASIBLE = "a plan"
"""The implicit limit that there must be a plan."""


def dump_check(
    plans: ComparedPlans, limits: Sequence[Threshold], waivers: Sequence[Waiver] = (), *, today: date = date.min
) -> Document:
    """Return the comparison of two plans with what became of every limit.

    `graphs_equal`: the graphs differ in names or order only. `limits`: every limit with its figures; those in
    `exceeded` are broken, those in `waived` are broken and waived. `unused_waivers`: waivers of limits that hold.
    `replanned`: plans of another version, with the plan that this version makes of the same graph; they are no part
    of the comparison.
    """
    document = _compared(plans, limits, waivers, today=today)
    return {**document, "replanned": [_replanned(each) for each in plans.replanned]}


def _compared(plans: ComparedPlans, limits: Sequence[Threshold], waivers: Sequence[Waiver], *, today: date) -> Document:
    base, new = plans.base, plans.new
    if plans.graphs_equal or base is None or new is None:
        document = {**dump_unchanged(base, new), "limits": [_dump_unknown_limit(limit, 0) for limit in limits]}
        return {**document, **_decide_verdict([], waivers, today), "graphs_equal": True, "notes": list(plans.notes)}
    regression = load_regression(base, new, plans.analyses)
    document = {**dump_regression(base, new, regression), "graphs_equal": False, "notes": list(plans.notes)}
    if regression is not None:
        checked = check_limits(regression, (_dump_certificate(base), _dump_certificate(new)), limits, known=waivers)
        figures = [_dump_figure(each) for each in checked]
        return {
            **document,
            "limits": figures,
            **_decide_verdict([each for each in checked if each.is_broken], waivers, today),
        }
    document["limits"] = [_dump_unknown_limit(limit, None) for limit in limits]
    document |= _decide_verdict([], waivers, today)
    if has_program(new):
        return {**document, "notes": [*plans.notes, "the base is infeasible: there is nothing to rise from"]}
    return {**document, "exceeded": [_dump_infeasible(base, new)]}


def has_changes(document: Document) -> bool:
    """Return whether anything but names and order differs."""
    moved = any(total["change"] for total in document["totals"].values())
    return bool(document["changes"] or document["options"] or document["terms"] or moved or document["exceeded"])


def _replanned(one: Replanned) -> Document:
    """Return both plans of a graph; in its totals, `base` is the recorded one, `new` the one of this version."""
    sides = (("recorded", one.recorded), ("current", one.current))
    return {
        "side": one.side,
        "reason": "planned by another version",
        **{key: {"id": plan.id, "versions": plan.solver.versions} for key, plan in sides},
        "totals": totals_document(one.recorded, one.current),
    }


def _decide_verdict(broken: Sequence[CheckedLimit], waivers: Sequence[Waiver], today: date) -> Document:
    entries = [_dump_broken_limit(each, today) for each in broken]
    used_waivers = [id(each.waiver) for each in broken]
    return {
        "exceeded": [entry for entry in entries if not _is_waived(entry)],
        "waived": [entry for entry in entries if _is_waived(entry)],
        "unused_waivers": [_dump_waiver(one, today) for one in waivers if id(one) not in used_waivers],
    }


def _is_waived(entry: Document) -> bool:
    waiver = entry["waiver"]
    return waiver is not None and not waiver["expired"]


def _dump_unknown_limit(limit: Threshold, change: int | None) -> Document:
    figures = {
        "limit": limit.text,
        "measure": limit.measure,
        "place": limit.place,
        "unit": MEASURE_UNITS[limit.measure],
    }
    return {**figures, "base": None, "new": None, "change": change, "share": None}


def _dump_figure(each: CheckedLimit) -> Document:
    measured, scale = each.change, SHARE_UNITS if each.limit.measure == "gap" else 1
    base, new, change = (
        number / scale if scale > 1 else number
        for number in (measured.base, measured.new, measured.new - measured.base)
    )
    share = change / base if base and scale == 1 else None
    return {**_dump_unknown_limit(each.limit, None), "base": base, "new": new, "change": change, "share": share}


def _dump_broken_limit(each: CheckedLimit, today: date) -> Document:
    return {
        **_dump_figure(each),
        "certificate": each.certificate,
        "terms": [_dump_term(term) for term in each.change.changed_terms],
        "causes": [_dump_cause(edit) for edit in each.causes],
        "waiver": None if each.waiver is None else _dump_waiver(each.waiver, today),
    }


def _dump_term(term: ChangedTerm) -> Document:
    """Return a term under its name in the new graph, or in the base where it was removed."""
    name, base_name = (
        (term.base_name, None)
        if term.name is None
        else (term.name, term.base_name if term.base_name != term.name else None)
    )
    numbers = {"base": term.base, "new": term.new, "change": term.change}
    return {"what": term.what, "name": name, "base_name": base_name, **numbers, "reason": term.reason}


def _dump_cause(edit: Edit) -> Document:
    return {"what": edit.what, "name": edit.name, "reason": edit.reason}


def _dump_waiver(one: Waiver, today: date) -> Document:
    expires = one.expires.isoformat()
    return {"limit": one.limit.text, "reason": one.reason, "expires": expires, "expired": one.expires < today}


def _dump_certificate(plan: AnyPlanDocument) -> ProvenObjective:
    """Return what is proven of a plan. With any number of stages nothing is proven of the step by itself."""
    solver, measure = plan.solver, plan.request.objective
    gap = to_share_units(solver.gap or 0.0)
    if isinstance(plan, PipelineDocument) or measure == "time":
        is_open = isinstance(plan, PipelineDocument) and plan.request.pipeline.stages is None
        bound = 0 if is_open else round(solver.bound_s / PICO)
        return ProvenObjective(measure, round((solver.objective_s or 0.0) / PICO), bound, gap)
    return ProvenObjective(measure, plan.solver.objective_bytes or 0, plan.solver.bound_bytes or 0, gap)


def _dump_infeasible(base: AnyPlanDocument, new: AnyPlanDocument) -> Document:
    """Return the broken limit of a new graph without a feasible plan."""
    mesh = load_mesh(new.mesh)
    graphs = read_graph(base, mesh), read_graph(new, mesh)
    matching = match_graphs(*graphs)
    return {
        **dict.fromkeys(("place", "unit", "base", "new", "change", "share")),
        "limit": FEASIBLE,
        "measure": "plan",
        "certificate": new.solver.reason or new.solver.status,
        "terms": [],
        "causes": [_dump_cause(edit) for edit in Revision(*graphs, matching, match_edited(*graphs, matching)).edits],
        "waiver": None,
    }
