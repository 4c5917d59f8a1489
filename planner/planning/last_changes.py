"""A local search behind the solver (the RFC's sharding mutation): no single change of a sharding is left that pays.

A choice that the solver proved optimal cannot be improved, and is not tried. Any other is, until the time is up.
"""

from __future__ import annotations

from dataclasses import replace

import solvers
from planner.judge.local_search import Write, improve_locally
from planner.judge.program_choice import encode_choice
from planner.planning.deadline import Deadline
from planner.planning.objectives import PROVEN, ObjectiveResult
from planner.planning.plan_types import Request


def improve_result(
    result: ObjectiveResult, request: Request, *, write: Write, limit: int, deadline: Deadline
) -> ObjectiveResult:
    """Return the result, or one with a faster choice that fits `limit` bytes per device and the same bound."""
    solution, question = result.solution, result.question
    is_final = result.choice is None or solution.status == "optimal" or request.objective != "time"
    if is_final or result.choice is None or deadline.left_s == 0.0:
        return result
    start = encode_choice(question, result.choice)
    last = improve_locally(question, start, write, limit=limit, is_time_up=lambda: deadline.left_s == 0.0)
    cost = solvers.evaluate(question.problem, last.strategies).cost
    if solution.cost is None or len(last.steps_ps) == 1 or cost >= solution.cost:
        return result
    gap = (cost - solution.bound) / cost if cost else 0.0
    closed = gap <= request.gap
    better = replace(
        solution,
        assignment=last.strategies,
        cost=cost,
        gap=gap,
        status="optimal" if closed else "feasible",
        reason=PROVEN if closed else solution.reason,
    )
    return replace(result, solution=better, choice=question.decode(last.strategies))
