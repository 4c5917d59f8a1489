"""The Solution of a finished solve, built from its final state."""

from __future__ import annotations

from collections.abc import Mapping

from solvers.presolve import PresolvedProblem
from solvers.solution import CUT_OFF, Solution, Status
from solvers.solve_state import Integers, SolveState


def build_solution(
    state: SolveState, reduced: PresolvedProblem | None, multipliers: Mapping[int, float], *, nearest: int
) -> Solution:
    """Return what is known and proven, in terms of the problem before presolve.

    reduced: the presolved problem, None where presolve proved infeasibility. nearest: how many assignments near the
    bound to add.
    """
    status: Status = "unknown"
    if state.assignment is not None:
        status = "optimal" if state.is_optimal else "feasible"
    elif state.is_infeasible:
        status = "infeasible"
    return Solution(
        status=status,
        assignment=_postsolve(state.assignment, reduced),
        cost=state.cost,
        bound=state.bound,
        gap=state.gap,
        wall_s=state.elapsed_s,
        reason=_stop_reason(state),
        memory_price=float(sum(multipliers.values())),
        min_feasible_limit=state.min_peak if status == "infeasible" else None,
        min_feasible_limit_bound=_bound_feasible_limit(state) if status == "infeasible" else None,
        reproducible=state.reproducible,
        min_peak_assignment=_postsolve(state.min_peak_assignment, reduced) if status == "infeasible" else None,
        failures=tuple(state.failures),
        log=tuple(state.log),
        trajectory=tuple(state.trajectory),
        bound_numeric=state.bound_numeric,
        nearest=tuple(filter(None, (_postsolve(each, reduced) for each in state.nearest(multipliers, nearest)))),
    )


def _bound_feasible_limit(state: SolveState) -> int:
    """Return a proven lower bound of every feasible limit: where the costs prove that this limit is infeasible, no
    limit up to it is feasible either."""
    limit = state.problem.limit
    return state.min_feasible_limit_bound if limit is None else max(state.min_feasible_limit_bound, limit + 1)


def _stop_reason(state: SolveState) -> str:
    if state.is_infeasible or state.is_optimal:
        return state.stop_reason or "gap proven"
    return CUT_OFF if state.is_cut_off else state.stop_reason or "methods exhausted"


def _postsolve(assignment: Integers | None, reduced: PresolvedProblem | None) -> tuple[int, ...] | None:
    original = assignment if assignment is None or reduced is None else reduced.postsolve(assignment)
    return None if original is None else tuple(original.tolist())
