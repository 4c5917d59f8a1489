"""What a report shows of a plan, and of another beside it: parts of their documents, and their programs drawn.

An infeasible plan has no program; it is shown with what blocks it (`planner.documents.explanations`).
"""

from __future__ import annotations

from typing import Any

from planner.documents.comparisons import compared_document, regression_of
from planner.documents.drawings import drawing
from planner.documents.explanations import explained, overview_document
from planner.documents.schemas import PlanDocument
from planner.errors import InvalidRequest

PARTS = ("id", "mesh", "request", "solver", "cost", "memory", "baselines", "verdict", "recomputed")
HARDWARE = ("name", "memory_bytes", "memory_bandwidth", "launch_s", "overlap", "axis_links")
SECONDS = 10.0
"""For a program at the least limit that is known to be enough, where nothing fits."""


def report_document(plan: PlanDocument, beside: PlanDocument | None = None) -> dict[str, Any]:
    """All that a report shows. Raises InvalidDocument for a damaged plan, InvalidRequest where the graph of the one
    beside it has no op in common with its own."""
    compared = _comparison(plan, beside) if beside else None
    sheets = {"plan": _sheet(plan), "beside": _sheet(beside) if beside else None}
    return {"format": "shardplan.report", "version": 1, **sheets, "comparison": compared}


def _comparison(plan: PlanDocument, beside: PlanDocument) -> dict[str, Any]:
    """From the plan beside to this one; `alike`: how many ops of the two are the same."""
    found = regression_of(beside, plan)
    alike = len(found.same.ops) if found else None
    if alike == 0:
        got = f"no op of {plan.graph.name!r} is one of {beside.graph.name!r}"
        raise InvalidRequest("the plans are of models that have nothing in common", got=got, wanted="two of one model")
    return {**compared_document(beside, plan, found), "alike": alike}


def _sheet(plan: PlanDocument) -> dict[str, Any]:
    known = plan.model_dump(mode="json", include=set(PARTS), exclude_unset=True)
    graph = plan.graph.document
    return {
        **known,
        "graph": {
            "name": plan.graph.name,
            "digest": plan.graph.digest,
            "producer": graph.producer,
            "ops": len(graph.nodes),
            "inputs": len(graph.inputs),
        },
        "hardware": plan.hardware.model_dump(include=set(HARDWARE)),
        "program": drawing(explained(plan)) if plan.program else None,
        "blocked": None if plan.program else overview_document(plan, SECONDS)["memory"],
    }
