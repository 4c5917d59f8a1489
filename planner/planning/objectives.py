"""What is asked for the least of: seconds of a step, bytes received, or bytes held. One answer to each.

    time     the choice problem as it is
    bytes    the same problem with costs in bytes (`planner.choose.communication_volume`). Many plans move as little,
             above all where some move nothing; so it is asked once more in seconds with a price on bytes at which
             those received cost PRICES times the step. That answer stands where it receives no more, or is within
             the gap asked for.
    memory   the least limit that any choice fits, known and bounded (`solvers.min_peak_dual`); then time under it

Of a time limit the first question has half, and what follows the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import solvers
from planner.choose.communication_volume import VolumeModel
from planner.choose.cost import CostModel
from planner.choose.formulate import Choice, Formulation
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
"""What the fewest bytes cost together, in steps: within the gap asked for, the less they cost the better the time is;
at too low a price more are received."""
PROVEN = "gap proven"
"""What a solution's reason says, also where it proves that nothing fits."""


@dataclass(frozen=True, slots=True)
class ObjectiveResult:
    """The choice found for a question and what is proven of it: `solution`, in ps. Where bytes are asked for,
    `min_required_bytes` are received or held, no plan does with less than `bound_bytes`, and gap and status speak of
    them.
    """

    question: Formulation
    solution: solvers.Solution
    folding: Folding | None
    choice: Choice | None
    least_bytes: int | None = None
    bound_bytes: int | None = None

    def with_bytes(self, least: int, bound: int, request: Request, *, first: solvers.Solution) -> ObjectiveResult:
        """The answer to what the first solution has bounded, as far as its means went."""
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
    """Everything there is to ask with: the problem under a cost model and a limit, starts for it, a program of its
    choice."""

    make_formulation: MakeFormulation
    make_starts: MakeStarts
    write_program: WriteProgram
    model: CostModel
    limit: int
    request: Request
    on_progress: OnProgress | None
    cutoff: int | None = None
    """In ps, where time is asked for: a step that takes as long is of no interest."""

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
        choice = None if solution.assignment is None else question.decode(solution.assignment)
        return ObjectiveResult(question, solution, folded, choice)

    def _minimize_bytes(self) -> ObjectiveResult:
        half, quiet = _split_time_limit(self.request, 2), _hide_costs(self.on_progress)
        first = self._solve(self.make_formulation(self._volume_model(None), self.limit), half, quiet)
        if first.choice is None:
            return replace(first, solution=replace(first.solution, bound=0))
        bound, fewest = first.solution.bound, self._price_program(first, self._volume_model(None))
        found, rest = first, _split_time_limit(self.request, 2 * len(BYTE_PRICES))
        for price in self._byte_prices(fewest, self._price_program(first, self.model)):
            question = self.make_formulation(self._volume_model(price), self.limit)
            found = self._solve(question, rest, quiet, starts=[encode_choice(question, first.choice)])
            received = self._price_program(found, self._volume_model(None))
            if received <= fewest or received - bound <= self.request.gap * received:
                break
        else:
            found, received = first, fewest
        step = self._price_program(found, self.model)
        in_time = replace(found, solution=replace(found.solution, cost=step, bound=0, memory_price=0.0))
        return in_time.with_bytes(received, bound, self.request, first=first.solution)

    def _volume_model(self, byte_ps: int | None) -> VolumeModel:
        return VolumeModel(self.model.mesh, self.model.hardware, byte_ps)

    def _price_program(self, found: ObjectiveResult, model: CostModel) -> int:
        """What the program of an answer costs."""
        assert found.choice is not None
        return Analysis(self.write_program(found.question, found.choice), model).step_ps

    def _byte_prices(self, received: int, step_ps: int) -> Sequence[int]:
        """Of a byte in ps; none is too high where nothing need be received."""
        return [max(1, times * step_ps // received) for times in BYTE_PRICES] if received else [IMPOSSIBLE]

    def _minimize_memory(self) -> ObjectiveResult:
        half, quiet = _split_time_limit(self.request, 2), _hide_costs(self.on_progress)
        nothing = self.make_formulation(self.model, 1)
        solution, _ = folded_solve.solve_folded(nothing.problem, half, self.make_starts(nothing), on_progress=quiet)
        leanest = solution.assignment or solution.min_peak_assignment
        peak = self.limit + 1 if leanest is None else solvers.evaluate(nothing.problem, leanest).peak
        if leanest is None or peak > self.limit:
            return self._solve(self.make_formulation(self.model, self.limit), half, quiet)
        found = self._solve(self.make_formulation(self.model, peak), half, self.on_progress, starts=[leanest])
        assert found.solution.assignment is not None, "a start is feasible"
        held = solvers.evaluate(found.question.problem, found.solution.assignment).peak
        return found.with_bytes(held, min(held, solution.min_feasible_limit_bound or 0), self.request, first=solution)


def _split_time_limit(request: Request, parts: int) -> Request:
    return replace(request, time_limit_s=request.time_limit_s and request.time_limit_s / parts)


def _hide_costs(on_progress: OnProgress | None) -> OnProgress | None:
    """Costs that are not seconds are not shown."""
    return on_progress and (lambda now: on_progress(replace(now, incumbent=None, bound=0)))
