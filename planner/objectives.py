"""What is asked for the least of: seconds of a step, bytes received, or bytes held. One answer to each.

    time     the choice problem as it is
    bytes    the same problem with costs in bytes (`planner.choose.volume`). Many plans move as little, above all where
             some move nothing; so it is asked once more in seconds with a price on bytes at which those received cost
             PRICES times the step. That answer stands where it receives no more, or is within the gap asked for.
    memory   the least limit that any choice fits, known and bounded (`solvers.peak`); then time under that limit

Of a time limit the first question has half, and what follows the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import solvers
from planner import folding
from planner.choose.cost import CostModel
from planner.choose.formulate import Choice, Formulation
from planner.choose.volume import VolumeModel
from planner.folding import OnProgress, Starts
from planner.judge.analysis import Analysis
from planner.judge.choices import strategies_of
from planner.model.program import Program
from planner.plans import Folding, Request
from solvers import IMPOSSIBLE

Ask = Callable[[CostModel, int], Formulation]
Begin = Callable[[Formulation], Starts]
Write = Callable[[Formulation, Choice], Program]

PRICES = (8, 64)
"""What the fewest bytes cost together, in steps: within the gap asked for, the less they cost the better the time is;
at too low a price more are received."""
PROVEN = "gap proven"
"""What a solution's reason says, also where it proves that nothing fits."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The choice found for a question and what is proven of it: `solution`, in ps. Where bytes are asked for,
    `least_bytes` are received or held, no plan does with less than `bound_bytes`, and gap and status speak of them.
    """

    question: Formulation
    solution: solvers.Solution
    folding: Folding | None
    choice: Choice | None
    least_bytes: int | None = None
    bound_bytes: int | None = None

    def of_bytes(self, least: int, bound: int, request: Request, first: solvers.Solution) -> Answer:
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
class Asking:
    """Everything there is to ask with: the problem under a cost model and a limit, starts for it, a program of its
    choice."""

    ask: Ask
    begin: Begin
    write: Write
    model: CostModel
    limit: int
    request: Request
    on_progress: OnProgress | None
    cutoff: int | None = None
    """In ps, where time is asked for: a step that takes as long is of no interest."""

    def answer(self) -> Answer:
        match self.request.objective:
            case "bytes":
                return self._fewest_bytes()
            case "memory":
                return self._least_memory()
            case _:
                return self._solved(self.ask(self.model, self.limit), self.request, self.on_progress, (), self.cutoff)

    def _solved(
        self,
        question: Formulation,
        request: Request,
        on_progress: OnProgress | None,
        starts: Starts = (),
        cutoff: int | None = None,
    ) -> Answer:
        starts = [*starts, *self.begin(question)]
        solution, folded = folding.solve(question.problem, request, starts, on_progress, cutoff)
        choice = None if solution.choice is None else question.decode(solution.choice)
        return Answer(question, solution, folded, choice)

    def _fewest_bytes(self) -> Answer:
        half, quiet = _share(self.request, 2), _quiet(self.on_progress)
        first = self._solved(self.ask(self._volume(None), self.limit), half, quiet)
        if first.choice is None:
            return replace(first, solution=replace(first.solution, bound=0))
        bound, fewest = first.solution.bound, self._priced(first, self._volume(None))
        found, rest = first, _share(self.request, 2 * len(PRICES))
        for price in self._prices(fewest, self._priced(first, self.model)):
            question = self.ask(self._volume(price), self.limit)
            found = self._solved(question, rest, quiet, [strategies_of(question, first.choice)])
            received = self._priced(found, self._volume(None))
            if received <= fewest or received - bound <= self.request.gap * received:
                break
        else:
            found, received = first, fewest
        step = self._priced(found, self.model)
        in_time = replace(found, solution=replace(found.solution, cost=step, bound=0, memory_price=0.0))
        return in_time.of_bytes(received, bound, self.request, first.solution)

    def _volume(self, byte_ps: int | None) -> VolumeModel:
        return VolumeModel(self.model.mesh, self.model.hardware, byte_ps)

    def _priced(self, found: Answer, model: CostModel) -> int:
        """What the program of an answer costs."""
        assert found.choice is not None
        return Analysis(self.write(found.question, found.choice), model).step_ps

    def _prices(self, received: int, step_ps: int) -> Sequence[int]:
        """Of a byte in ps; none is too high where nothing need be received."""
        return [max(1, times * step_ps // received) for times in PRICES] if received else [IMPOSSIBLE]

    def _least_memory(self) -> Answer:
        half, quiet = _share(self.request, 2), _quiet(self.on_progress)
        nothing = self.ask(self.model, 1)
        solution, _ = folding.solve(nothing.problem, half, self.begin(nothing), quiet)
        leanest = solution.choice or solution.leanest
        peak = self.limit + 1 if leanest is None else solvers.evaluate(nothing.problem, leanest).peak
        if leanest is None or peak > self.limit:
            return self._solved(self.ask(self.model, self.limit), half, quiet)
        found = self._solved(self.ask(self.model, peak), half, self.on_progress, [leanest])
        assert found.solution.choice is not None, "a start is feasible"
        held = solvers.evaluate(found.question.problem, found.solution.choice).peak
        return found.of_bytes(held, min(held, solution.least_limit_bound or 0), self.request, solution)


def _share(request: Request, parts: int) -> Request:
    return replace(request, time_limit_s=request.time_limit_s and request.time_limit_s / parts)


def _quiet(on_progress: OnProgress | None) -> OnProgress | None:
    """Costs that are not seconds are not shown."""
    return on_progress and (lambda now: on_progress(replace(now, incumbent=None, bound=0)))
