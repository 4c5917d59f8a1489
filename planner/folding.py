"""A choice problem solved by way of its folded one (`planner.choose.fold`).

Where layers repeat, the problem in which equal layers are planned alike is solved first; the search of the unfolded
problem starts from its answer. A memory limit wants some layers treated differently: where more than a hundredth of
the folded plan's cost is left unproven, each half of the layers is folded for itself before all are unfolded. The
bound is always that of the unfolded problem, so that the gap counts what folding loses. A cutoff wants a bound and no
choice: under one, the unfolded problem is looked at first, until a choice is found that costs less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import solvers
from planner.choose.fold import Folded, Layers
from planner.plans import Folding, Request

OnProgress = Callable[[solvers.Progress], None]
Starts = Sequence[Sequence[int]]

# A problem of fewer nodes is solved in the time that folding takes; one that folds to more of its nodes gains little.
LEAST_NODES, MOST_LEFT = 1000, 0.6
# Runs of layers folded for themselves, tried in turn while the gap is larger than this.
PIECES, LARGE_GAP = (1, 2), 0.01
# Of the time limit, for each; without one, seconds' worth of work.
SHARE, SECONDS = 0.2, 15.0
# The same, for a look at what a cutoff leaves.
LOOK_SHARE, LOOK_SECONDS = 0.1, 6.0


def solve(
    problem: solvers.Problem,
    request: Request,
    starts: Starts,
    on_progress: OnProgress | None = None,
    cutoff: int | None = None,
) -> tuple[solvers.Solution, Folding | None]:
    """The best choice found, no worse than a feasible start, and how folding was used (None: not). cutoff: what costs
    as much is of no interest."""
    if cutoff is None or len(problem.nodes) < LEAST_NODES:
        return _layered(problem, request, starts, on_progress, cutoff)
    look, limit = _look(problem, request, starts, cutoff), request.time_limit_s
    if look.reason == solvers.CUT_OFF:
        return look, None
    starts = starts if look.choice is None else [look.choice, *starts]
    later = replace(request, time_limit_s=None if limit is None else (1 - LOOK_SHARE) * limit)
    solution, folding = _layered(problem, later, starts, on_progress and _after(look.wall_s, on_progress), cutoff)
    return replace(solution, wall_s=look.wall_s + solution.wall_s), folding


def _look(problem: solvers.Problem, request: Request, starts: Starts, cutoff: int) -> solvers.Solution:
    """A little work on whether anything costs less than the cutoff."""
    limit, found = request.time_limit_s, list[int]()
    return solvers.solve(
        problem,
        time_limit=LOOK_SECONDS if limit is None else LOOK_SHARE * limit,
        gap=request.gap,
        deterministic=True,
        seed=request.seed,
        starts=starts,
        cutoff=cutoff,
        on_progress=lambda now: found.append(cutoff if now.incumbent is None else now.incumbent),
        cancelled=lambda: bool(found) and found[-1] < cutoff,
    )


def _layered(
    problem: solvers.Problem,
    request: Request,
    starts: Starts,
    on_progress: OnProgress | None,
    cutoff: int | None,
) -> tuple[solvers.Solution, Folding | None]:
    """By way of the folded problem, where folding leaves little."""
    layers = Layers.of(problem) if len(problem.nodes) >= LEAST_NODES else None
    if layers is None or layers.left > MOST_LEFT * len(problem.nodes):
        return _solved(problem, request, request.time_limit_s, starts, on_progress, cutoff), None
    stages: list[tuple[Folded, solvers.Solution]] = []
    spent = 0.0
    while len(stages) < len(PIECES) and (not stages or _far(stages[-1][1])):
        folded = layers.folded(PIECES[len(stages)])
        first = _first(folded, request, starts, on_progress and _unproven(spent, on_progress))
        best = first.choice or first.leanest
        starts = starts if best is None else [folded.lift(best), *starts]
        stages.append((folded, first))
        spent += first.wall_s
    left = _left(request, spent, len(stages))
    solution = _solved(problem, request, left, starts, on_progress and _after(spent, on_progress), cutoff)
    reproducible = all(each.reproducible for _, each in stages) and solution.reproducible
    together = replace(solution, wall_s=spent + solution.wall_s, reproducible=reproducible)
    return together, _report(layers, *stages[-1], solution)


def _far(solution: solvers.Solution) -> bool:
    return solution.gap is None or solution.gap > LARGE_GAP


def _solved(
    problem: solvers.Problem,
    request: Request,
    time_limit: float | None,
    starts: Starts,
    on_progress: OnProgress | None,
    cutoff: int | None = None,
) -> solvers.Solution:
    return solvers.solve(
        problem,
        time_limit=time_limit,
        gap=request.gap,
        deterministic=request.deterministic,
        seed=request.seed,
        starts=starts,
        cutoff=cutoff,
        on_progress=on_progress,
    )


def _first(folded: Folded, request: Request, starts: Starts, on_progress: OnProgress | None) -> solvers.Solution:
    """Of the folded problem, to half the gap, which leaves the other half for what folding loses."""
    limit = request.time_limit_s
    asked = replace(request, gap=request.gap / 2, deterministic=request.deterministic or limit is None)
    lowered = [low for low in map(folded.lower, starts) if low is not None]
    return _solved(folded.problem, asked, SECONDS if limit is None else SHARE * limit, lowered, on_progress)


def _left(request: Request, spent: float, folded: int) -> float | None:
    """Seconds; what folded problems did not use is kept only where the clock is looked at anyway."""
    limit = request.time_limit_s
    if limit is None:
        return None
    least = (1 - SHARE * folded) * limit
    return least if request.deterministic else max(limit - spent, least)


def _unproven(spent: float, on_progress: OnProgress) -> OnProgress:
    """What is proven of a folded problem is not of the unfolded one."""
    return _after(spent, lambda now: on_progress(replace(now, bound=0, gap=None if now.incumbent is None else 1.0)))


def _after(seconds: float, on_progress: OnProgress) -> OnProgress:
    return lambda now: on_progress(replace(now, elapsed_s=seconds + now.elapsed_s))


def _report(layers: Layers, folded: Folded, first: solvers.Solution, solution: solvers.Solution) -> Folding:
    known, cost = first.cost, solution.cost
    return Folding(
        layers=layers.counts,
        groups=len(folded.groups),
        variables=len(folded.problem.nodes),
        of=len(folded.member),
        loss_bound=None if known is None else max(0.0, (known - solution.bound) / max(known, 1)),
        unfolded=known is None or (cost is not None and cost < known),
    )
