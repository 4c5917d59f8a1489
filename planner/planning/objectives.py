"""Solve for an objective: least seconds of a step, least bytes received, or least bytes held.

    time     solve the assignment problem as it is
    bytes    solve it with costs in bytes (`planner.choose.communication_volume`). Many plans receive equally few bytes,
             above all where some receive none. So it is solved again in seconds, with a price on bytes at which the
             fewest bytes cost BYTE_PRICES times the step. That solution is the answer where it receives no more, or
             is within the requested gap.
    memory   find and bound the least memory limit that any assignment fits (`solvers.min_peak_dual`), then minimize
             time under that limit

The first solve gets half of a time limit, and the following ones half of what is left. Where the time is up while a
later question is formulated, the answer to the first one is the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import solvers
from planner.choose.communication_volume import VolumeModel
from planner.choose.cost import CostModel
from planner.choose.formulate import Choice, Formulation
from planner.choose.plain_orders import order_axes
from planner.ir.program import Program
from planner.judge.analysis import Analysis
from planner.judge.program_choice import encode_choice
from planner.planning import folded_solve
from planner.planning.deadline import Deadline, ProgressReporter, TimeLimitReached
from planner.planning.folded_solve import Starts
from planner.planning.plan_types import Folding, Request
from solvers import IMPOSSIBLE

MakeFormulation = Callable[[CostModel, int], Formulation]
MakeStarts = Callable[[Formulation], Starts]
WriteProgram = Callable[[Formulation, Choice], Program]
Share = tuple[float, float]
"""A solve's part of the time limit where that is one of work, and its share of the seconds left where it is not."""

BYTE_PRICES = (8, 64)
"""Price of the fewest bytes in units of the step time. A lower price leaves more weight to time, but at too low a price
the plan receives more bytes."""
LEAST_S = 0.1
"""Seconds that the solver gets even when the time is up: enough to return the best of its starts."""
PROVEN = "gap proven"
"""The reason of a solution whose gap is closed, or which is proven infeasible."""


@dataclass(frozen=True, slots=True)
class ObjectiveResult:
    """The choice found for a question, with its solution in ps.

    Where the objective is bytes or memory, the plan receives or holds `least_bytes`, no plan needs less than
    `bound_bytes`, and gap and status of the solution refer to these.
    """

    question: Formulation
    solution: solvers.Solution
    folding: Folding | None
    choice: Choice | None
    least_bytes: int | None = None
    bound_bytes: int | None = None

    def with_bytes(self, least: int, bound: int, request: Request, *, first: solvers.Solution) -> ObjectiveResult:
        """Return the result with a number of bytes and the lower bound that the `first` solution proved of it."""
        gap = (least - bound) / least if least else 0.0
        closed, ended = gap <= request.gap, "methods exhausted" if first.reason == PROVEN else first.reason
        solution = replace(
            self.solution,
            status="optimal" if closed else "feasible",
            gap=gap,
            reason=PROVEN if closed else ended,
            wall_s=first.wall_s + self.solution.wall_s,
            reproducible=first.reproducible and self.solution.reproducible,
        )
        return replace(self, solution=solution, least_bytes=least, bound_bytes=bound)


