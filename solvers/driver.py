"""solve(): presolve, and a root relaxation by message passing; then the engine (solvers/engine.py) for problems with a
usage limit, and for others the Lagrangian dual, restricted MIPs, cuts, dives and branch and bound.

The others have no limit or usage on edges, which the search cannot track and Adam's direction does not see: there
Kelley's planes need a few evaluations for what the ascent does not find.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from solvers.arguments import check_arguments
from solvers.branch_and_bound import run_branch_and_bound, run_dive
from solvers.build_solution import build_solution
from solvers.column_generation import ColumnGeneration
from solvers.cut_separation import select_promising, separate_cuts
from solvers.dual_ascent import DualAscent
from solvers.dual_lns import DualLnsHybrid, find_min_usage_assignment
from solvers.engine import Engine, prove_rest
from solvers.evaluation import find_peaks, usage_profile
from solvers.kelley_dual import KelleyDual, exceeds_limit
from solvers.lagrangian_heuristic import run_lagrangian_heuristic
from solvers.min_peak_dual import MinPeakDual
from solvers.oriented_graph import OrientedGraph
from solvers.potentials import FixedPoint
from solvers.presolve import presolve
from solvers.problem import Problem
from solvers.relaxation import Relaxation
from solvers.restricted_mip import solve_restricted_mip
from solvers.solution import DualWarmStart, Progress, Solution
from solvers.solve_state import SolveState

Integers = NDArray[np.int64]

# Message rounds at the root, and the gain per round (of the bound) that ends them there and on a reduced problem;
# building the root takes as long as so many message passes, and with less time the best start is the result.
ROOT_ROUNDS, ROOT_STALL, SMALL_STALL, ROOT_PASSES = 300, 1e-5, 1e-7, 12
# Rounds before it is known whether the usage limit matters.
FIRST_ROUNDS = 8
# The MIP of everything not excluded: most pairs, branch-and-bound nodes without a clock, share of the time left; and
# the message rounds before CP-SAT.
REMAINING_PAIRS, REMAINING_NODES, REMAINING_SHARE, CERTIFY_ROUNDS = 100_000, 1000, 0.5, 200
# Pairs of the first restricted MIP without and with multipliers (capacity rows make it harder); twice as many each
# turn, up to a maximum; its branch-and-bound nodes and its share of the time left.
MIP_PAIRS, MIP_PAIRS_WITH_MULTIPLIERS, MAX_MIP_PAIRS, MIP_NODES, MIP_SHARE = 30_000, 6000, 200_000, 20, 0.6
# Pairs per edge of the first MIP where no clock can end it.
MIP_PAIRS_WITHOUT_CLOCK = 2
# Most turns of MIP, messages and cuts; multipliers that the Lagrangian heuristic tries.
MAX_TURNS, HEURISTIC_STEPS = 8, 40
# Evaluations of the Kelley dual; the second where column generation continues from its multipliers.
KELLEY_STEPS, KELLEY_STEPS_BEFORE_COLUMNS = 40, 16
# Pairs of the linear program that separates cuts; units of work for branch and bound.
CUT_PAIRS, BRANCH_WORK = 60_000, 5e8
# Elites whose peaks above the limit become capacity rows of a MIP from the start.
NEAREST_ELITES = 4


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
    check_arguments(
        problem, starts, start, time_limit=time_limit, gap=gap, processes=processes, seed=seed, nearest=nearest
    )
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
    if not _needs_lns(state.problem):
        return _pass_messages_and_close(state, start, seed)
    with state.operator("root", state.problem.arrays.pairs):
        relaxation = _build_root(state, start)
        assignment = relaxation.pass_messages(FIRST_ROUNDS, 0.0)
        if state.cost is None and not state.is_exhausted:
            MinPeakDual(state).run(60)
    if assignment is None or state.is_exhausted:
        return relaxation.multipliers
    dual = DualAscent(state.problem, relaxation.messages, relaxation.model.lagrangian)
    engine = Engine(state, relaxation, DualLnsHybrid(state, seed, dual), seed)
    engine.run(processes)
    return engine.multipliers


def _pass_messages_and_close(state: SolveState, start: DualWarmStart | None, seed: int) -> Mapping[int, float]:
    """Run message passing, the dual and restricted MIPs until the gap is closed; return the best multipliers."""
    relaxation, assignment = _build_root(state, start).pass_until_stalled(ROOT_ROUNDS, ROOT_STALL)
    limit, multipliers = state.problem.limit, relaxation.multipliers
    if (
        limit is not None
        and assignment is not None
        and (relaxation.multipliers or _is_limit_tight(relaxation, assignment, limit))
    ):
        many = state.problem.arrays.pairs > REMAINING_PAIRS
        if not relaxation.multipliers:
            KelleyDual(state, relaxation, limit).run(
                assignment, KELLEY_STEPS_BEFORE_COLUMNS if many else KELLEY_STEPS, 16
            )
        if state.cost is None and not state.stop_reason:
            MinPeakDual(state).run(60)
            if not state.is_exhausted:
                # An assignment within the limit gives the dual a plane from the other side of the optimum.
                KelleyDual(state, relaxation, limit).run(assignment, KELLEY_STEPS, 16)
        if not state.is_exhausted:
            run_lagrangian_heuristic(state, relaxation, HEURISTIC_STEPS)
        multipliers = relaxation.multipliers
        if not state.is_exhausted and many:
            relaxation, multipliers = ColumnGeneration(state, relaxation, seed).run()
    if not state.is_exhausted:
        relaxation = _close_gap(state, relaxation, seed)
    # Multipliers of cuts have no time step in the caller's problem.
    return multipliers if multipliers or relaxation.has_cuts else relaxation.multipliers


def _is_limit_tight(relaxation: Relaxation, assignment: Integers, limit: int) -> bool:
    """Return whether the limit matters: no incumbent, or the decoded assignment exceeds it."""
    model = relaxation.model
    return model.state.cost is None or exceeds_limit(model.restriction.problem, assignment, limit)


def _needs_lns(problem: Problem) -> bool:
    """Return whether the large-neighbourhood search applies: it needs a limit, and cannot track usage on edges."""
    return problem.limit is not None and not problem.arrays.edge_usage_edge.size


def _build_root(state: SolveState, start: DualWarmStart | None) -> Relaxation:
    """Build the root relaxation with a fixed-point scale that fits the cost of a first incumbent.

    A coarse first relaxation finds that incumbent; the lower the costs to represent, the finer the scale can be.
    """
    degree = OrientedGraph.of(state.problem.arrays).degree
    rough = Relaxation.for_problem(state, FixedPoint.of(degree, state.largest_cost))
    rough.pass_messages(1, 0.0)
    limit = state.problem.limit
    if limit is not None and state.cost is None:
        # A first feasible assignment at any cost: multipliers so high that usage outweighs every cost.
        rough.set_multipliers(dict.fromkeys(range(state.problem.arrays.time_steps), state.largest_cost / max(limit, 1)))
        rough.pass_messages(2, 0.0)
    largest_cost = state.largest_cost if state.cost is None else min(state.largest_cost, 4 * state.cost)
    return Relaxation.for_problem(state, FixedPoint.of(degree, largest_cost), start)


def _close_gap(state: SolveState, relaxation: Relaxation, seed: int) -> Relaxation:
    """Alternate restricted MIPs, message passing and dual steps while they close the gap; branch at the end.

    Returns the relaxation as it then stands, possibly of a smaller problem with cuts.
    """
    limit, time_steps = state.problem.limit, list[int]()
    for turn in range(MAX_TURNS):
        before = state.gap or 1.0
        pairs = _initial_pairs(state, bool(relaxation.multipliers)) << turn
        time_steps, complete = _solve_near_bound(
            state, relaxation, min(pairs, MAX_MIP_PAIRS), time_steps=time_steps, seed=seed
        )
        relaxation.pass_messages(8, 0.0)
        if not state.is_exhausted and not relaxation.is_done and relaxation.is_sparse:
            relaxation = relaxation.compacted()
        assignment = relaxation.pass_messages(200, SMALL_STALL)
        if assignment is None or state.is_exhausted:
            return relaxation
        if limit is None or not relaxation.multipliers:
            run_dive(relaxation, 40)
        elif turn == 0:
            KelleyDual(state, relaxation, limit).run(assignment, 10, 48)
        else:
            flags = select_promising(
                relaxation.model.arrays, relaxation.min_marginals(), relaxation.incumbent_flags(), pairs=CUT_PAIRS
            )
            relaxation, _ = separate_cuts(state, relaxation, flags, time_steps=list(relaxation.multipliers))
        complete |= pairs >= MAX_MIP_PAIRS
        if state.is_exhausted or (turn and complete and (state.gap or 1.0) > 0.8 * before):
            break
    if not state.is_exhausted and relaxation.multipliers:
        _solve_remaining(state, relaxation, seed)
    if not state.is_exhausted:
        run_branch_and_bound(state, relaxation, BRANCH_WORK)
    return relaxation


def _initial_pairs(state: SolveState, has_multipliers: bool) -> int:
    pairs = MIP_PAIRS_WITH_MULTIPLIERS if has_multipliers else MIP_PAIRS
    edges = state.problem.arrays.source.size
    return pairs if state.seconds_left is not None else min(pairs, MIP_PAIRS_WITHOUT_CLOCK * max(edges, 1))


def _solve_near_bound(
    state: SolveState, relaxation: Relaxation, pairs: int, *, time_steps: list[int], seed: int
) -> tuple[list[int], bool]:
    """Solve the MIP of the strategies of the elites nearest to the bound and submit its assignment.

    time_steps: the first capacity rows, to which the peaks of the nearest elites are added. Returns the time steps that
    had a row at the end, and whether all elites were included.
    """
    flags, complete = relaxation.nearest(pairs)
    restriction, limit = relaxation.compacted(flags).model.restriction, state.problem.limit
    if limit is not None:
        near = [
            usage_profile(relaxation.model.restriction.problem, x) - limit
            for x, _ in relaxation.possible_elites(NEAREST_ELITES)
        ]
        time_steps = list(
            dict.fromkeys([*time_steps, *relaxation.multipliers, *(t for over in near for t in find_peaks(over))])
        )
    result = solve_restricted_mip(
        state, restriction, time_steps, share=MIP_SHARE, nodes=MIP_NODES, gap=state.target_gap / 100, seed=seed
    )
    return (time_steps if result is None else result.time_steps), complete


def _solve_remaining(state: SolveState, relaxation: Relaxation, seed: int) -> None:
    """Solve the MIP of everything not excluded, where that is small enough, and prove its answer by CP-SAT."""
    restriction = relaxation.compacted().model.restriction
    if restriction.problem.arrays.pairs > REMAINING_PAIRS:
        return
    nodes = REMAINING_NODES if state.seconds_left is None else None
    result = solve_restricted_mip(
        state,
        restriction,
        list(relaxation.multipliers),
        share=REMAINING_SHARE,
        nodes=nodes,
        gap=state.target_gap / 4,
        seed=seed,
    )
    if result is not None and not state.is_exhausted:
        relaxation.pass_messages(CERTIFY_ROUNDS, SMALL_STALL)
        if not state.is_exhausted and not relaxation.is_done:
            prove_rest(state, relaxation.compacted(), result.time_steps, seed=seed)
