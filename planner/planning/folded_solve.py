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
from planner.choose.fold import FoldedProblem, RepeatedLayers
from planner.planning.plan_types import Folding, Request

OnProgress = Callable[[solvers.Progress], None]
Starts = Sequence[Sequence[int]]

# A problem of fewer nodes is solved in the time that folding takes; one that folds to more of its nodes gains little.
MIN_NODES, MAX_NODE_SHARE = 1000, 0.6
# Runs of layers folded for themselves, tried in turn while the gap is larger than this; choices that are spliced.
PIECES, LARGE_GAP, CROSSOVERS = (1, 2), 0.01, 20
# Of the time limit, for each folded problem; without one, seconds' worth of work.
SHARE, SECONDS = 0.2, 15.0
# The same, for messages and for a look at a cutoff.
BRIEF_SHARE, BRIEF_SECONDS = 0.1, 6.0


def solve_folded(
    problem: solvers.Problem,
    request: Request,
    starts: Starts,
    *,
    on_progress: OnProgress | None = None,
    cutoff: int | None = None,
) -> tuple[solvers.Solution, Folding | None]:
    """The best choice found, no worse than a feasible start, and how folding was used (None: not). cutoff: what costs
    as much is of no interest."""
    began, shares = time.monotonic(), 0.0
    told = on_progress and _add_elapsed(began, on_progress)
    if len(problem.nodes) < MIN_NODES:
        return _run_solver(problem, request, request.time_limit_s, starts=starts, on_progress=told, cutoff=cutoff), None
    if cutoff is not None:
        look, shares = _check_cutoff(problem, request, starts, cutoff=cutoff), BRIEF_SHARE
        if look.reason == solvers.CUT_OFF:
            return look, None
        starts = starts if look.assignment is None else [look.assignment, *starts]
    layers = RepeatedLayers.of(problem)
    if layers.node_count > MAX_NODE_SHARE * len(problem.nodes):
        return _run_solver(
            problem, request, _remaining_time_s(request, began, shares), starts=starts, on_progress=told, cutoff=cutoff
        ), None
    stages = list(_solve_stages(layers, request, starts, on_progress=told and _drop_bound(told)))
    last, shares = stages[-1], shares + len(stages) * (BRIEF_SHARE + SHARE)
    if last.solution.multipliers:
        last, shares = last.at_multipliers(request), shares + BRIEF_SHARE
    start = layers.prolong(last.quotient, last.start)
    solution = _run_solver(
        problem,
        request,
        _remaining_time_s(request, began, shares),
        starts=last.starts,
        on_progress=told,
        cutoff=cutoff,
        start=start,
    )
    reproducible = all(each.solution.reproducible for each in stages) and solution.reproducible
    together = replace(solution, wall_s=time.monotonic() - began, reproducible=reproducible)
    return together, _report_folding(layers, last, solution)


@dataclass(frozen=True, slots=True, eq=False)
class FoldStage:
    """A folded problem, where its messages began and its answer; choices of the unfolded one known by then."""

    quotient: FoldedProblem
    start: solvers.DualWarmStart
    solution: solvers.Solution
    starts: Starts

    def at_multipliers(self, request: Request) -> FoldStage:
        """Its messages at the prices found."""
        start = solvers.compute_warm_start(
            self.quotient.problem, request.gap, _brief_time_s(request), multipliers=self.solution.multipliers
        )
        return replace(self, start=start)

    def is_near(self, problem: solvers.Problem) -> bool:
        """Is the best choice known near to what is proven of the folded problem?"""
        judged = [solvers.evaluate(problem, start) for start in self.starts]
        least = min((each.cost for each in judged if each.feasible), default=None)
        return least is not None and least - self.solution.bound <= LARGE_GAP * least


