"""solve(): presolve, a root relaxation by message passing, and the engine (solvers/engine.py).

Problems without a limit, or with usage on edges, have no large-neighbourhood search, which cannot track usage on edges,
and no dual ascent, whose direction does not see it: Kelley's planes need a few evaluations for what it does not find.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from solvers.arguments import check_arguments
from solvers.build_solution import build_solution
from solvers.column_generation import ColumnGeneration
from solvers.dual_ascent import DualAscent
from solvers.dual_lns import DualLnsHybrid, find_min_usage_assignment
from solvers.engine import MAX_PAIRS, SMALL_PAIRS, Engine
from solvers.evaluation import usage_profile
from solvers.kelley_dual import KelleyDual
from solvers.min_peak_dual import MinPeakDual
from solvers.oriented_graph import OrientedGraph
from solvers.potentials import FixedPoint
from solvers.presolve import presolve
from solvers.problem import Problem
from solvers.relaxation import Relaxation
from solvers.solution import DualWarmStart, Progress, Solution
from solvers.solve_state import SolveState

Integers = NDArray[np.int64]

# Message rounds at the root, and the gain per round (of the bound) that ends them; building the root takes as long as
# so many message passes, and with less time the best start is the result.
ROOT_ROUNDS, ROOT_STALL, ROOT_PASSES = 300, 1e-5, 12
# Rounds before it is known whether the usage limit matters.
FIRST_ROUNDS = 8
# Evaluations of the Kelley dual; the second where column generation continues from its multipliers.
KELLEY_STEPS, KELLEY_STEPS_BEFORE_COLUMNS = 40, 16


def solve(
    problem: Problem,
    *,
    time_limit: float | None = None,
    gap: float = 1e-7,
    deterministic: bool = False,
    processes: int = 2,
    seed: int = 0,
    starts: Sequence[Sequence[int]] = (),
    cutoff: int | None = None,
    start: DualWarmStart | None = None,
    nearest: int = 0,
    on_progress: Callable[[Progress], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Solution:
    """Find the cheapest assignment within the limit, and an exact lower bound of the cost.

    time_limit: seconds of wall clock. deterministic: convert the time limit into units of work and never read the
    clock, so that the result is reproducible; without a time limit every run does so, with 60 seconds' worth of work.
    gap: the relative gap to prove. processes: with 2 or more and a clock, the dual of a large problem runs in parallel
    with its search. seed: of the MIP solvers and the search. starts: known assignments; the result is never worse than
    the best feasible one. cutoff: assignments of this cost or more are of no interest; the solve ends with reason
    `CUT_OFF` once it is proven that there is no cheaper one. start: dual values to begin from
    (`solvers.compute_warm_start`), used where presolve leaves the problem unchanged. nearest: how many further
    assignments near the bound to return. on_progress: called at each new incumbent or bound. cancelled: polled; the
    solve stops once it returns True. Raises InvalidProblem where an argument is out of range.
    """
    integers = {"processes": processes, "seed": seed, "nearest": nearest}
    check_arguments(problem, starts, start, time_limit=time_limit, gap=gap, cutoff=cutoff, **integers)
    state = SolveState(problem, gap, time_limit, deterministic, on_progress, cancelled, cutoff)
    reduced = presolve(problem, stopped=lambda: state.is_exhausted)
    if reduced is None:
        state.raise_lower_bound(state.largest_cost + 1)
        return build_solution(state, None, {}, nearest=nearest)
    state.rebase(reduced.problem)
    for original in starts:
        assignment = reduced.crush(original)
        if assignment is not None:
            state.submit(assignment)
    if state.cost is None:
        state.submit(find_min_usage_assignment(reduced.problem))
    # Dual values belong to the edges and time steps of one problem: they mean nothing after a reduction.
    is_unchanged = reduced.problem is problem
    processes = processes if state.seconds_left is not None else 1
    multipliers = _improve_incumbent(state, start if is_unchanged else None, seed, processes=processes)
    solution = build_solution(state, reduced, multipliers, nearest=nearest)
    return replace(solution, multipliers=multipliers) if is_unchanged else solution


def _improve_incumbent(
    state: SolveState, start: DualWarmStart | None, seed: int, *, processes: int
) -> Mapping[int, float]:
    """Improve incumbent and bound until the state is exhausted; return the best multipliers."""
    if not state.has_time_for(ROOT_PASSES):
        return {}
    with state.operator("root", state.problem.arrays.pairs):
        relaxation = _build_root(state, start)
        if not _needs_lns(state.problem):
            relaxation, assignment = relaxation.pass_until_stalled(ROOT_ROUNDS, ROOT_STALL)
        else:
            assignment = relaxation.pass_messages(FIRST_ROUNDS, 0.0)
            if state.cost is None and not state.is_exhausted:
                MinPeakDual(state).run(60)
    if assignment is None:
        return relaxation.multipliers
    if _needs_lns(state.problem):
        engine = Engine(state, relaxation, seed)
        if not state.is_exhausted:
            engine.run(DualLnsHybrid(state, DualAscent(relaxation), seed), processes)
        return engine.multipliers
    relaxation, multipliers = _find_multipliers(state, relaxation, assignment, seed=seed)
    if not state.is_exhausted:
        Engine(state, relaxation, seed).run_without_search()
    return multipliers


def _find_multipliers(
    state: SolveState, relaxation: Relaxation, assignment: Integers, *, seed: int
) -> tuple[Relaxation, Mapping[int, float]]:
    """Return the relaxation, possibly of a smaller problem with cuts, at good multipliers of the usage limit, and the
    best ones without cuts; assignment: the last one decoded."""
    limit, pairs = state.problem.limit, state.problem.arrays.pairs
    if limit is None or not (relaxation.multipliers or _is_limit_tight(relaxation, assignment, limit)):
        return relaxation, relaxation.multipliers
    with state.operator("Kelley", pairs):
        if not relaxation.multipliers:
            steps = KELLEY_STEPS if pairs <= MAX_PAIRS else KELLEY_STEPS_BEFORE_COLUMNS
            KelleyDual(state, relaxation, limit).run(assignment, steps, 16)
        if state.cost is None and not state.stop_reason:
            MinPeakDual(state).run(60)
            if not state.is_exhausted:
                # An assignment within the limit gives the dual a plane from the other side of the optimum.
                KelleyDual(state, relaxation, limit).run(assignment, KELLEY_STEPS, 16)
    if state.is_exhausted or pairs <= MAX_PAIRS:
        return relaxation, relaxation.multipliers
    columns = ColumnGeneration(state, relaxation, seed)
    return columns.run(SMALL_PAIRS), columns.multipliers


def _is_limit_tight(relaxation: Relaxation, assignment: Integers, limit: int) -> bool:
    """Return whether the limit matters: no incumbent, or the decoded assignment exceeds it."""
    model = relaxation.model
    return model.state.cost is None or bool((usage_profile(model.restriction.problem, assignment) > limit).any())


def _needs_lns(problem: Problem) -> bool:
    """Return whether the large-neighbourhood search applies: it needs a limit, and cannot track usage on edges."""
    return problem.limit is not None and not problem.arrays.edge_usage_edge.size


def _build_root(state: SolveState, start: DualWarmStart | None) -> Relaxation:
    """Build the root relaxation with a fixed-point scale that fits the cost of a first incumbent.

    A coarse first relaxation finds that incumbent; the lower the costs to represent, the finer the scale can be.
    """
    degree = OrientedGraph.of(state.problem.arrays).degree
    # The coarse relaxation is freed before the fine one is built: they are as large as each other.
    _find_first_incumbent(state, degree)
    largest_cost = state.largest_cost if state.cost is None else min(state.largest_cost, 4 * state.cost)
    return Relaxation.for_problem(state, FixedPoint.of(degree, largest_cost), start)


def _find_first_incumbent(state: SolveState, degree: int) -> None:
    rough = Relaxation.for_problem(state, FixedPoint.of(degree, state.largest_cost))
    rough.pass_messages(1, 0.0)
    limit = state.problem.limit
    if limit is not None and state.cost is None:
        # A first feasible assignment at any cost: multipliers so high that usage outweighs every cost.
        rough.set_multipliers(dict.fromkeys(range(state.problem.arrays.time_steps), state.largest_cost / max(limit, 1)))
        rough.pass_messages(2, 0.0)
