"""A choice problem solved by way of its folded one (`planner.choose.fold`).

Where layers repeat, the problem in which equal layers are planned alike is solved first; the search of the unfolded
problem starts from its answer, and its bound from the folded problem's messages, which soon prove as much there. A
memory limit wants some layers treated differently: where more than a hundredth of the folded plan's cost is left
unproven, each half of the layers is folded for itself before all are unfolded. The bound is always that of the unfolded
problem, so that the gap counts what folding loses. A cutoff wants a bound and no choice: under one, the unfolded
problem is looked at before all else, until a choice is found that costs less.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

import solvers
from planner.choose.fold import Folded, Layers
from planner.plans import Folding, Request

OnProgress = Callable[[solvers.Progress], None]
Starts = Sequence[Sequence[int]]
Messages = NDArray[np.float64]
Stage = tuple[Folded, solvers.Solution]

# A problem of fewer nodes is solved in the time that folding takes; one that folds to more of its nodes gains little.
LEAST_NODES, MOST_LEFT = 1000, 0.6
# Runs of layers folded for themselves, tried in turn while the gap is larger than this.
PIECES, LARGE_GAP = (2,), 0.01
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
    folded = layers.folded()
    messages = solvers.converged(folded.problem, request.gap, _brief(request))
    stages = list(_stages(layers, folded, messages, request, starts, told and _unproven(told)))
    shares += BRIEF_SHARE + SHARE * len(stages)
    starts, spread = [*_lifted(stages), *starts], layers.spread(folded, messages)
    solution = _solved(problem, request, _left(request, began, shares), starts, told, cutoff, spread)
    reproducible = all(each.reproducible for _, each in stages) and solution.reproducible
    together = replace(solution, wall_s=time.monotonic() - began, reproducible=reproducible)
    return together, _report(layers, *stages[-1], solution)


def _stages(
    layers: Layers,
    folded: Folded,
    messages: Messages,
    request: Request,
    starts: Starts,
    on_progress: OnProgress | None,
) -> Iterator[Stage]:
    """The folded problem solved, and those of more pieces while much is unproven, each from the answer before."""
    first = _first(folded, request, starts, on_progress, messages)
    yield folded, first
    for pieces in PIECES:
        if first.gap is not None and first.gap <= LARGE_GAP:
            return
        starts = [*_lifted([(folded, first)]), *starts]
        folded = layers.folded(pieces)
        first = _first(folded, request, starts, on_progress)
        yield folded, first


def _lifted(stages: Sequence[Stage]) -> list[tuple[int, ...]]:
    """The choices found, the last first; where none fits, the leanest."""
    found = ((folded, first.choice or first.leanest) for folded, first in reversed(stages))
    return [folded.lift(choice) for folded, choice in found if choice is not None]


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
    messages: Messages | None = None,
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
        messages=messages,
        on_progress=on_progress,
        cancelled=cancelled,
    )


def _first(
    folded: Folded,
    request: Request,
    starts: Starts,
    on_progress: OnProgress | None,
    messages: Messages | None = None,
) -> solvers.Solution:
    """Of the folded problem, to half the gap, which leaves the other half for what folding loses."""
    limit = request.time_limit_s
    asked = replace(request, gap=request.gap / 2, deterministic=request.deterministic or limit is None)
    lowered = [low for low in map(folded.lower, starts) if low is not None]
    seconds = SECONDS if limit is None else SHARE * limit
    return _solved(folded.problem, asked, seconds, lowered, on_progress, None, messages)


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
