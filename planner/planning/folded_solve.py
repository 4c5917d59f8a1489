"""Solve an assignment problem by way of its folded problem (`planner.choose.fold`).

Where layers repeat, the folded problem, which shards equal layers alike, is solved first. The search of the unfolded
problem starts from its solution, and the lower bound from its Lagrange multipliers and messages, which soon prove as
much there. Under a memory limit some layers have to differ: an assignment that fits and a cheaper one that does not are
combined by crossover, and while more than 1 % of the cost is unproven, each half of the layers is folded separately
before all layers are unfolded. The bound is always that of the unfolded problem, so that the gap includes the loss by
folding.

Under a time limit, a folded problem may cost what folding saves: as much as the message passes of the unfolded
problem's root relaxation, and a share of the limit at most. It finds most of what it is solved for at once, in its
first multipliers and columns. What is left is often a gap that its coarser choices never close, while the unfolded
problem, where a layer may differ from the others, closes it in its root. Without a time limit, the work is a constant.

With a cutoff, a bound is enough and no assignment is needed: the unfolded problem is searched first, briefly, until an
assignment is found that costs less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import solvers
from planner.choose.fold import FoldedProblem, RepeatedLayers
from planner.planning.deadline import Deadline
from planner.planning.plan_types import Folding, Request
from solvers.solve_state import WORK_PER_SECOND, pass_work

OnProgress = Callable[[solvers.Progress], None]
Starts = Sequence[Sequence[int]]

# Smaller problems are solved in the time that folding takes; problems that keep more of their nodes gain little.
MIN_NODES, MAX_NODE_SHARE = 1000, 0.6
# Numbers of runs of layers that are folded separately, tried in turn while the gap is large; assignments to combine.
PIECES, LARGE_GAP, CROSSOVERS = (1, 2), 0.01, 20
# What each folded problem may take: a share of the time limit, and the time of so many message passes of the unfolded
# problem (as many as its root relaxation makes at most); without a limit, seconds' worth of work.
SHARE, PASSES, SECONDS = 0.2, 300, 15.0
# The same, for computing messages and for the brief search under a cutoff.
BRIEF_SHARE, BRIEF_SECONDS = 0.1, 6.0
# Seconds for the last solve when the time is up: enough to return the best of its starts.
LEAST_S = 0.1
# With less time than this, a problem is not folded: that takes seconds itself.
LEAST_FOLDED_S = 2.0


def solve_folded(
    problem: solvers.Problem,
    request: Request,
    starts: Starts,
    *,
    on_progress: OnProgress | None = None,
    on_folded: OnProgress | None = None,
    cutoff: int | None = None,
) -> tuple[solvers.Solution, Folding | None]:
    """Return the best solution, no worse than a feasible start, and how folding was used, or None where it was not.

    An assignment that costs `cutoff` or more is of no interest. `on_folded` receives the progress on folded problems,
    whose bounds are none of the unfolded one.
    """
    deadline, shares = Deadline(None if request.deterministic else request.time_limit_s), 0.0
    run = partial(_run_solver, problem, request, on_progress=on_progress, cutoff=cutoff)
    if len(problem.nodes) < MIN_NODES or deadline.is_within(LEAST_FOLDED_S):
        return run(request.time_limit_s, starts=starts), None
    if cutoff is not None:
        look, shares = _check_cutoff(problem, request, starts, cutoff=cutoff), BRIEF_SHARE
        if look.reason == solvers.CUT_OFF:
            return look, None
        starts = starts if look.assignment is None else [look.assignment, *starts]
    layers = RepeatedLayers.of(problem)
    if layers.node_count > MAX_NODE_SHARE * len(problem.nodes):
        return run(_remaining_time_s(request, deadline, shares), starts=starts), None
    stages = list(_solve_stages(layers, request, starts, deadline=deadline, on_progress=on_folded))
    last, shares = stages[-1], shares + len(stages) * (BRIEF_SHARE + SHARE)
    if last.solution.multipliers:
        last, shares = last.at_multipliers(request, deadline), shares + BRIEF_SHARE
    start, starts = layers.prolong(last.quotient, last.start), last.starts
    folded, folding = [each.solution for each in stages], _report_folding(layers, last)
    del stages, last  # folded problems: their memory is needed now
    solution = run(_remaining_time_s(request, deadline, shares), starts=starts, start=start)
    reproducible = all(each.reproducible for each in folded) and solution.reproducible
    folded_log = (
        replace(line, operator=f"folded: {line.operator}", began_s=0.0) for each in folded for line in each.log
    )
    timed = replace(solution, wall_s=deadline.elapsed_s, reproducible=reproducible, log=(*folded_log, *solution.log))
    return timed, _compare_unfolded(folding, folded[-1].cost, solution)


@dataclass(frozen=True, slots=True, eq=False)
class FoldStage:
    """A folded problem, its dual's warm start, its solution, and known assignments of the unfolded problem."""

    quotient: FoldedProblem
    start: solvers.DualWarmStart
    solution: solvers.Solution
    starts: Starts

    def at_multipliers(self, request: Request, deadline: Deadline) -> FoldStage:
        """Return the stage with messages computed at the multipliers of its solution."""
        start = _pass_messages(self.quotient, request, deadline, multipliers=self.solution.multipliers)
        return replace(self, start=start)

    def is_near(self, problem: solvers.Problem) -> bool:
        """Return whether the best known assignment is near the lower bound of the folded problem."""
        judged = [solvers.evaluate(problem, start) for start in self.starts]
        least = min((each.cost for each in judged if each.feasible), default=None)
        return least is not None and least - self.solution.bound <= LARGE_GAP * least


