"""Solve an assignment problem by way of its folded problem (`planner.choose.fold`).

Where layers repeat, the folded problem, which shards equal layers alike, is solved first. The search of the unfolded
problem starts from its solution, and the lower bound from its Lagrange multipliers and messages, which soon prove as
much there. Under a memory limit some layers have to differ: an assignment that fits and a cheaper one that does not are
combined by crossover, and while more than 1 % of the cost is unproven, each half of the layers is folded separately
before all layers are unfolded. The bound is always that of the unfolded problem, so that the gap includes the loss by
folding. With a cutoff, a bound is enough and no assignment is needed: the unfolded problem is searched first, briefly,
until an assignment is found that costs less.
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

# Smaller problems are solved in the time that folding takes; problems that keep more of their nodes gain little.
MIN_NODES, MAX_NODE_SHARE = 1000, 0.6
# Numbers of runs of layers that are folded separately, tried in turn while the gap is large; assignments to combine.
PIECES, LARGE_GAP, CROSSOVERS = (1, 2), 0.01, 20
# Share of the time limit for each folded problem; without a limit, seconds' worth of work.
SHARE, SECONDS = 0.2, 15.0
# The same, for computing messages and for the brief search under a cutoff.
BRIEF_SHARE, BRIEF_SECONDS = 0.1, 6.0


def solve_folded(
    problem: solvers.Problem,
    request: Request,
    starts: Starts,
    *,
    on_progress: OnProgress | None = None,
    cutoff: int | None = None,
) -> tuple[solvers.Solution, Folding | None]:
    """Return the best solution, no worse than a feasible start, and how folding was used, or None where it was not. An
    assignment that costs `cutoff` or more is of no interest."""
    began, shares = time.monotonic(), 0.0
    hook = on_progress and _add_elapsed(began, on_progress)
    if len(problem.nodes) < MIN_NODES:
        return _run_solver(problem, request, request.time_limit_s, starts=starts, on_progress=hook, cutoff=cutoff), None
    if cutoff is not None:
        look, shares = _check_cutoff(problem, request, starts, cutoff=cutoff), BRIEF_SHARE
        if look.reason == solvers.CUT_OFF:
            return look, None
        starts = starts if look.assignment is None else [look.assignment, *starts]
    layers = RepeatedLayers.of(problem)
    if layers.node_count > MAX_NODE_SHARE * len(problem.nodes):
        return _run_solver(
            problem, request, _remaining_time_s(request, began, shares), starts=starts, on_progress=hook, cutoff=cutoff
        ), None
    stages = list(_solve_stages(layers, request, starts, on_progress=hook and _drop_bound(hook)))
    last, shares = stages[-1], shares + len(stages) * (BRIEF_SHARE + SHARE)
    if last.solution.multipliers:
        last, shares = last.at_multipliers(request), shares + BRIEF_SHARE
    start = layers.prolong(last.quotient, last.start)
    solution = _run_solver(
        problem,
        request,
        _remaining_time_s(request, began, shares),
        starts=last.starts,
        on_progress=hook,
        cutoff=cutoff,
        start=start,
    )
    reproducible = all(each.solution.reproducible for each in stages) and solution.reproducible
    timed = replace(solution, wall_s=time.monotonic() - began, reproducible=reproducible)
    return timed, _report_folding(layers, last, solution)


@dataclass(frozen=True, slots=True, eq=False)
class FoldStage:
    """A folded problem, its dual's warm start, its solution, and known assignments of the unfolded problem."""

    quotient: FoldedProblem
    start: solvers.DualWarmStart
    solution: solvers.Solution
    starts: Starts

    def at_multipliers(self, request: Request) -> FoldStage:
        """Return the stage with messages computed at the multipliers of its solution."""
        start = solvers.compute_warm_start(
            self.quotient.problem, request.gap, _brief_time_s(request), multipliers=self.solution.multipliers
        )
        return replace(self, start=start)

    def is_near(self, problem: solvers.Problem) -> bool:
        """Return whether the best known assignment is near the lower bound of the folded problem."""
        judged = [solvers.evaluate(problem, start) for start in self.starts]
        least = min((each.cost for each in judged if each.feasible), default=None)
        return least is not None and least - self.solution.bound <= LARGE_GAP * least


def _solve_stages(
    layers: RepeatedLayers, request: Request, starts: Starts, *, on_progress: OnProgress | None
) -> Iterator[FoldStage]:
    """Solve the folded problem, then folded problems of more pieces while the gap is large.

    Each stage starts from the assignments of the one before.
    """
    for pieces in PIECES:
        folded = layers.quotient(pieces)
        start = solvers.compute_warm_start(folded.problem, request.gap, _brief_time_s(request))
        solution = _solve_stage(folded, request, starts, on_progress=on_progress, start=start)
        starts = [*_unfold_assignments(layers, folded, solution), *starts]
        stage = FoldStage(folded, start, solution, starts)
        yield stage
        if stage.is_near(layers.problem):
            return


def _unfold_assignments(
    layers: RepeatedLayers, folded: FoldedProblem, solution: solvers.Solution
) -> Iterator[tuple[int, ...]]:
    """Yield the solution unfolded (where none fits, the min-peak assignment), and a crossover of it and its like."""
    best = solution.assignment or solution.min_peak_assignment
    unfolded = [folded.unfold_choice(choice) for choice in (best, *solution.nearest) if choice is not None]
    combined = layers.crossover(unfolded)
    yield from unfolded[:1] if best else ()
    if combined is not None:
        yield combined


def _check_cutoff(problem: solvers.Problem, request: Request, starts: Starts, *, cutoff: int) -> solvers.Solution:
    """Search briefly for an assignment that costs less than the cutoff."""
    cheaper: list[int] = []

    def note_cheaper(now: solvers.Progress) -> None:
        if now.incumbent is not None and now.incumbent < cutoff:
            cheaper.append(now.incumbent)

    # Deterministic: this search must not end by the clock, or whether it finds something would depend on load.
    brief = replace(request, deterministic=True)
    return _run_solver(
        problem,
        brief,
        _brief_time_s(request),
        starts=starts,
        on_progress=note_cheaper,
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
    """Solve a folded problem to half the gap, which leaves the other half for the loss by folding."""
    limit = request.time_limit_s
    half_gap = replace(request, gap=request.gap / 2, deterministic=request.deterministic or limit is None)
    lowered = [low for low in map(folded.fold_choice, starts) if low is not None]
    seconds = SECONDS if limit is None else SHARE * limit
    return _run_solver(
        folded.problem,
        half_gap,
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
    """Return the seconds that are left, or None without a limit.

    A deterministic request gives up unused time of earlier shares, as how much is unused depends on the clock.
    """
    limit = request.time_limit_s
    if limit is None:
        return None
    least = (1 - shares) * limit
    return least if request.deterministic else max(limit - (time.monotonic() - began), least)


def _drop_bound(on_progress: OnProgress) -> OnProgress:
    """Report progress without its bound: a bound of the folded problem is none of the unfolded one."""
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
