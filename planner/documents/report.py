"""The data of a report: parts of a plan document, of another one to compare it with, and their programs as columns.

An infeasible plan has no program; its report shows what does not fit (`planner.documents.explain`).
"""

from __future__ import annotations

from typing import Any

from planner.documents.diff import dump_regression, load_regression
from planner.documents.explain import dump_overview, explain_plan
from planner.documents.report_graph import dump_report_graph
from planner.documents.schemas import PlanDocument
from planner.errors import InvalidRequest
from planner.planning.deadline import Deadline, ProgressReporter

PARTS = ("id", "mesh", "request", "solver", "cost", "memory", "baselines", "verdict", "recomputed")
HARDWARE = ("name", "memory_bytes", "memory_bandwidth", "launch_s", "overlap", "axis_links")
SECONDS = 10.0
"""The time limit of planning at the least sufficient limit, where nothing fits."""


def dump_report(
    plan: PlanDocument, compare_to: PlanDocument | None = None, report: ProgressReporter | None = None
) -> dict[str, Any]:
    """Return all that a report shows of a plan, and of another one to compare it with.

    Ops have no alternatives where the deadline of `report` is over before these are known.

    Raises InvalidDocument for a damaged plan, InvalidRequest where the graphs of the two have no op in common.
    """
    compared = _dump_comparison(plan, compare_to) if compare_to else None
    report = report or ProgressReporter(Deadline(), None)
    base = _dump_plan_page(compare_to, report) if compare_to else None
    sheets = {"plan": _dump_plan_page(plan, report), "compare_to": base}
    return {"format": "shardplan.report", "version": 2, **sheets, "comparison": compared}


def _dump_comparison(plan: PlanDocument, compare_to: PlanDocument) -> dict[str, Any]:
    """Compare a plan with `compare_to`, the base; `matching_ops` counts the ops that are equal in both."""
    diff = load_regression(compare_to, plan)
    matching = len(diff.exact_matching.ops) if diff else None
    if matching == 0:
        got = f"no op of {plan.graph.name!r} is one of {compare_to.graph.name!r}"
        raise InvalidRequest("the plans are of models that have nothing in common", got=got, wanted="two of one model")
    return {**dump_regression(compare_to, plan, diff), "matching_ops": matching}


def _dump_plan_page(plan: PlanDocument, report: ProgressReporter) -> dict[str, Any]:
    left_s = report.deadline.left_s
    parts = plan.model_dump(mode="json", include=set(PARTS), exclude_unset=True)
    graph = plan.graph.document
    return {
        **parts,
        "graph": {
            "name": plan.graph.name,
            "digest": plan.graph.digest,
            "producer": graph.producer,
            "ops": len(graph.nodes),
            "inputs": len(graph.inputs),
        },
        "hardware": plan.hardware.model_dump(include=set(HARDWARE)),
        "program": dump_report_graph(explain_plan(plan, report)) if plan.program else None,
        "blocked": None
        if plan.program
        else dump_overview(plan, SECONDS if left_s is None else min(SECONDS, left_s))["memory"],
    }