def _solve_stages(
    layers: RepeatedLayers, request: Request, starts: Starts, *, on_progress: OnProgress | None
) -> Iterator[FoldStage]:
    """The folded problem solved, and that of more pieces while much is unproven, each from the answer before."""
    for pieces in PIECES:
        folded = layers.quotient(pieces)
        start = solvers.compute_warm_start(folded.problem, request.gap, _brief_time_s(request))
        solution = _solve_stage(folded, request, starts, on_progress=on_progress, start=start)
        starts = [*_lift_choices(layers, folded, solution), *starts]
        stage = FoldStage(folded, start, solution, starts)
        yield stage
        if stage.is_near(layers.problem):
            return


def _lift_choices(
    layers: RepeatedLayers, folded: FoldedProblem, solution: solvers.Solution
) -> Iterator[tuple[int, ...]]:
    """The choice found (where none fits, the leanest), and what splicing makes of those like it."""
    best = solution.assignment or solution.min_peak_assignment
    found = [folded.unfold_choice(choice) for choice in (best, *solution.nearest) if choice is not None]
    spliced = layers.crossover(found)
    yield from found[:1] if best else ()
    if spliced is not None:
        yield spliced


def _check_cutoff(problem: solvers.Problem, request: Request, starts: Starts, *, cutoff: int) -> solvers.Solution:
    """A little work on whether anything costs less than the cutoff."""
    cheaper: list[int] = []

    def see(now: solvers.Progress) -> None:
        if now.incumbent is not None and now.incumbent < cutoff:
            cheaper.append(now.incumbent)

    asked = replace(request, deterministic=True)
    return _run_solver(
        problem,
        asked,
        _brief_time_s(request),
        starts=starts,
        on_progress=see,
        cutoff=cutoff,
        cancelled=lambda: bool(cheaper),
    )


def _run_solver(
    problem: solvers.Problem,
    request: Request,
    time_limit: float | None,
    *,
    starts: Starts,
    on_progress: OnProgress | None,
    cutoff: int | None = None,
    start: solvers.DualWarmStart | None = None,
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


def _solve_stage(
    folded: FoldedProblem,
    request: Request,
    starts: Starts,
    *,
    on_progress: OnProgress | None,
    start: solvers.DualWarmStart,
) -> solvers.Solution:
    """Of the folded problem, to half the gap, which leaves the other half for what folding loses."""
    limit = request.time_limit_s
    asked = replace(request, gap=request.gap / 2, deterministic=request.deterministic or limit is None)
    lowered = [low for low in map(folded.fold_choice, starts) if low is not None]
    seconds = SECONDS if limit is None else SHARE * limit
    return _run_solver(
        folded.problem,
        asked,
        seconds,
        starts=lowered,
        on_progress=on_progress,
        cutoff=None,
        start=start,
        nearest=CROSSOVERS,
    )


def _brief_time_s(request: Request) -> float:
    return BRIEF_SECONDS if request.time_limit_s is None else BRIEF_SHARE * request.time_limit_s


def _remaining_time_s(request: Request, began: float, shares: float) -> float | None:
    """Seconds; what was not used of the shares before is kept only where the clock is looked at anyway."""
    limit = request.time_limit_s
    if limit is None:
        return None
    least = (1 - shares) * limit
    return least if request.deterministic else max(limit - (time.monotonic() - began), least)


def _drop_bound(on_progress: OnProgress) -> OnProgress:
    """What is proven of a folded problem is not of the unfolded one."""
    return lambda now: on_progress(replace(now, bound=0, gap=None if now.incumbent is None else 1.0))


def _add_elapsed(began: float, on_progress: OnProgress) -> OnProgress:
    return lambda now: on_progress(replace(now, elapsed_s=time.monotonic() - began))


def _report_folding(layers: RepeatedLayers, stage: FoldStage, solution: solvers.Solution) -> Folding:
    folded, known, cost = stage.quotient, stage.solution.cost, solution.cost
    return Folding(
        layers=layers.counts,
        groups=len(folded.groups),
        variables=len(folded.problem.nodes),
        total_variables=len(folded.quotient_node),
        loss_bound=None if known is None else max(0.0, (known - solution.bound) / max(known, 1)),
        unfolded=known is None or (cost is not None and cost < known),
    )
