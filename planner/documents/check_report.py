"""What `check` finds, as JSON: the comparison of two plans, and what became of every limit.

A figure is in picoseconds, bytes or, of gaps, a share. The terms of a broken limit add up to its change exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

from planner.choose.cost import PICO
from planner.documents.diff import dump_regression, dump_unchanged, load_regression, totals_document
from planner.documents.graphs import load_mesh
from planner.documents.schemas import PlanDocument
from planner.judge.check.edits import Edit, Revision
from planner.judge.check.limits import MEASURE_UNITS, SHARE_UNITS, Threshold
from planner.judge.check.measures import ChangedTerm
from planner.judge.check.verdict import CheckedLimit, ProvenObjective, Waiver, check_limits, to_share_units
from planner.judge.graph_matching import match_edited, match_graphs
from planner.usecases.check import ComparedPlans, Replanned, read_graph

Document = dict[str, Any]
FEASIBLE = "a plan"
"""The limit that no one has to set: that there is one."""


def dump_check(
    found: ComparedPlans, limits: Sequence[Threshold], known: Sequence[Waiver] = (), *, today: date = date.min
) -> Document:
    """Return the comparison of two plans with what became of every limit.

    `graphs_equal`: the graphs differ in names or order only. `limits`: every limit with its figures; those in
    `exceeded` are broken, those in `waived` are broken and waived. `unused_waivers`: waivers of limits that hold.
    `replanned`: plans of another version, with the plan that this version makes of the same graph; they are no part
    of the comparison.
    """
    told = _compared(found, limits, known, today=today)
    return {**told, "replanned": [_replanned(each) for each in found.replanned]}


def _compared(found: ComparedPlans, limits: Sequence[Threshold], known: Sequence[Waiver], *, today: date) -> Document:
    base, new = found.base, found.new
    if found.graphs_equal or base is None or new is None:
        told = {**dump_unchanged(base, new), "limits": [_dump_unknown_limit(limit, 0) for limit in limits]}
        return {**told, **_decide_verdict([], known, today), "graphs_equal": True, "notes": list(found.notes)}
    regression = load_regression(base, new)
    told = {**dump_regression(base, new, regression), "graphs_equal": False, "notes": list(found.notes)}
    if regression is not None:
        answers = check_limits(regression, (_dump_certificate(base), _dump_certificate(new)), limits, known=known)
        figures = [_dump_figure(each) for each in answers]
        return {
            **told,
            "limits": figures,
            **_decide_verdict([each for each in answers if each.is_broken], known, today),
        }
    told["limits"] = [_dump_unknown_limit(limit, None) for limit in limits]
    told |= _decide_verdict([], known, today)
    if new.program:
        return {**told, "notes": [*found.notes, "the base is infeasible: there is nothing to rise from"]}
    return {**told, "exceeded": [_dump_infeasible(base, new)]}


def has_changes(told: Document) -> bool:
    """Whether anything differs but names and order."""
    moved = any(total["change"] for total in told["totals"].values())
    return bool(told["changes"] or told["options"] or told["terms"] or moved or told["exceeded"])


def _replanned(one: Replanned) -> Document:
    """The totals' `base` is the plan as it was recorded, `new` the one that this version makes of the same graph."""
    sides = (("recorded", one.recorded), ("current", one.current))
    return {
        "side": one.side,
        "reason": "planned by another version",
        **{key: {"id": plan.id, "versions": plan.solver.versions} for key, plan in sides},
        "totals": totals_document(one.recorded, one.current),
    }


def _decide_verdict(broken: Sequence[CheckedLimit], known: Sequence[Waiver], today: date) -> Document:
    told = [_dump_broken_limit(each, today) for each in broken]
    used = [id(each.waiver) for each in broken]
    return {
        "exceeded": [entry for entry in told if not _dump_kept_limit(entry)],
        "waived": [entry for entry in told if _dump_kept_limit(entry)],
        "unused_waivers": [_dump_waiver(one, today) for one in known if id(one) not in used],
    }


def _dump_kept_limit(entry: Document) -> bool:
    told = entry["waiver"]
    return told is not None and not told["expired"]


def _dump_unknown_limit(limit: Threshold, change: int | None) -> Document:
    told = {"limit": limit.text, "measure": limit.measure, "place": limit.place, "unit": MEASURE_UNITS[limit.measure]}
    return {**told, "base": None, "new": None, "change": change, "share": None}


def _dump_figure(each: CheckedLimit) -> Document:
    on, scale = each.change, SHARE_UNITS if each.limit.measure == "gap" else 1
    base, new, change = (number / scale if scale > 1 else number for number in (on.base, on.new, on.new - on.base))
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
    """By its name in the new graph, or, of what is gone, in the base."""
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


def _dump_certificate(plan: PlanDocument) -> ProvenObjective:
    solver, measure = plan.solver, plan.request.objective
    gap = to_share_units(solver.gap or 0.0)
    if measure == "time":
        return ProvenObjective(measure, round((solver.objective_s or 0.0) / PICO), round(solver.bound_s / PICO), gap)
    return ProvenObjective(measure, solver.objective_bytes or 0, solver.bound_bytes or 0, gap)


def _dump_infeasible(base: PlanDocument, new: PlanDocument) -> Document:
    """That no plan of the new graph was found."""
    mesh = load_mesh(new.mesh)
    graphs = read_graph(base, mesh), read_graph(new, mesh)
    same = match_graphs(*graphs)
    return {
        **dict.fromkeys(("place", "unit", "base", "new", "change", "share")),
        "limit": FEASIBLE,
        "measure": "plan",
        "certificate": new.solver.reason or new.solver.status,
        "terms": [],
        "causes": [_dump_cause(edit) for edit in Revision(*graphs, same, match_edited(*graphs, same)).edits],
        "waiver": None,
    }
