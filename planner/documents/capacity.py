"""The answer to a capacity question as a document, and a journal of finished candidates."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from planner.documents.canonical_json import digest_document
from planner.documents.graphs import dump_mesh
from planner.documents.versions import current_versions
from planner.errors import InvalidDocument
from planner.usecases.capacity_figures import token_figures
from planner.usecases.capacity_question import CandidateResult, CapacityBudget, CapacityQuestion, CapacityWorkload
from planner.usecases.capacity_search import UNBOUNDED, CapacitySearch

_JOURNALED = (
    "status",
    "step_s",
    "objective_s",
    "bound_s",
    "gap",
    "peak_bytes",
    "least_limit_bytes",
    "wall_s",
    "low_s",
    "high_s",
    "schedule",
    "virtual_stages",
    "bubble",
)


def capacity_question_id(question: CapacityQuestion) -> str:
    """Return the digest of everything that determines the answer."""
    return digest_document(
        {
            "graphs": [{"document": asked.document, "tokens": asked.tokens} for asked in question.graphs],
            "hardware": [
                {"document": offer.document, "price_per_device_hour": offer.price_per_device_hour}
                for offer in question.offers
            ],
            "candidates": [[one.graph, one.hardware, dump_mesh(one.mesh), one.stages] for one in question.candidates],
            "request": asdict(question.request),
            "pipeline": question.pipeline and asdict(question.pipeline),
            "versions": current_versions(),
        }
    )


def dump_capacity(
    search: CapacitySearch, budget: CapacityBudget = UNBOUNDED, plans: Mapping[int, Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """Return the capacity document: all candidates with their outcomes, and the frontier within a budget.

    `plans`: plan documents of the frontier by candidate number. Raises InvalidRequest for a budget that no candidate
    meets.
    """
    question, points = search.question, dict(search.points())
    frontier, plans = search.frontier_within(budget), plans or {}
    priced = question.offers[0].price_per_device_hour is not None
    return {
        "format": "shardplan.capacity",
        "version": 2,
        "id": capacity_question_id(question),
        "unit": question.unit,
        "cost_unit": "price" if priced else "device_s",
        "request": asdict(question.request),
        "pipeline": question.pipeline and asdict(question.pipeline),
        "run_tokens": question.run_tokens,
        "graphs": [_dump_workload(question, each) for each in question.graphs],
        "hardware": [
            {
                "name": offer.document["name"],
                "price_per_device_hour": offer.price_per_device_hour,
                "power_w": hardware.power_w,
            }
            for offer, hardware in zip(question.offers, search.bounds.hardware, strict=True)
        ],
        "complete": search.is_complete,
        "planned": search.planned_count,
        "candidates": [_dump_candidate(search, number) for number in search.order],
        "frontier": [
            _dump_candidate(search, number) | {"plan": _dump_plan_reference(plans.get(number))} for number in frontier
        ],
        "smallest_feasible": _find_best(search, frontier, lambda number: points[number]),
        "cheapest": _find_best(search, frontier, lambda number: points[number].cost),
        "fastest": _find_best(search, frontier, lambda number: points[number].time_s),
    }


def _dump_workload(question: CapacityQuestion, workload: CapacityWorkload) -> dict[str, Any]:
    sizes = {"tokens": workload.tokens, "batch": workload.batch, "microbatches": question.count_microbatches(workload)}
    return {"name": workload.document["name"], **sizes}


def _find_best(search: CapacitySearch, frontier: Iterable[int], key: Any) -> dict[str, Any] | None:
    best = min(frontier, key=key, default=None)
    return None if best is None else _dump_candidate(search, best)


def _dump_plan_reference(document: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if document is None:
        return None
    verdict = document["verdict"]
    return {"id": document["id"], "verdict": verdict and verdict["verdict"]}


def _dump_candidate(search: CapacitySearch, number: int) -> dict[str, Any]:
    """Return what is figures of a candidate; `dominated_by` names the mesh whose plan proves it no better.

    Cost and time are those of a step, or of a token where the graphs count tokens.
    """
    question, outcome = search.question, search.outcomes.get(number)
    one, skipped, initial_bound = question.candidates[number], search.skip_reason(number), search.bounds.floor(number)
    figures: dict[str, Any] = {"status": "skipped" if outcome is None or skipped else outcome.status}
    if outcome is not None and not skipped:
        figures |= {key: getattr(outcome, key) for key in _JOURNALED}
        figures |= {
            "searched": outcome.is_searched,
            "step_bound_s": search.step_bound_s(number),
            "step_gap": search.step_gap(number),
        }
        if outcome.step_s is not None:
            step_s, point = outcome.step_s, question.point(one, outcome.step_s)
            figures |= {"cost": point.cost, "time_s": point.time_s, "mfu": search.bounds.find_mfu(number, step_s)}
            figures |= asdict(token_figures(search, number, step_s))
    dominated_by = (
        None if skipped is None or skipped.dominated_by is None else question.candidates[skipped.dominated_by].notation
    )
    return {
        "graph": one.graph,
        "hardware": question.offers[one.hardware].document["name"],
        "mesh": one.mesh.notation,
        "stages": one.stages,
        "devices": one.devices,
        "initial_bound_s": initial_bound.step_s,
        "initial_bound_bytes": initial_bound.peak_bytes,
        **figures,
        "skip_reason": None if skipped is None else skipped.skip_reason,
        "dominated_by": dominated_by,
    }


def dump_journal_line(question: CapacityQuestion, number: int, outcome: CandidateResult) -> str:
    """Return a finished candidate as a line that a later run of the same question can read."""
    saved = {key: getattr(outcome, key) for key in _JOURNALED}
    return json.dumps({"question": capacity_question_id(question), "candidate": number, **saved}) + "\n"


def load_journal(question: CapacityQuestion, text: str, where: str) -> dict[int, CandidateResult]:
    """Return the finished candidates by number; a truncated last line is ignored.

    Raises InvalidDocument for the journal of another question.
    """
    question_id, results = capacity_question_id(question), dict[int, CandidateResult]()
    lines = text.split("\n")[:-1]
    for number, line in enumerate(lines, 1):
        try:
            raw = json.loads(line)
            candidate, asked_id = raw.pop("candidate"), raw.pop("question")
            outcome = CandidateResult(**raw)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InvalidDocument("not a journal line", where=f"{where}:{number}", got=line) from None
        if asked_id != question_id:
            raise InvalidDocument(
                "journal of another question or version",
                where=f"{where}:{number}",
                got=asked_id[:12],
                wanted=question_id[:12],
            )
        results[candidate] = outcome
    return results