@dataclass(frozen=True, slots=True)
class ObjectiveSolver:
    """Solves a request for its objective.

    make_formulation  (cost model, limit in bytes) -> the assignment problem
    make_starts       formulation -> known assignments to start from
    write_program     (formulation, choice) -> program
    limit             memory limit in bytes per device
    request           where it is deterministic, its time limit is one of the solver's work, else `deadline` counts
    cutoff            in ps, for the objective time: a step that takes as long is of no interest
    """

    make_formulation: MakeFormulation
    make_starts: MakeStarts
    write_program: WriteProgram
    model: CostModel
    limit: int
    request: Request
    deadline: Deadline
    report: ProgressReporter
    cutoff: int | None = None

    def solve(self) -> ObjectiveResult:
        match self.request.objective:
            case "bytes":
                return self._minimize_bytes()
            case "memory":
                return self._minimize_memory()
            case _:
                return self._solve(self.make_formulation(self.model, self.limit), (1, 1), cutoff=self.cutoff)

    def _limit_time(self, share: Share) -> Request:
        """Return the request with its share of the time limit, or, by the clock, of the seconds left."""
        (part, of_rest), limit = share, self.request.time_limit_s
        if limit is None or self.request.deterministic:
            return replace(self.request, time_limit_s=limit and part * limit)
        return replace(self.request, time_limit_s=max(LEAST_S, of_rest * (self.deadline.left_s or 0.0)))

    def _solve(
        self,
        question: Formulation,
        share: Share,
        *,
        quiet: bool = False,
        starts: Starts = (),
        cutoff: int | None = None,
    ) -> ObjectiveResult:
        """Solve a formulation. `quiet`: its costs are not seconds of a step and are not reported."""
        starts, report = [*starts, *self.make_starts(question)], self.report
        solution, folded = folded_solve.solve_folded(
            question.problem,
            self._limit_time(share),  # of the seconds that are left now, after the starts were encoded
            starts,
            on_progress=report.report_time if quiet else report.report_solver,
            on_folded=report.report_time if quiet else report.report_upper,
            cutoff=cutoff,
        )
        if solution.assignment is None:
            return ObjectiveResult(question, solution, folded, None)
        plain = order_axes(question, solution.assignment, is_time_up=self._is_time_up)
        is_reproducible = solution.reproducible and not self._is_time_up()
        ordered = replace(solution, assignment=plain, reproducible=is_reproducible)
        return ObjectiveResult(question, ordered, folded, question.decode(plain))

    def _is_time_up(self) -> bool:
        return self.deadline.left_s == 0.0

    def _minimize_bytes(self) -> ObjectiveResult:
        question = self.make_formulation(self._volume_model(None), self.limit)
        first = self._solve(question, (1 / 2, 1 / 2), quiet=True)
        if first.choice is None:
            return replace(first, solution=replace(first.solution, bound=0))
        bound, fewest = first.solution.bound, self._price_program(first, self._volume_model(None))
        result, received = self._find_faster(first, fewest, bound=bound) or (first, fewest)
        step = self._price_program(result, self.model)
        in_time = replace(result, solution=replace(result.solution, cost=step, bound=0, memory_price=0.0))
        return in_time.with_bytes(received, bound, self.request, first=first.solution)

    def _find_faster(self, first: ObjectiveResult, fewest: int, *, bound: int) -> tuple[ObjectiveResult, int] | None:
        """Return the fastest result found that receives about as few bytes as the first, and its bytes, or None."""
        assert first.choice is not None
        for price in self._byte_prices(fewest, self._price_program(first, self.model)):
            try:
                question = self.make_formulation(self._volume_model(price), self.limit)
            except TimeLimitReached:
                return None
            share, starts = (1 / (2 * len(BYTE_PRICES)), 1 / 2), [encode_choice(question, first.choice)]
            result = self._solve(question, share, quiet=True, starts=starts)
            received = self._price_program(result, self._volume_model(None))
            if received <= fewest or received - bound <= self.request.gap * received:
                return result, received
        return None

    def _volume_model(self, byte_ps: int | None) -> VolumeModel:
        return VolumeModel(self.model.mesh, self.model.hardware, byte_ps)

    def _price_program(self, result: ObjectiveResult, model: CostModel) -> int:
        """Return the cost of a result's program under a cost model: ps, or bytes for a volume model."""
        assert result.choice is not None
        return Analysis(self.write_program(result.question, result.choice), model).step_ps

    def _byte_prices(self, received: int, step_ps: int) -> Sequence[int]:
        """Return the prices of a byte in ps to try. Where nothing needs to be received, receiving is forbidden."""
        return [max(1, times * step_ps // received) for times in BYTE_PRICES] if received else [IMPOSSIBLE]

    def _minimize_memory(self) -> ObjectiveResult:
        # A limit of one byte is infeasible: the solver then finds and bounds the least limit that is feasible.
        one_byte = self.make_formulation(self.model, 1)
        starts = self.make_starts(one_byte)
        half = self._limit_time((1 / 2, 1 / 2))
        solution, _ = folded_solve.solve_folded(
            one_byte.problem, half, starts, on_progress=self.report.report_time, on_folded=self.report.report_time
        )
        leanest = solution.assignment or solution.min_peak_assignment
        peak = self.limit + 1 if leanest is None else solvers.evaluate(one_byte.problem, leanest).peak
        if leanest is None or peak > self.limit:
            return self._solve(self.make_formulation(self.model, self.limit), (1 / 2, 1), quiet=True)
        question = self.make_formulation(self.model, peak)
        result = self._solve(question, (1 / 2, 1), starts=[leanest])
        assert result.solution.assignment is not None, "a start is feasible"
        held = solvers.evaluate(result.question.problem, result.solution.assignment).peak
        return result.with_bytes(held, min(held, solution.min_feasible_limit_bound or 0), self.request, first=solution)
