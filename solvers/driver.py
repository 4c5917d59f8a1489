"""solve(): presolve, message passing, prices on memory, then programs, cuts, dives and branching over what is left.

A large problem is searched before (a good choice early, which lets messages exclude more) and after.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from solvers.branch_and_bound import run_branch_and_bound, run_dive
from solvers.build_solution import build_solution
from solvers.column_generation import ColumnGeneration
from solvers.cpsat import prove_bound
from solvers.cut_separation import select_promising, separate_cuts
from solvers.dual_lns import find_min_usage_assignment, run_lns
from solvers.evaluation import usage_profile
from solvers.kelley_dual import KelleyDual, exceeds_limit
from solvers.lagrangian_heuristic import run_lagrangian_heuristic
from solvers.min_peak_dual import MinPeakDual
from solvers.mip import find_peaks
from solvers.oriented_graph import OrientedGraph
from solvers.potentials import FixedPoint
from solvers.presolve import PresolvedProblem, identity_presolve, presolve
from solvers.problem import Problem
from solvers.relaxation import Relaxation
from solvers.restricted_mip import TIME_MARGIN, solve_restricted_mip
from solvers.solution import DualWarmStart, Progress, Solution
from solvers.solve_state import SolveState

Integers = NDArray[np.int64]

ROOT_ROUNDS, ROOT_STALL = 300, 1e-5
SMALL_STALL = 1e-7
# Nodes up to which messages and programs have the clock before the search has what they leave. Where there are more,
# the search begins with this share of it, and of the rest messages and programs have this one.
SMALL_NODES, EARLY_SHARE, MESSAGES_SHARE = 1000, 0.1, 0.75
REMAINING_PAIRS, REMAINING_NODES, REMAINING_SHARE, CERTIFY_ROUNDS = 100_000, 1000, 0.5, 200
# Pairs of a first program (with prices, which make programs harder), twice as many each time, and at most; its nodes.
MIP_PAIRS, MIP_PAIRS_WITH_MULTIPLIERS, MAX_MIP_PAIRS, MIP_NODES = 30_000, 6000, 200_000, 20
# The share of the clock's time left that a restricted program is given.
MIP_SHARE = 0.6
# Pairs an edge of a first program that no clock ends: it does not listen.
MIP_PAIRS_WITHOUT_CLOCK = 2
MAX_TURNS = 8
# Prices tried for choices that fit.
HEURISTIC_STEPS = 40
# Prices tried for the bound, and where linear programs of columns go on from them.
KELLEY_STEPS, KELLEY_STEPS_BEFORE_COLUMNS = 40, 16
# Pairs of a program that looks for cuts.
CUT_PAIRS = 60_000
# Choices whose peaks above the limit a program limits from the start.
NEAREST_CHOICES = 4
BRANCH_WORK = 5e8


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
    """The least-cost choice under the limit, with a proven bound.

    time_limit in seconds of wall clock; a deterministic run turns it into units of work and never looks at the clock
    (without a limit, no run does: all have 60 seconds' worth of work). processes: for the dual of a large problem
    beside its search (2 or more; one in a deterministic run). seed: the mixed-integer solver's and the search's.
    starts: known choices (the answer is never worse than a feasible one of them). cutoff: what costs as much is of no
    interest; the answer ends with reason `CUT_OFF` once it is proven that every choice does. start: prices and messages
    to begin from (`solvers.compute_warm_start`), where presolve leaves the problem as it is. nearest: how many choices
    to return besides.
    """
    state = SolveState(problem, gap, time_limit, deterministic, on_progress, cancelled, cutoff)
    reduced = _presolve(state)
    if reduced is None:
        state.raise_lower_bound(state.largest_cost + 1)
        return build_solution(state, None, {}, nearest=nearest)
    state.rebase(reduced.problem)
    for known in starts:
        lowered = reduced.crush(known)
        if lowered is not None:
            state.submit(lowered)
    if state.cost is None:
        state.submit(find_min_usage_assignment(reduced.problem))
    same = reduced.problem is problem
    processes = processes if state.seconds_left is not None else 1
    multipliers = _improve_incumbent(state, start if same else None, seed, processes=processes)
    solution = build_solution(state, reduced, multipliers, nearest=nearest)
    return replace(solution, multipliers=multipliers) if same else solution


def _improve_incumbent(
    state: SolveState, start: DualWarmStart | None, seed: int, *, processes: int
) -> Mapping[int, float]:
    """Narrow the gap of the ledger's problem by all means; the prices found."""
    problem, multipliers = state.problem, dict[int, float]()
    if not _needs_lns(problem):
        return _pass_messages_and_close(state, start, seed)
    small = problem.arrays.node_start.size - 1 <= SMALL_NODES
    if not small:
        with state.sub_budget(EARLY_SHARE):
            multipliers = run_lns(state, seed, processes)
    if not state.is_exhausted:
        with state.sub_budget(1.0 if small else MESSAGES_SHARE):
            multipliers = dict(_pass_messages_and_close(state, start, seed))
    return multipliers if state.is_exhausted else run_lns(state, seed, processes)


def _pass_messages_and_close(state: SolveState, start: DualWarmStart | None, seed: int) -> Mapping[int, float]:
    """By message passing and programs of few strategies; the prices found."""
    relaxation, assignment = _build_root(state, start).pass_until_stalled(ROOT_ROUNDS, ROOT_STALL)
    limit, multipliers = state.problem.limit, relaxation.multipliers
    if (
        limit is not None
        and assignment is not None
        and (relaxation.multipliers or _is_limit_tight(relaxation, assignment, limit))
    ):
        many = _count_pairs(state.problem) > REMAINING_PAIRS
        if not relaxation.multipliers:
            KelleyDual(state, relaxation, limit).run(
                assignment, KELLEY_STEPS_BEFORE_COLUMNS if many else KELLEY_STEPS, 16
            )
        if state.cost is None and not state.stop_reason:
            MinPeakDual(state).run(60)
            if not state.is_exhausted:
                # What fits tells more about prices than all that does not.
                KelleyDual(state, relaxation, limit).run(assignment, KELLEY_STEPS, 16)
        if not state.is_exhausted:
            run_lagrangian_heuristic(state, relaxation, HEURISTIC_STEPS)
        multipliers = relaxation.multipliers
        if not state.is_exhausted and many:
            relaxation, multipliers = ColumnGeneration(state, relaxation, seed).run()
    if not state.is_exhausted:
        relaxation = _close_gap(state, relaxation, seed)
    return multipliers if multipliers or relaxation.has_cuts else relaxation.multipliers


def _is_limit_tight(relaxation: Relaxation, assignment: Integers, limit: int) -> bool:
    model = relaxation.model
    return model.ledger.cost is None or exceeds_limit(model.restriction.problem, assignment, limit)


def _presolve(state: SolveState) -> PresolvedProblem | None:
    """Usage on edges leaves presolve next to nothing to do, and its time is better spent."""
    if state.problem.arrays.edge_usage_edge.size:
        return identity_presolve(state.problem)
    return presolve(state.problem, stopped=lambda: state.is_exhausted)


def _needs_lns(problem: Problem) -> bool:
    """Is this one for search at the dual's prices (which keep no books of usage on edges)?"""
    return problem.limit is not None and not problem.arrays.edge_usage_edge.size


def _build_root(state: SolveState, start: DualWarmStart | None) -> Relaxation:
    """Scaled by a first guess of the cost: the finer the scale the better."""
    degree = OrientedGraph.of(state.problem.arrays).degree
    rough = Relaxation.for_problem(state, FixedPoint.of(degree, state.largest_cost))
    rough.pass_messages(1, 0.0)
    limit = state.problem.limit
    if limit is not None and state.cost is None:
        # A first feasible choice, at any cost: usage at every moment priced so that it outweighs all else.
        rough.set_multipliers(dict.fromkeys(range(state.problem.arrays.time_steps), state.largest_cost / max(limit, 1)))
        rough.pass_messages(2, 0.0)
    dear = state.largest_cost if state.cost is None else min(state.largest_cost, 4 * state.cost)
    return Relaxation.for_problem(state, FixedPoint.of(degree, dear), start)


def _close_gap(state: SolveState, relaxation: Relaxation, seed: int) -> Relaxation:
    """Shrink and tighten, then look for a better choice, while that narrows the gap; at last branch."""
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
            relaxation = separate_cuts(state, relaxation, flags, time_steps=list(relaxation.multipliers))
        complete |= pairs >= MAX_MIP_PAIRS
        if state.is_exhausted or (turn and complete and (state.gap or 1.0) > 0.8 * before):
            break
    if not state.is_exhausted and relaxation.multipliers:
        _solve_remaining(state, relaxation, seed)
    if not state.is_exhausted:
        run_branch_and_bound(state, relaxation, BRANCH_WORK)
    return relaxation


def _initial_pairs(state: SolveState, priced: bool) -> int:
    pairs = MIP_PAIRS_WITH_MULTIPLIERS if priced else MIP_PAIRS
    edges = state.problem.arrays.source.size
    return pairs if state.seconds_left is not None else min(pairs, MIP_PAIRS_WITHOUT_CLOCK * max(edges, 1))


def _solve_near_bound(
    state: SolveState, relaxation: Relaxation, pairs: int, *, time_steps: list[int], seed: int
) -> tuple[list[int], bool]:
    """Offer the best choice among the strategies of the choices nearest to the bound.

    moments: known to matter; those that the nearest choices overfill may as well. Returned: those that did, and whether
    all choices known were taken in.
    """
    flags, complete = relaxation.nearest(pairs)
    restriction, limit = relaxation.compacted(flags).model.restriction, state.problem.limit
    if limit is not None:
        near = [
            usage_profile(relaxation.model.restriction.problem, x) - limit
            for x, _ in relaxation.possible_choices(NEAREST_CHOICES)
        ]
        time_steps = list(
            dict.fromkeys([*time_steps, *relaxation.multipliers, *(t for over in near for t in find_peaks(over))])
        )
    found = solve_restricted_mip(
        state, restriction, time_steps, share=MIP_SHARE, nodes=MIP_NODES, gap=state.target_gap / 100, seed=seed
    )
    return (time_steps if found is None else found.time_steps), complete


def _count_pairs(problem: Problem) -> int:
    return int((problem.arrays.height * problem.arrays.width).sum())


def _solve_remaining(state: SolveState, relaxation: Relaxation, seed: int) -> None:
    """The mixed-integer program of all that is not excluded, where that is little, and a proof of its answer."""
    restriction = relaxation.compacted().model.restriction
    pairs = _count_pairs(restriction.problem)
    if pairs > REMAINING_PAIRS:
        return
    nodes = REMAINING_NODES if state.seconds_left is None else None
    found = solve_restricted_mip(
        state,
        restriction,
        list(relaxation.multipliers),
        share=REMAINING_SHARE,
        nodes=nodes,
        gap=state.target_gap / 4,
        seed=seed,
    )
    if found is not None and not state.is_exhausted:
        _prove_by_cpsat(state, relaxation, found.time_steps, seed=seed)


def _prove_by_cpsat(state: SolveState, relaxation: Relaxation, time_steps: list[int], *, seed: int) -> None:
    """What message passing cannot exclude below the best cost known is left to exact integer programming."""
    relaxation.pass_messages(CERTIFY_ROUNDS, SMALL_STALL)
    if state.is_exhausted or relaxation.is_done or state.assignment is None:
        return
    restriction = relaxation.compacted().model.restriction
    upper_cutoff, left = state.upper_cutoff, state.seconds_left
    seconds = None if left is None else TIME_MARGIN * left
    found = state.run_in_worker(partial(prove_bound, restriction.problem, time_steps, upper_cutoff, seconds, seed))
    if found is not None:
        bound, assignment = found
        if assignment is not None:
            state.submit(restriction.postsolve(assignment))
        state.raise_lower_bound(min(bound, upper_cutoff))