def _solve_stages(
    layers: RepeatedLayers, request: Request, starts: Starts, *, deadline: Deadline, on_progress: OnProgress | None
) -> Iterator[FoldStage]:
    """Solve the folded problem, then folded problems of more pieces while the gap is large.

    Each stage starts from the assignments of the one before. The second one is left out where a third of the time is
    gone: the unfolded problem takes longer.
    """
    for pieces in PIECES:
        folded = layers.quotient(pieces)
        start = _pass_messages(folded, request, deadline)
        solution = _solve_stage(folded, layers.problem, request, starts=starts, on_progress=on_progress, start=start)
        starts = [*_unfold_assignments(layers, folded, solution), *starts]
        stage = FoldStage(folded, start, solution, starts)
        yield stage
        limit = deadline.seconds
        if stage.is_near(layers.problem) or (limit is not None and deadline.elapsed_s > limit / 3):
            return


def _pass_messages(
    folded: FoldedProblem, request: Request, deadline: Deadline, *, multipliers: Mapping[int, float] | None = None
) -> solvers.DualWarmStart:
    """Return messages of a folded problem, computed for a brief time."""
    seconds = BRIEF_SECONDS if request.time_limit_s is None else BRIEF_SHARE * request.time_limit_s
    ends = Deadline(seconds if deadline.seconds is not None else None)
    return solvers.compute_warm_start(
        folded.problem, request.gap, seconds, multipliers=multipliers, stopped=lambda: ends.left_s == 0.0
    )


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
        BRIEF_SECONDS if request.time_limit_s is None else BRIEF_SHARE * request.time_limit_s,
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
    unfolded: solvers.Problem,
    request: Request,
    *,
    starts: Starts,
    on_progress: OnProgress | None,
    start: solvers.DualWarmStart,
) -> solvers.Solution:
    """Solve a folded problem to half the gap, which leaves the other half for the loss by folding."""
    limit = request.time_limit_s
    half_gap = replace(request, gap=request.gap / 2, deterministic=request.deterministic or limit is None)
    lowered = [low for low in map(folded.fold_choice, starts) if low is not None]
    # Without a limit the search of a folded problem is deterministic: its result must not depend on the machine's
    # speed.
    saved_s = PASSES * pass_work(unfolded.arrays) / WORK_PER_SECOND
    seconds = SECONDS if limit is None else min(SHARE * limit, saved_s)
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


def _remaining_time_s(request: Request, deadline: Deadline, shares: float) -> float | None:
    """Return the seconds that are left, or None without a limit.

    A deterministic request gives up unused time of earlier shares, as how much is unused depends on the clock.
    """
    limit = request.time_limit_s
    if limit is None:
        return None
    return (1 - shares) * limit if request.deterministic else max(LEAST_S, deadline.left_s or 0.0)


def _report_folding(layers: RepeatedLayers, stage: FoldStage) -> Folding:
    """Return how layers are folded; what that loses is known after the search of the unfolded problem."""
    folded = stage.quotient
    return Folding(
        layers=layers.counts,
        groups=len(folded.groups),
        variables=len(folded.problem.nodes),
        total_variables=len(folded.quotient_node),
        loss_bound=None,
        unfolded=True,
    )


def _compare_unfolded(folding: Folding, known: int | None, solution: solvers.Solution) -> Folding:
    """Compare the cost of the folded problem's solution with what was found for the unfolded one."""
    cost = solution.cost
    return replace(
        folding,
        loss_bound=None if known is None else max(0.0, (known - solution.bound) / max(known, 1)),
        unfolded=known is None or (cost is not None and cost < known),
    )
