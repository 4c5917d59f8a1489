"""A linear or mixed-integer program as arrays, solved through OR-Tools MathOpt (GLOP, or HiGHS with integers).

CP-SAT takes the same programs where all their numbers are integers (solvers/cpsat.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

import numpy as np
from numpy.typing import NDArray
from ortools.glop.parameters_pb2 import GlopParameters
from ortools.math_opt import model_pb2
from ortools.math_opt.python import mathopt
from ortools.math_opt.python.errors import InternalMathOptError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Numbers = Floats | Integers

# Most steps of the dual simplex method for a bound of a branch.
PROBE_STEPS = 200


@dataclass(frozen=True, slots=True)
class MipSolution:
    """The result of a solve: one value per column (None: no solution found) and the solver's floating-point bound.

    is_complete: the solver ended by itself, not at a limit.
    """

    values: Floats | None
    bound: float
    is_complete: bool


@dataclass(frozen=True, slots=True)
class LpSolution:
    """An optimal solution of a linear program: values per column, the cost, and duals per row (<= 0 for rows with an
    upper bound)."""

    values: Floats
    cost: float
    duals: Floats


@dataclass(slots=True)
class LinearModel:
    """minimise cost @ x subject to lower <= x <= upper and row_lower <= A x <= row_upper.

    Each list holds one array per call of add_columns, add_rows or add_entries; `columns` and `rows` are the totals. The
    numbers are kept as they are given, so that integers stay exact. The tolerances of floating-point solvers are
    absolute: these are given the costs divided by `unit`, and each row divided by its entry of row_size.
    """

    unit: float = 1.0
    cost: list[Numbers] = field(default_factory=list)
    lower: list[Floats] = field(default_factory=list)
    upper: list[Floats] = field(default_factory=list)
    integer: list[NDArray[np.bool_]] = field(default_factory=list)
    row_lower: list[Numbers] = field(default_factory=list)
    row_upper: list[Numbers] = field(default_factory=list)
    row_size: list[Floats] = field(default_factory=list)
    entries: list[tuple[Integers, Integers, Numbers]] = field(default_factory=list)
    columns: int = 0
    rows: int = 0

    def add_columns(
        self, cost: Numbers, upper: float | Floats, integer: bool = False, *, lower: float = 0.0
    ) -> Integers:
        """Add variables with these costs and bounds; return their indices."""
        count = cost.size
        self.cost.append(cost)
        self.lower.append(np.full(count, lower))
        self.upper.append(np.full(count, upper))
        self.integer.append(np.full(count, integer))
        self.columns += count
        return np.arange(self.columns - count, self.columns)

    def add_rows(self, lower: Numbers, upper: Numbers, *, size: float = 1.0) -> Integers:
        """Add rows with these bounds; return their indices."""
        self.row_lower.append(lower)
        self.row_upper.append(upper)
        self.row_size.append(np.full(lower.size, size))
        self.rows += lower.size
        return np.arange(self.rows - lower.size, self.rows)

    def add_entries(self, rows: Integers, columns: Integers, values: Numbers) -> None:
        """Add coefficients values[k] at (rows[k], columns[k]); entries at the same position add up."""
        self.entries.append((rows, columns, values))

    def _model(self) -> mathopt.Model:
        """Build the MathOpt model from the arrays, through its proto: no Python call per coefficient."""
        proto = model_pb2.ModelProto()
        ids = np.arange(self.columns)
        proto.variables.ids.extend(ids.tolist())
        proto.variables.lower_bounds.extend(np.concatenate(self.lower).tolist())
        proto.variables.upper_bounds.extend(np.concatenate(self.upper).tolist())
        proto.variables.integers.extend(np.concatenate(self.integer).tolist())
        cost = np.concatenate(self.cost) / self.unit
        used = np.flatnonzero(cost)
        proto.objective.linear_coefficients.ids.extend(used.tolist())
        proto.objective.linear_coefficients.values.extend(cost[used].tolist())
        sizes = np.concatenate([np.zeros(0), *self.row_size])
        if self.rows:
            proto.linear_constraints.ids.extend(range(self.rows))
            proto.linear_constraints.lower_bounds.extend((np.concatenate(self.row_lower) / sizes).tolist())
            proto.linear_constraints.upper_bounds.extend((np.concatenate(self.row_upper) / sizes).tolist())
        if self.entries:
            rows, columns, values = (np.concatenate([entry[k] for entry in self.entries]) for k in range(3))
            # The proto wants each position once, in row-major order.
            position, entry = np.unique(rows * self.columns + columns, return_inverse=True)
            summed = np.bincount(entry, weights=values / sizes[rows], minlength=position.size)
            matrix = proto.linear_constraint_matrix
            matrix.row_ids.extend((position // self.columns).tolist())
            matrix.column_ids.extend((position % self.columns).tolist())
            matrix.coefficients.extend(summed.tolist())
        return mathopt.Model.from_model_proto(proto)

    def solve(
        self, hint: Floats | None, *, seconds: float | None, nodes: int | None, gap: float, seed: int
    ) -> MipSolution:
        """Solve by HiGHS.

        hint: a value per column. seconds: of wall clock; nodes: of branch and bound; None means no limit. gap:
        relative. Where the solver fails numerically, the result has no values.
        """
        model = self._model()
        parameters = mathopt.SolveParameters(random_seed=seed, relative_gap_tolerance=gap, node_limit=nodes)
        hints = mathopt.ModelSolveParameters()
        if seconds is not None:
            parameters.time_limit = timedelta(seconds=max(seconds, 0.01))
        if hint is not None:
            chosen = zip(model.variables(), hint.tolist(), strict=True)
            hints.solution_hints.append(mathopt.SolutionHint(variable_values=dict(chosen)))
        highs = mathopt.SolverType.HIGHS
        result = _call_solver(partial(mathopt.solve, model, highs, params=parameters, model_params=hints))
        if result is None:
            return MipSolution(None, -np.inf, False)
        values: Floats | None = None
        if result.has_primal_feasible_solution():
            values = np.array(result.variable_values(model.variables()))
        ended = (mathopt.TerminationReason.OPTIMAL, mathopt.TerminationReason.INFEASIBLE)
        bound = result.termination.objective_bounds.dual_bound
        return MipSolution(values, bound, result.termination.reason in ended)


class IncrementalLp:
    """The LP relaxation of a program that is solved again as rows are added: GLOP continues from its last basis."""

    def __init__(self, program: LinearModel) -> None:
        self._program, self._model = program, program._model()
        self._rows, self._entries = program.rows, len(program.entries)
        for variable in self._model.variables():
            variable.integer = False
        self._solver = mathopt.IncrementalSolver(self._model, mathopt.SolverType.GLOP)

    def solve(self, seconds: float | None = None) -> LpSolution | None:
        """Return the optimum, or None if there is none that is finite or `seconds` of wall clock are not enough (None:
        no limit)."""
        self._append_rows()
        # No proof rests on the solution, so a slightly imprecise one will do. New rows keep the basis dual feasible.
        glop = GlopParameters(change_status_to_imprecise=False, use_dual_simplex=True)
        parameters = mathopt.SolveParameters(glop=glop)
        if seconds is not None:
            parameters.time_limit = timedelta(seconds=max(seconds, 0.01))
        result = _call_solver(partial(self._solver.solve, params=parameters))
        if result is None:  # numerical failure from the old basis: start from scratch
            self._solver = mathopt.IncrementalSolver(self._model, mathopt.SolverType.GLOP)
            result = _call_solver(partial(self._solver.solve, params=parameters))
        if result is None or result.termination.reason != mathopt.TerminationReason.OPTIMAL:
            return None
        values = np.array(result.variable_values(self._model.variables()))
        duals = np.array(result.dual_values(self._model.linear_constraints()))
        is_finite = np.isfinite(values).all() and np.isfinite(duals).all()
        return LpSolution(values, result.objective_value(), duals) if is_finite else None

    def bound_without(self, columns: Integers) -> float:
        """Return a lower bound of the optimum without these columns, by a few steps from the last basis (that of a call
        without columns is optimal); infinite where nothing is left, -inf where the solver fails."""
        self._append_rows()
        variables = [self._model.get_variable(column) for column in columns.tolist()]
        uppers = [variable.upper_bound for variable in variables]
        for variable in variables:
            variable.upper_bound = 0.0
        # Presolve would leave no basis to continue from.
        glop = GlopParameters(use_dual_simplex=True, use_preprocessing=False)
        parameters = mathopt.SolveParameters(glop=glop, iteration_limit=PROBE_STEPS if variables else None)
        result = _call_solver(partial(self._solver.solve, params=parameters))
        for variable, upper in zip(variables, uppers, strict=True):
            variable.upper_bound = upper
        if result is None:
            return -np.inf
        reason = result.termination.reason
        return (
            np.inf if reason == mathopt.TerminationReason.INFEASIBLE else result.termination.objective_bounds.dual_bound
        )

    def _append_rows(self) -> None:
        """Copy the rows and entries added since the last call to MathOpt's model; new rows have only upper bounds."""
        program, variables = self._program, list(self._model.variables())
        new_entries = program.entries[self._entries :]
        sizes = np.concatenate(program.row_size) if program.rows > self._rows else np.zeros(0)
        uppers = np.concatenate(program.row_upper)[self._rows :] / sizes[self._rows :] if sizes.size else sizes
        constraints = {self._rows + i: self._model.add_linear_constraint(ub=float(ub)) for i, ub in enumerate(uppers)}
        for rows, columns, values in new_entries:
            scaled = (values / sizes[rows]).tolist()
            for row, column, value in zip(rows.tolist(), columns.tolist(), scaled, strict=True):
                constraint, variable = constraints[row], variables[column]
                constraint.set_coefficient(variable, constraint.get_coefficient(variable) + value)
        self._rows, self._entries = program.rows, len(program.entries)


