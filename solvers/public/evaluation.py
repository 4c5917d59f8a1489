"""A choice judged on the document itself, by plain loops: the second opinion on reading and evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from solvers.evaluation import Evaluation
from solvers.parts import IMPOSSIBLE
from solvers.public.form import INFINITE


def evaluate_document(document: Any, choice: Sequence[int]) -> Evaluation:
    """Cost and peak of a choice (one strategy a node) on a sound document; infinities count as IMPOSSIBLE."""
    nodes, edges = document["problem"]["nodes"], document["problem"]["edges"]
    limit = document["problem"].get("usage_limit")
    costs = [row[x] for row, x in zip(nodes["costs"], choice, strict=True)]
    for (i, j), row in zip(edges["nodes"], edges["costs"], strict=True):
        costs.append(row[choice[i] * len(nodes["costs"][j]) + choice[j]])
    change = [0] * (max((stop for _, stop in nodes["intervals"]), default=0) + 1)
    for (start, stop), row, x in zip(nodes["intervals"], nodes["usages"], choice, strict=True):
        change[start] += row[x]
        change[stop] -= row[x]
    used, peak, moment = 0, 0, 0
    for t, more in enumerate(change):
        used += more
        if used > peak:
            peak, moment = used, t
    forbidden = sum(cost >= INFINITE for cost in costs)
    total = sum(cost for cost in costs if cost < INFINITE) + forbidden * IMPOSSIBLE
    return Evaluation(total, peak, moment, not forbidden and (limit is None or peak <= limit))
