"""What `check` finds, as JSON: the comparison of two plans, and what became of every limit.

A figure is in picoseconds, bytes or, of gaps, a share. The terms of a broken limit add up to its change exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

from planner.choose.cost import PICO
from planner.documents.comparisons import compared_document, regression_of, totals_document, unchanged_document
from planner.documents.graphs import mesh_from
from planner.documents.schemas import PlanDocument
from planner.gating import Compared, Replanned, graph_of
from planner.judge.gate.causes import Edit, Revision
from planner.judge.gate.figures import Moved
from planner.judge.gate.thresholds import COUNTED_IN, SHARE_UNITS, Threshold
from planner.judge.gate.verdict import Acknowledged, Checked, Proven, checked, share_units
from planner.judge.matching import likened, matched

Document = dict[str, Any]
FEASIBLE = "a plan"
"""The limit that no one has to set: that there is one."""


def gate_document(
    found: Compared, limits: Sequence[Threshold], known: Sequence[Acknowledged] = (), today: date = date.min
) -> Document:
    """The comparison, and: `same`: nothing but names or order was edited; `limits`: every one, with what it is on; of
    these `exceeded` are broken, and `acknowledged` broken but answered for; `unused`: acknowledgements that none
    needed; `replanned`: plans of another version, and what became of them, which is no part of the comparison;
    `notes`: what else is to be known."""
    told = _compared(found, limits, known, today)
    return {**told, "replanned": [_replanned(each) for each in found.replanned]}


def _compared(found: Compared, limits: Sequence[Threshold], known: Sequence[Acknowledged], today: date) -> Document:
    base, new = found.base, found.new
    if found.same or base is None or new is None:
        told = {**unchanged_document(base, new), "limits": [_unknown(limit, 0) for limit in limits]}
        return {**told, **_verdict([], known, today), "same": True, "notes": list(found.notes)}
    regression = regression_of(base, new)
    told = {**compared_document(base, new, regression), "same": False, "notes": list(found.notes)}
    if regression is not None:
        answers = checked(regression, (_proven(base), _proven(new)), limits, known)
        figures = [_figure(each) for each in answers]
        return {**told, "limits": figures, **_verdict([each for each in answers if each.is_broken], known, today)}
    told["limits"] = [_unknown(limit, None) for limit in limits]
    told |= _verdict([], known, today)
    if new.program:
        return {**told, "notes": [*found.notes, "the base is infeasible: there is nothing to rise from"]}
    return {**told, "exceeded": [_infeasible(base, new)]}


def is_changed(told: Document) -> bool:
    """Whether anything differs but names and order."""
    moved = any(total["change"] for total in told["totals"].values())
    return bool(told["changes"] or told["options"] or told["terms"] or moved or told["exceeded"])


def _replanned(one: Replanned) -> Document:
    """The totals' `base` is the plan as it was recorded, `new` the one that this version makes of the same graph."""
    sides = (("recorded", one.recorded), ("current", one.current))
    return {
        "side": one.side,
        "cause": "planned by another version",
        **{key: {"id": plan.id, "versions": plan.solver.versions} for key, plan in sides},
        "totals": totals_document(one.recorded, one.current),
    }


def _verdict(broken: Sequence[Checked], known: Sequence[Acknowledged], today: date) -> Document:
    told = [_broken(each, today) for each in broken]
    used = [id(each.acknowledgement) for each in broken]
    return {
        "exceeded": [entry for entry in told if not _holds(entry)],
        "acknowledged": [entry for entry in told if _holds(entry)],
        "unused": [_acknowledgement(one, today) for one in known if id(one) not in used],
    }


def _holds(entry: Document) -> bool:
    told = entry["acknowledgement"]
    return told is not None and not told["expired"]


def _unknown(limit: Threshold, change: int | None) -> Document:
    told = {"limit": limit.text, "measure": limit.measure, "place": limit.place, "unit": COUNTED_IN[limit.measure]}
    return {**told, "base": None, "new": None, "change": change, "share": None}


def _figure(each: Checked) -> Document:
    on, scale = each.figure, SHARE_UNITS if each.limit.measure == "gap" else 1
    base, new, change = (number / scale if scale > 1 else number for number in (on.base, on.new, on.new - on.base))
    share = change / base if base and scale == 1 else None
    return {**_unknown(each.limit, None), "base": base, "new": new, "change": change, "share": share}


def _broken(each: Checked, today: date) -> Document:
    return {
        **_figure(each),
        "certificate": each.certificate,
        "terms": [_term(term) for term in each.figure.moved],
        "causes": [_cause(edit) for edit in each.causes],
        "acknowledgement": None if each.acknowledgement is None else _acknowledgement(each.acknowledgement, today),
    }


def _term(term: Moved) -> Document:
    """By its name in the new graph, or, of what is gone, in the base."""
    name, was = (term.was, None) if term.name is None else (term.name, term.was if term.was != term.name else None)
    numbers = {"base": term.base, "new": term.new, "change": term.change}
    return {"what": term.what, "name": name, "was": was, **numbers, "reason": term.reason}


def _cause(edit: Edit) -> Document:
    return {"what": edit.what, "name": edit.name, "reason": edit.reason}


def _acknowledgement(one: Acknowledged, today: date) -> Document:
    expires = one.expires.isoformat()
    return {"limit": one.limit.text, "reason": one.reason, "expires": expires, "expired": one.expires < today}


def _proven(plan: PlanDocument) -> Proven:
    solver, measure = plan.solver, plan.request.objective
    gap = share_units(solver.gap or 0.0)
    if measure == "time":
        return Proven(measure, round((solver.objective_s or 0.0) / PICO), round(solver.bound_s / PICO), gap)
    return Proven(measure, solver.objective_bytes or 0, solver.bound_bytes or 0, gap)


def _infeasible(base: PlanDocument, new: PlanDocument) -> Document:
    """That no plan of the new graph was found."""
    mesh = mesh_from(new.mesh)
    graphs = graph_of(base, mesh), graph_of(new, mesh)
    same = matched(*graphs)
    return {
        **dict.fromkeys(("place", "unit", "base", "new", "change", "share")),
        "limit": FEASIBLE,
        "measure": "plan",
        "certificate": new.solver.reason or new.solver.status,
        "terms": [],
        "causes": [_cause(edit) for edit in Revision(*graphs, same, likened(*graphs, same)).edits],
        "acknowledgement": None,
    }
