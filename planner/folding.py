"""A choice problem solved by way of its folded one (`planner.choose.fold`).

Where layers repeat, the problem in which equal layers are planned alike is solved first; the search of the unfolded
problem starts from its answer, and its bound from the folded problem's prices and messages, which soon prove as much
there. A memory limit wants some layers treated differently: a choice that fits and a cheaper one that does not are
spliced, and where more than a hundredth of the cost is still unproven, each half of the layers is folded for itself
before all are unfolded. The bound is always that of the unfolded problem, so that the gap counts what folding loses. A
cutoff wants a bound and no choice: under one, the unfolded problem is looked at before all else, until a choice is
found that costs less.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import solvers
from planner.choose.fold import Folded, Layers
from planner.plans import Folding, Request

OnProgress = Callable[[solvers.Progress], None]
Starts = Sequence[Sequence[int]]

# A problem of fewer nodes is solved in the time that folding takes; one that folds to more of its nodes gains little.
LEAST_NODES, MOST_LEFT = 1000, 0.6
# Runs of layers folded for themselves, tried in turn while the gap is larger than this; choices that are spliced.
PIECES, LARGE_GAP, SPLICED = (1, 2), 0.01, 20
# Of the time limit, for each folded problem; without one, seconds' worth of work.
SHARE, SECONDS = 0.2, 15.0
# The same, for messages and for a look at a cutoff.
BRIEF_SHARE, BRIEF_SECONDS = 0.1, 6.0


def solve(
    problem: solvers.Problem,
    request: Request,
    starts: Starts,
    on_progress: OnProgress | None = None,
    cutoff: int | None = None,
) -> tuple[solvers.Solution, Folding | None]:
    """The best choice found, no worse than a feasible start, and how folding was used (None: not). cutoff: what costs
    as much is of no interest."""
    began, shares = time.monotonic(), 0.0
    told = on_progress and _since(began, on_progress)
    if len(problem.nodes) < LEAST_NODES:
        return _solved(problem, request, request.time_limit_s, starts, told, cutoff), None
    if cutoff is not None:
        look, shares = _look(problem, request, starts, cutoff), BRIEF_SHARE
        if look.reason == solvers.CUT_OFF:
            return look, None
        starts = starts if look.choice is None else [look.choice, *starts]
    layers = Layers.of(problem)
    if layers.left > MOST_LEFT * len(problem.nodes):
        return _solved(problem, request, _left(request, began, shares), starts, told, cutoff), None
    stages = list(_stages(layers, request, starts, told and _unproven(told)))
    last, shares = stages[-1], shares + len(stages) * (BRIEF_SHARE + SHARE)
    if last.solution.prices:
        last, shares = last.priced(request), shares + BRIEF_SHARE
    start = layers.spread(last.folded, last.start)
    solution = _solved(problem, request, _left(request, began, shares), last.starts, told, cutoff, start)
    reproducible = all(each.solution.reproducible for each in stages) and solution.reproducible
    together = replace(solution, wall_s=time.monotonic() - began, reproducible=reproducible)
    return together, _report(layers, last, solution)


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """A folded problem, where its messages began and its answer; choices of the unfolded one known by then."""

    folded: Folded
    start: solvers.Start
    solution: solvers.Solution
    starts: Starts

    def priced(self, request: Request) -> Stage:
        """Its messages at the prices found."""
        start = solvers.converged(self.folded.problem, request.gap, _brief(request), self.solution.prices)
        return replace(self, start=start)

    def near(self, problem: solvers.Problem) -> bool:
        """Is the best choice known near to what is proven of the folded problem?"""
        judged = [solvers.evaluate(problem, start) for start in self.starts]
        least = min((each.cost for each in judged if each.feasible), default=None)
        return least is not None and least - self.solution.bound <= LARGE_GAP * least


def _stages(layers: Layers, request: Request, starts: Starts, on_progress: OnProgress | None) -> Iterator[Stage]:
    """The folded problem solved, and that of more pieces while much is unproven, each from the answer before."""
    for pieces in PIECES:
        folded = layers.folded(pieces)
        start = solvers.converged(folded.problem, request.gap, _brief(request))
        solution = _first(folded, request, starts, on_progress, start)
        starts = [*_lifted(layers, folded, solution), *starts]
        stage = Stage(folded, start, solution, starts)
        yield stage
        if stage.near(layers.problem):
            return


def _lifted(layers: Layers, folded: Folded, solution: solvers.Solution) -> Iterator[tuple[int, ...]]:
    """The choice found (where none fits, the leanest), and what splicing makes of those like it."""
    best = solution.choice or solution.leanest
    found = [folded.lift(choice) for choice in (best, *solution.nearest) if choice is not None]
    spliced = layers.spliced(found)
    yield from found[:1] if best else ()
    if spliced is not None:
        yield spliced


def _look(problem: solvers.Problem, request: Request, starts: Starts, cutoff: int) -> solvers.Solution:
    """A little work on whether anything costs less than the cutoff."""
    cheaper: list[int] = []

    def see(now: solvers.Progress) -> None:
        if now.incumbent is not None and now.incumbent < cutoff:
            cheaper.append(now.incumbent)

    asked = replace(request, deterministic=True)
    return _solved(problem, asked, _brief(request), starts, see, cutoff, cancelled=lambda: bool(cheaper))


def _solved(
    problem: solvers.Problem,
    request: Request,
    time_limit: float | None,
    starts: Starts,
    on_progress: OnProgress | None,
    cutoff: int | None = None,
    start: solvers.Start | None = None,
    nearest: int = 0,
    cancelled: Callable[[], bool] | None = None,
) -> solvers.Solution:
    return solvers.solve(
        problem,
        time_limit=time_limit,
        gap=request.gap,
        deterministic=request.deterministic,
        seed=request.seed,
        starts=starts,
        cutoff=cutoff,
        start=start,
        nearest=nearest,
        on_progress=on_progress,
        cancelled=cancelled,
    )


def _first(
    folded: Folded,
    request: Request,
    starts: Starts,
    on_progress: OnProgress | None,
    start: solvers.Start,
) -> solvers.Solution:
    """Of the folded problem, to half the gap, which leaves the other half for what folding loses."""
    limit = request.time_limit_s
    asked = replace(request, gap=request.gap / 2, deterministic=request.deterministic or limit is None)
    lowered = [low for low in map(folded.lower, starts) if low is not None]
    seconds = SECONDS if limit is None else SHARE * limit
    return _solved(folded.problem, asked, seconds, lowered, on_progress, None, start, SPLICED)


def _brief(request: Request) -> float:
    return BRIEF_SECONDS if request.time_limit_s is None else BRIEF_SHARE * request.time_limit_s


def _left(request: Request, began: float, shares: float) -> float | None:
    """Seconds; what was not used of the shares before is kept only where the clock is looked at anyway."""
    limit = request.time_limit_s
    if limit is None:
        return None
    least = (1 - shares) * limit
    return least if request.deterministic else max(limit - (time.monotonic() - began), least)


def _unproven(on_progress: OnProgress) -> OnProgress:
    """What is proven of a folded problem is not of the unfolded one."""
    return lambda now: on_progress(replace(now, bound=0, gap=None if now.incumbent is None else 1.0))


def _since(began: float, on_progress: OnProgress) -> OnProgress:
    return lambda now: on_progress(replace(now, elapsed_s=time.monotonic() - began))


def _report(layers: Layers, stage: Stage, solution: solvers.Solution) -> Folding:
    folded, known, cost = stage.folded, stage.solution.cost, solution.cost
    return Folding(
        layers=layers.counts,
        groups=len(folded.groups),
        variables=len(folded.problem.nodes),
        of=len(folded.member),
        loss_bound=None if known is None else max(0.0, (known - solution.bound) / max(known, 1)),
        unfolded=known is None or (cost is not None and cost < known),
    )
