"""A linear program, possibly with integers, as arrays, and its solution by OR-Tools (GLOP, or HiGHS for integers)."""

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


@dataclass(frozen=True, slots=True)
class MipSolution:
    """values: None if none was found; bound: the solver's own, in floating point; finished: not stopped early."""

    values: Floats | None
    bound: float
    is_complete: bool
    infeasible: bool


@dataclass(frozen=True, slots=True)
class LpSolution:
    """An optimal solution of a linear program, and how much its cost would rise with each row's bound (<= 0 where that
    is an upper one)."""

    values: Floats
    cost: float
    duals: Floats


@dataclass(slots=True)
class LinearModel:
    """minimise cost @ x, lower <= x <= upper; rows are added by index and coefficient arrays."""

    cost: list[Floats] = field(default_factory=list)
    lower: list[Floats] = field(default_factory=list)
    upper: list[Floats] = field(default_factory=list)
    integer: list[NDArray[np.bool_]] = field(default_factory=list)
    row_lower: list[Floats] = field(default_factory=list)
    row_upper: list[Floats] = field(default_factory=list)
    entries: list[tuple[Integers, Integers, Floats]] = field(default_factory=list)
    columns: int = 0
    rows: int = 0

    def add_columns(self, cost: Floats, upper: float, integer: bool = False, *, lower: float = 0.0) -> Integers:
        """New variables; returns their indices."""
        count = cost.size
        self.cost.append(cost.astype(np.float64))
        self.lower.append(np.full(count, lower))
        self.upper.append(np.full(count, upper))
        self.integer.append(np.full(count, integer))
        self.columns += count
        return np.arange(self.columns - count, self.columns)

    def add_rows(self, lower: Floats, upper: Floats) -> Integers:
        """New rows; returns their indices."""
        self.row_lower.append(lower.astype(np.float64))
        self.row_upper.append(upper.astype(np.float64))
        self.rows += lower.size
        return np.arange(self.rows - lower.size, self.rows)

    def add_entries(self, rows: Integers, columns: Integers, values: Floats) -> None:
        """Coefficients; entries at the same place add up."""
        self.entries.append((rows, columns, values.astype(np.float64)))

    def _model(self) -> mathopt.Model:
        proto = model_pb2.ModelProto()
        ids = np.arange(self.columns)
        proto.variables.ids.extend(ids.tolist())
        proto.variables.lower_bounds.extend(np.concatenate(self.lower).tolist())
        proto.variables.upper_bounds.extend(np.concatenate(self.upper).tolist())
        proto.variables.integers.extend(np.concatenate(self.integer).tolist())
        cost = np.concatenate(self.cost)
        used = np.flatnonzero(cost)
        proto.objective.linear_coefficients.ids.extend(used.tolist())
        proto.objective.linear_coefficients.values.extend(cost[used].tolist())
        if self.rows:
            proto.linear_constraints.ids.extend(range(self.rows))
            proto.linear_constraints.lower_bounds.extend(np.concatenate(self.row_lower).tolist())
            proto.linear_constraints.upper_bounds.extend(np.concatenate(self.row_upper).tolist())
        if self.entries:
            rows, columns, values = (np.concatenate([entry[k] for entry in self.entries]) for k in range(3))
            place, first = np.unique(rows * self.columns + columns, return_inverse=True)
            summed = np.bincount(first, weights=values, minlength=place.size)
            matrix = proto.linear_constraint_matrix
            matrix.row_ids.extend((place // self.columns).tolist())
            matrix.column_ids.extend((place % self.columns).tolist())
            matrix.coefficients.extend(summed.tolist())
        return mathopt.Model.from_model_proto(proto)

    def solve(
        self,
        hint: Floats | None = None,
        seconds: float | None = None,
        nodes: int | None = None,
        gap: float = 1e-9,
        integral: bool = True,
        seed: int = 0,
    ) -> MipSolution:
        """HiGHS when integral, else GLOP. seconds: wall clock (None: none); nodes: of branch and bound."""
        model = self._model()
        parameters = mathopt.SolveParameters(random_seed=seed)
        hints = mathopt.ModelSolveParameters()
        if integral:
            parameters.relative_gap_tolerance = gap
            parameters.node_limit = nodes
            if seconds is not None:
                parameters.time_limit = timedelta(seconds=max(seconds, 0.01))
            if hint is not None:
                chosen = zip(model.variables(), hint.tolist(), strict=True)
                hints.solution_hints.append(mathopt.SolutionHint(variable_values=dict(chosen)))
        solver = mathopt.SolverType.HIGHS if integral else mathopt.SolverType.GLOP
        result = _call_solver(partial(mathopt.solve, model, solver, params=parameters, model_params=hints))
        if result is None:
            return MipSolution(None, -np.inf, False, False)
        reason = result.termination.reason
        values: Floats | None = None
        if result.has_primal_feasible_solution():
            values = np.array(result.variable_values(model.variables()))
        return MipSolution(
            values,
            result.termination.objective_bounds.dual_bound,
            reason in (mathopt.TerminationReason.OPTIMAL, mathopt.TerminationReason.INFEASIBLE),
            reason == mathopt.TerminationReason.INFEASIBLE,
        )


class IncrementalLp:
    """A program without its integers, solved again and again as it gets more rows: GLOP goes on from where it was."""

    def __init__(self, program: LinearModel) -> None:
        self._program, self._model = program, program._model()
        self._rows, self._entries = program.rows, len(program.entries)
        for variable in self._model.variables():
            variable.integer = False
        self._solver = mathopt.IncrementalSolver(self._model, mathopt.SolverType.GLOP)

    def solve(self, seconds: float | None = None) -> LpSolution | None:
        """The optimum, None if there is none or it takes longer than so many seconds of wall clock."""
        self._append_rows()
        # No proof rests on the answer, so a slightly imprecise one will do; and new rows leave the dual feasible.
        glop = GlopParameters(change_status_to_imprecise=False, use_dual_simplex=True)
        parameters = mathopt.SolveParameters(glop=glop)
        if seconds is not None:
            parameters.time_limit = timedelta(seconds=max(seconds, 0.01))
        result = _call_solver(partial(self._solver.solve, params=parameters))
        if result is None:  # it lost its way from where it was
            self._solver = mathopt.IncrementalSolver(self._model, mathopt.SolverType.GLOP)
            result = _call_solver(partial(self._solver.solve, params=parameters))
        if result is None or result.termination.reason != mathopt.TerminationReason.OPTIMAL:
            return None
        values = np.array(result.variable_values(self._model.variables()))
        slopes = np.array(result.dual_values(self._model.linear_constraints()))
        return LpSolution(values, result.objective_value(), slopes)

    def _append_rows(self) -> None:
        program, variables = self._program, list(self._model.variables())
        new = program.entries[self._entries :]
        uppers = np.concatenate(program.row_upper)[self._rows :] if program.rows > self._rows else np.zeros(0)
        rows = {self._rows + i: self._model.add_linear_constraint(ub=float(ub)) for i, ub in enumerate(uppers)}
        for at, columns, values in new:
            for row, column, value in zip(at.tolist(), columns.tolist(), values.tolist(), strict=True):
                rows[row].set_coefficient(variables[column], rows[row].get_coefficient(variables[column]) + value)
        self._rows, self._entries = program.rows, len(program.entries)


def _call_solver(solve: Callable[[], mathopt.SolveResult]) -> mathopt.SolveResult | None:
    """None where the solver gives up: its arithmetic has failed it."""
    try:
        return solve()
    except InternalMathOptError:
        return None
    except AttributeError as failure:  # OR-Tools 9.15 looks for the code of its own error under another name
        if "[INTERNAL]" not in str(failure.__context__):
            raise
        return None
