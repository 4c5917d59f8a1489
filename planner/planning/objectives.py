"""Solve for an objective: least seconds of a step, least bytes received, or least bytes held.

    time     solve the assignment problem as it is
    bytes    solve it with costs in bytes (`planner.choose.communication_volume`). Many plans receive equally few bytes,
             above all where some receive none. So it is solved again in seconds, with a price on bytes at which the
             fewest bytes cost BYTE_PRICES times the step. That solution is the answer where it receives no more, or
             is within the requested gap.
    memory   find and bound the least memory limit that any assignment fits (`solvers.min_peak_dual`), then minimize
             time under that limit

The first solve gets half of a time limit, and the following ones the rest.
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
from planner.planning.folded_solve import OnProgress, Starts
from planner.planning.plan_types import Folding, Request
from solvers import IMPOSSIBLE

MakeFormulation = Callable[[CostModel, int], Formulation]
MakeStarts = Callable[[Formulation], Starts]
WriteProgram = Callable[[Formulation, Choice], Program]

BYTE_PRICES = (8, 64)
"""Price of the fewest bytes in units of the step time. A lower price leaves more weight to time, but at too low a price
the plan receives more bytes."""
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
    cutoff            in ps, for the objective time: a step that takes as long is of no interest
    """

    make_formulation: MakeFormulation
    make_starts: MakeStarts
    write_program: WriteProgram
    model: CostModel
    limit: int
    request: Request
    on_progress: OnProgress | None
    cutoff: int | None = None

    def solve(self) -> ObjectiveResult:
        match self.request.objective:
            case "bytes":
                return self._minimize_bytes()
            case "memory":
                return self._minimize_memory()
            case _:
                return self._solve(
                    self.make_formulation(self.model, self.limit),
                    self.request,
                    self.on_progress,
                    starts=(),
                    cutoff=self.cutoff,
                )

    def _solve(
        self,
        question: Formulation,
        request: Request,
        on_progress: OnProgress | None,
        *,
        starts: Starts = (),
        cutoff: int | None = None,
    ) -> ObjectiveResult:
        starts = [*starts, *self.make_starts(question)]
        solution, folded = folded_solve.solve_folded(
            question.problem, request, starts, on_progress=on_progress, cutoff=cutoff
        )
        if solution.assignment is None:
            return ObjectiveResult(question, solution, folded, None)
        plain = order_axes(question, solution.assignment)
        return ObjectiveResult(question, replace(solution, assignment=plain), folded, question.decode(plain))

    def _minimize_bytes(self) -> ObjectiveResult:
        half, quiet = _split_time_limit(self.request, 2), _hide_costs(self.on_progress)
        first = self._solve(self.make_formulation(self._volume_model(None), self.limit), half, quiet)
        if first.choice is None:
            return replace(first, solution=replace(first.solution, bound=0))
        bound, fewest = first.solution.bound, self._price_program(first, self._volume_model(None))
        result, rest = first, _split_time_limit(self.request, 2 * len(BYTE_PRICES))
        for price in self._byte_prices(fewest, self._price_program(first, self.model)):
            question = self.make_formulation(self._volume_model(price), self.limit)
            result = self._solve(question, rest, quiet, starts=[encode_choice(question, first.choice)])
            received = self._price_program(result, self._volume_model(None))
            if received <= fewest or received - bound <= self.request.gap * received:
                break
        else:
            result, received = first, fewest
        step = self._price_program(result, self.model)
        in_time = replace(result, solution=replace(result.solution, cost=step, bound=0, memory_price=0.0))
        return in_time.with_bytes(received, bound, self.request, first=first.solution)

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
        half, quiet = _split_time_limit(self.request, 2), _hide_costs(self.on_progress)
        # A limit of one byte is infeasible: the solver then finds and bounds the least limit that is feasible.
        one_byte = self.make_formulation(self.model, 1)
        solution, _ = folded_solve.solve_folded(one_byte.problem, half, self.make_starts(one_byte), on_progress=quiet)
        leanest = solution.assignment or solution.min_peak_assignment
        peak = self.limit + 1 if leanest is None else solvers.evaluate(one_byte.problem, leanest).peak
        if leanest is None or peak > self.limit:
            return self._solve(self.make_formulation(self.model, self.limit), half, quiet)
        result = self._solve(self.make_formulation(self.model, peak), half, self.on_progress, starts=[leanest])
        assert result.solution.assignment is not None, "a start is feasible"
        held = solvers.evaluate(result.question.problem, result.solution.assignment).peak
        return result.with_bytes(held, min(held, solution.min_feasible_limit_bound or 0), self.request, first=solution)


def _split_time_limit(request: Request, parts: int) -> Request:
    return replace(request, time_limit_s=request.time_limit_s and request.time_limit_s / parts)


def _hide_costs(on_progress: OnProgress | None) -> OnProgress | None:
    """Report progress without costs, which are not seconds here."""
    return on_progress and (lambda now: on_progress(replace(now, incumbent=None, bound=0)))
