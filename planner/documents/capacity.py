"""What is known of a question of capacity, as a document, and outcomes from and for a journal of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from planner.documents.canonical_json import digest_document
from planner.documents.graphs import dump_mesh
from planner.documents.versions import current_versions
from planner.errors import InvalidDocument
from planner.usecases.capacity_question import CandidateResult, CapacityBudget, CapacityQuestion
from planner.usecases.capacity_search import UNBOUNDED, CapacitySearch

_JOURNALED = ("status", "objective_s", "bound_s", "gap", "peak_bytes", "least_limit_bytes", "wall_s")


def capacity_question_id(question: CapacityQuestion) -> str:
    """The digest of all that determines the answer."""
    return digest_document(
        {
            "graphs": [{"document": asked.document, "tokens": asked.tokens} for asked in question.graphs],
            "hardware": [
                {"document": offer.document, "price_per_device_hour": offer.price_per_device_hour}
                for offer in question.offers
            ],
            "candidates": [[one.graph, one.hardware, dump_mesh(one.mesh)] for one in question.candidates],
            "request": asdict(question.request),
            "versions": current_versions(),
        }
    )


def dump_capacity(
    found: CapacitySearch, budget: CapacityBudget = UNBOUNDED, plans: Mapping[int, Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """All candidates with what became of them, and the frontier within a budget; `plans`: plan documents by number.

    Raises InvalidRequest for a budget that nothing meets.
    """
    question, points = found.question, dict(found.points())
    within, plans = found.frontier_within(budget), plans or {}
    priced = question.offers[0].price_per_device_hour is not None
    return {
        "format": "shardplan.capacity",
        "version": 2,
        "id": capacity_question_id(question),
        "unit": question.unit,
        "cost_unit": "price" if priced else "device_s",
        "request": asdict(question.request),
        "graphs": [{"name": asked.document["name"], "tokens": asked.tokens} for asked in question.graphs],
        "hardware": [
            {"name": offer.document["name"], "price_per_device_hour": offer.price_per_device_hour}
            for offer in question.offers
        ],
        "complete": all(passed.skip_reason != "time" for passed in found.skipped.values()),
        "planned": found.planned_count,
        "candidates": [_dump_candidate(found, number) for number in found.order],
        "frontier": [
            _dump_candidate(found, number) | {"plan": _dump_plan_reference(plans.get(number))} for number in within
        ],
        "smallest_feasible": _find_best(found, within, lambda number: points[number]),
        "cheapest": _find_best(found, within, lambda number: points[number].cost),
        "fastest": _find_best(found, within, lambda number: points[number].time_s),
    }


def _find_best(found: CapacitySearch, within: Iterable[int], key: Any) -> dict[str, Any] | None:
    best = min(within, key=key, default=None)
    return None if best is None else _dump_candidate(found, best)


def _dump_plan_reference(document: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if document is None:
        return None
    verdict = document["verdict"]
    return {"id": document["id"], "verdict": verdict and verdict["verdict"]}


def _dump_candidate(found: CapacitySearch, number: int) -> dict[str, Any]:
    """Return what is known of a candidate; `dominated_by` names the mesh whose plan proves it no better.

    Cost and time are those of a step, or of a token where the graphs count tokens.
    """
    question, outcome = found.question, found.outcomes.get(number)
    one, passed, floor = question.candidates[number], found.skip_reason(number), found.bounds[number]
    known: dict[str, Any] = {"status": "skipped" if outcome is None or passed else outcome.status}
    if outcome is not None and not passed:
        known |= {key: getattr(outcome, key) for key in _JOURNALED}
        if outcome.objective_s is not None:
            point = question.point(one, outcome.objective_s)
            mfu = found.mfu(number, outcome.objective_s)
            known |= {"cost": point.cost, "time_s": point.time_s, "mfu": mfu}
    by = (
        None
        if passed is None or passed.dominated_by is None
        else question.candidates[passed.dominated_by].mesh.notation
    )
    return {
        "graph": one.graph,
        "hardware": question.offers[one.hardware].document["name"],
        "mesh": one.mesh.notation,
        "devices": one.mesh.devices,
        "initial_bound_s": floor.step_s,
        "initial_bound_bytes": floor.peak_bytes,
        **known,
        "skip_reason": None if passed is None else passed.skip_reason,
        "dominated_by": by,
    }


def dump_journal_line(question: CapacityQuestion, number: int, outcome: CandidateResult) -> str:
    """An outcome, to be read again by a later run of the same question."""
    saved = {key: getattr(outcome, key) for key in _JOURNALED}
    return json.dumps({"question": capacity_question_id(question), "candidate": number, **saved}) + "\n"


def load_journal(question: CapacityQuestion, text: str, where: str) -> dict[int, CandidateResult]:
    """Outcomes by number. A last line that was cut off is left out. Raises InvalidDocument for another question's."""
    wanted, found = capacity_question_id(question), dict[int, CandidateResult]()
    lines = text.split("\n")[:-1]
    for number, line in enumerate(lines, 1):
        try:
            raw = json.loads(line)
            at, asked = raw.pop("candidate"), raw.pop("question")
            outcome = CandidateResult(**raw)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InvalidDocument("not a line of a journal", where=f"{where}:{number}", got=line) from None
        if asked != wanted:
            raise InvalidDocument(
                "journal of another question or version", where=f"{where}:{number}", got=asked[:12], wanted=wanted[:12]
            )
        found[at] = outcome
    return found
