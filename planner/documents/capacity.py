"""What is known of a question of capacity, as a document, and outcomes from and for a journal of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from planner.documents.graphs import mesh_document
from planner.documents.ids import digest
from planner.documents.versions import current_versions
from planner.errors import InvalidDocument
from planner.sweep import UNBOUNDED, Budget, Outcome, Question, Survey

_SAVED = ("status", "objective_s", "bound_s", "gap", "peak_bytes", "least_limit_bytes", "wall_s")


def question_id(question: Question) -> str:
    """The digest of all that determines the answer."""
    return digest(
        {
            "graphs": [{"document": asked.document, "tokens": asked.tokens} for asked in question.graphs],
            "hardware": [{"document": offer.document, "hour": offer.hour} for offer in question.offers],
            "candidates": [[one.graph, one.hardware, mesh_document(one.mesh)] for one in question.candidates],
            "request": asdict(question.request),
            "versions": current_versions(),
        }
    )


def capacity_document(
    found: Survey, budget: Budget = UNBOUNDED, plans: Mapping[int, Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """All candidates with what became of them, and the frontier within a budget; `plans`: plan documents by number.

    Raises InvalidRequest for a budget that nothing meets.
    """
    question, points = found.question, dict(found.points())
    within, plans = found.within(budget), plans or {}
    priced = question.offers[0].hour is not None
    return {
        "format": "shardplan.capacity",
        "version": 1,
        "id": question_id(question),
        "unit": question.unit,
        "cost_unit": "price" if priced else "device_s",
        "request": asdict(question.request),
        "graphs": [{"name": asked.document["name"], "tokens": asked.tokens} for asked in question.graphs],
        "hardware": [{"name": offer.document["name"], "hour": offer.hour} for offer in question.offers],
        "complete": all(passed.why != "time" for passed in found.passed.values()),
        "planned": found.planned,
        "candidates": [_candidate(found, number) for number in found.order],
        "frontier": [_candidate(found, number) | {"plan": _plan(plans.get(number))} for number in within],
        "smallest_feasible": _best(found, within, lambda number: points[number]),
        "cheapest": _best(found, within, lambda number: points[number].cost),
        "fastest": _best(found, within, lambda number: points[number].time_s),
    }


def _best(found: Survey, within: Iterable[int], key: Any) -> dict[str, Any] | None:
    best = min(within, key=key, default=None)
    return None if best is None else _candidate(found, best)


def _plan(document: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if document is None:
        return None
    verdict = document["verdict"]
    return {"id": document["id"], "verdict": verdict and verdict["verdict"]}


def _candidate(found: Survey, number: int) -> dict[str, Any]:
    """`by`: the mesh through which it was passed over; cost and time are of a step, or of a token."""
    question, outcome = found.question, found.outcomes.get(number)
    one, passed, floor = question.candidates[number], found.why(number), found.floors[number]
    known: dict[str, Any] = {"status": "passed" if outcome is None or passed else outcome.status}
    if outcome is not None and not passed:
        known |= {key: getattr(outcome, key) for key in _SAVED}
        if outcome.objective_s is not None:
            point = question.point(one, outcome.objective_s)
            mfu = found.mfu(number, outcome.objective_s)
            known |= {"cost": point.cost, "time_s": point.time_s, "mfu": mfu}
    by = None if passed is None or passed.by is None else question.candidates[passed.by].mesh.notation
    return {
        "graph": one.graph,
        "hardware": question.offers[one.hardware].document["name"],
        "mesh": one.mesh.notation,
        "devices": one.mesh.devices,
        "floor_s": floor.step_s,
        "floor_bytes": floor.peak_bytes,
        **known,
        "why": None if passed is None else passed.why,
        "by": by,
    }


def journal_line(question: Question, number: int, outcome: Outcome) -> str:
    """An outcome, to be read again by a later run of the same question."""
    saved = {key: getattr(outcome, key) for key in _SAVED}
    return json.dumps({"question": question_id(question), "candidate": number, **saved}) + "\n"


def journal_outcomes(question: Question, text: str, where: str) -> dict[int, Outcome]:
    """Outcomes by number. A last line that was cut off is left out. Raises InvalidDocument for another question's."""
    wanted, found = question_id(question), dict[int, Outcome]()
    lines = text.split("\n")[:-1]
    for number, line in enumerate(lines, 1):
        try:
            raw = json.loads(line)
            at, asked = raw.pop("candidate"), raw.pop("question")
            outcome = Outcome(**raw)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InvalidDocument("not a line of a journal", where=f"{where}:{number}", got=line) from None
        if asked != wanted:
            raise InvalidDocument(
                "journal of another question or version", where=f"{where}:{number}", got=asked[:12], wanted=wanted[:12]
            )
        found[at] = outcome
    return found