def maximize_lowest(
    constants: Floats, slopes: Floats, upper: Floats, *, most: float = np.inf
) -> tuple[Floats, float] | None:
    """Return the p in [0, upper] at which the lowest of the planes constants[k] + slopes[k] @ p is highest, and its
    height there; None where the linear program is not solved.

    slopes: [planes, variables]. most: the largest sum of p.
    """
    program, planes = LinearModel(), constants.size
    height = program.add_columns(np.array([-1.0]), np.inf, lower=-np.inf)
    columns = program.add_columns(np.zeros(upper.size), upper)
    rows = program.add_rows(np.full(planes, -np.inf), constants)
    program.add_entries(rows, np.repeat(height, planes), np.ones(planes))
    program.add_entries(np.repeat(rows, columns.size), np.tile(columns, planes), -slopes.ravel())
    total = program.add_rows(np.array([-np.inf]), np.array([most]))
    program.add_entries(np.repeat(total, columns.size), columns, np.ones(columns.size))
    optimum = IncrementalLp(program).solve()
    return None if optimum is None else (optimum.values[1:], float(optimum.values[0]))


def _call_solver(solve: Callable[[], mathopt.SolveResult]) -> mathopt.SolveResult | None:
    """Return the result of `solve`, or None where the solver ends in a numerical failure."""
    try:
        return solve()
    except InternalMathOptError:
        return None
    except AttributeError as failure:  # OR-Tools 9.15 reads its own error's code under a name that does not exist
        if "[INTERNAL]" not in str(failure.__context__):
            raise
        return None
