"""An exact lower bound from CP-SAT, whose integer reasoning makes it a proof, unlike a floating-point solver's bound.

The model is the problem's local polytope (solvers/mip.py) with a boolean for every column. It has capacity rows only at
the given time steps: a relaxation, so its bound holds for the problem too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from solvers.isolated_process import WorkerFailed
from solvers.linear_model import LinearModel
from solvers.mip import LocalPolytope
from solvers.problem import Problem

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

Integers = NDArray[np.int64]

MAX_INT64 = (1 << 63) - 1
# Where no clock runs, CP-SAT's own deterministic time (roughly seconds).
DETERMINISTIC_TIME = 30.0


def prove_bound(
    problem: Problem, time_steps: Sequence[int], upper_cutoff: int, seconds: float | None, seed: int
) -> tuple[int, Integers | None]:
    """Return a proven lower bound, up to upper_cutoff, of every feasible assignment's cost, and the cheapest assignment
    below upper_cutoff that was found (None if none), which fits the limit at `time_steps`.

    seconds: of wall clock; None runs a reproducible amount of work.
    """
    from ortools.sat.python import cp_model  # here, because it imports pandas: only the worker process needs it

    polytope = LocalPolytope(problem, cutoff=upper_cutoff)
    if problem.limit is not None:
        polytope.add_capacity_rows(time_steps)
    model = cp_model.CpModel()
    variables, total = _add_program(model, polytope.program)
    model.add(total <= min(upper_cutoff - 1, MAX_INT64))
    model.minimize(total)
    solver = cp_model.CpSolver()
    # With two, CP-SAT has other strategies, which proved far less of steps with recomputation next to a memory limit.
    solver.parameters.num_workers, solver.parameters.random_seed = 1, seed
    solver.parameters.linearization_level = 2
    if seconds is None:
        solver.parameters.max_deterministic_time = DETERMINISTIC_TIME
    else:
        solver.parameters.max_time_in_seconds = max(seconds, 0.01)
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return upper_cutoff, None
    if status == cp_model.MODEL_INVALID:
        raise WorkerFailed(f"prove_bound: CP-SAT refused the model: {model.validate() or 'its integers are too large'}")
    found = None if status == cp_model.UNKNOWN else np.array([solver.boolean_value(each) for each in variables])
    # The bound in integers: best_objective_bound is a double, which rounds costs above 2**53 up as well as down.
    bound = min(max(solver.response_proto.inner_objective_lower_bound, 0), upper_cutoff)
    return bound, None if found is None else polytope.to_assignment(found)


def _add_program(model: cp_model.CpModel, program: LinearModel) -> tuple[list[cp_model.IntVar], cp_model.LinearExprT]:
    """Add a program's columns, as booleans or zeros, and its rows; return the variables and the objective."""
    from ortools.sat.python import cp_model

    columns = [model.new_int_var(0, int(upper), "") for part in program.upper for upper in part]
    rows, column, value = (np.concatenate([entry[k] for entry in program.entries]) for k in range(3))
    order = np.argsort(rows, kind="stable")
    ends = np.searchsorted(rows[order], np.arange(1, program.rows))
    lowers, uppers = (
        [each for part in bounds for each in part.tolist()] for bounds in (program.row_lower, program.row_upper)
    )
    for row, entries in enumerate(np.split(order, ends)):
        terms = [columns[c] for c in column[entries].tolist()]
        lower = -MAX_INT64 if lowers[row] == -np.inf else int(lowers[row])
        model.add_linear_constraint(
            cp_model.LinearExpr.weighted_sum(terms, value[entries].tolist()), lower, int(uppers[row])
        )
    costs = [cost for part in program.cost for cost in part.tolist()]
    return columns, cp_model.LinearExpr.weighted_sum(columns, costs)
