"""Evaluation of an assignment on the document itself, by plain loops: an independent check of reader and evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from solvers.evaluation import Evaluation
from solvers.iopddl.form import INFINITE_COST
from solvers.model import IMPOSSIBLE


def evaluate_document(document: Any, assignment: Sequence[int]) -> Evaluation:
    """Return cost and peak of an assignment (one strategy per node) on a valid document; an infinite cost counts as
    IMPOSSIBLE."""
    nodes, edges = document["problem"]["nodes"], document["problem"]["edges"]
    limit = document["problem"].get("usage_limit")
    costs = [row[x] for row, x in zip(nodes["costs"], assignment, strict=True)]
    for (i, j), row in zip(edges["nodes"], edges["costs"], strict=True):
        costs.append(row[assignment[i] * len(nodes["costs"][j]) + assignment[j]])
    change = [0] * (max((stop for _, stop in nodes["intervals"]), default=0) + 1)
    for (start, stop), row, x in zip(nodes["intervals"], nodes["usages"], assignment, strict=True):
        change[start] += row[x]
        change[stop] -= row[x]
    used, peak, peak_step = 0, 0, 0
    for t, more in enumerate(change):
        used += more
        if used > peak:
            peak, peak_step = used, t
    forbidden = sum(cost >= INFINITE_COST for cost in costs)
    total = sum(cost for cost in costs if cost < INFINITE_COST) + forbidden * IMPOSSIBLE
    fits = limit is None or peak <= limit
    return Evaluation(total, peak, peak_step, allowed=not forbidden, feasible=not forbidden and fits)
