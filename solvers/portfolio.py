"""solve(): presolve, message passing, prices on memory, then programs, cuts, dives and branching over what is left.

A large problem is searched before (a good choice early, which lets messages exclude more) and after.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from solvers.bound import PriceSearch, overfills
from solvers.certificate import proven_bound
from solvers.columns import Columns
from solvers.cutting import cut, likely
from solvers.evaluation import usage_profile
from solvers.haggling import haggle
from solvers.ilp import peaks
from solvers.large import frugal, improve
from solvers.ledger import Ledger
from solvers.narrow import PUNCTUAL, solved
from solvers.peak import PeakSearch
from solvers.potentials import Scale
from solvers.presolve import Reduced, presolve, untouched
from solvers.problem import Problem
from solvers.relaxation import Relaxation
from solvers.search import branch, dive
from solvers.solution import CUT_OFF, Progress, Solution, Start, Status
from solvers.topology import Topology

Integers = NDArray[np.int64]

ROOT_ROUNDS, ROOT_STALL = 300, 1e-5
SMALL_STALL = 1e-7
# Nodes up to which messages and programs have the clock before the search has what they leave. Where there are more,
# the search begins with this share of it, and of the rest messages and programs have this one.
SMALL, EARLY, SHARE = 1000, 0.1, 0.75
WHOLE_PAIRS, WHOLE_NODES, WHOLE_SHARE, CERTIFY_ROUNDS = 100_000, 1000, 0.5, 200
# Pairs of a first program (with prices, which make programs harder), twice as many each time, and at most; its nodes.
PROGRAM_PAIRS, PRICED_PAIRS, MOST_PAIRS, PROGRAM_NODES = 30_000, 6000, 200_000, 20
# The share of the clock's time left that a restricted program is given.
PROGRAM_SHARE = 0.6
# Pairs an edge of a first program that no clock ends: it does not listen.
UNTIMED_PAIRS = 2
TURNS = 8
# Prices tried for choices that fit.
HAGGLING = 40
# Prices tried for the bound, and where linear programs of columns go on from them.
PRICES, FIRST_PRICES = 40, 16
# Pairs of a program that looks for cuts.
CUT_PAIRS = 60_000
# Choices whose peaks above the limit a program limits from the start.
NEAREST = 4
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
    start: Start | None = None,
    nearest: int = 0,
    on_progress: Callable[[Progress], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> Solution:
    """The least-cost choice under the limit, with a proven bound.

    time_limit in seconds of wall clock; a deterministic run turns it into units of work and never looks at the
    clock (without a limit, no run does: all have 60 seconds' worth of work). processes: for the dual of a large problem
    beside its search (2 or more; one in a deterministic run). seed: the mixed-integer solver's and the search's.
    starts: known choices (the answer is never worse than a feasible one of them). cutoff: what costs as much is of no
    interest; the answer ends with reason `CUT_OFF` once it is proven that every choice does. start: prices and
    messages to begin from (`solvers.converged`), where presolve leaves the problem as it is. nearest: how many choices
    to return besides.
    """
    ledger = Ledger(problem, gap, time_limit, deterministic, on_progress, cancelled, cutoff)
    reduced = _reduced(ledger)
    if reduced is None:
        ledger.prove(ledger.largest_cost + 1)
        return _solution(ledger, None, {}, nearest)
    ledger.turn_to(reduced.problem)
    for known in starts:
        lowered = reduced.lower(known)
        if lowered is not None:
            ledger.offer(lowered)
    if ledger.cost is None:
        ledger.offer(frugal(reduced.problem))
    same = reduced.problem is problem
    processes = processes if ledger.seconds_left is not None else 1
    prices = _improved(ledger, start if same else None, seed, processes)
    solution = _solution(ledger, reduced, prices, nearest)
    return replace(solution, prices=prices) if same else solution


def _improved(ledger: Ledger, start: Start | None, seed: int, processes: int) -> Mapping[int, float]:
    """Narrow the gap of the ledger's problem by all means; the prices found."""
    problem, prices = ledger.problem, dict[int, float]()
    if not _searched(problem):
        return _by_messages(ledger, start, seed)
    small = problem.layout.node_start.size - 1 <= SMALL
    if not small:
        with ledger.within(EARLY):
            prices = improve(ledger, seed, processes)
    if not ledger.exhausted:
        with ledger.within(1.0 if small else SHARE):
            prices = dict(_by_messages(ledger, start, seed))
    return prices if ledger.exhausted else improve(ledger, seed, processes)


def _by_messages(ledger: Ledger, start: Start | None, seed: int) -> Mapping[int, float]:
    """By message passing and programs of few strategies; the prices found."""
    relaxation, choice = _root(ledger, start).tightened(ROOT_ROUNDS, ROOT_STALL)
    limit, prices = ledger.problem.limit, relaxation.prices
    if limit is not None and choice is not None and (relaxation.prices or _tight(relaxation, choice, limit)):
        many = _pairs(ledger.problem) > WHOLE_PAIRS
        if not relaxation.prices:
            PriceSearch(ledger, relaxation, limit).run(choice, FIRST_PRICES if many else PRICES, 16)
        if ledger.cost is None and not ledger.stop_reason:
            PeakSearch(ledger).run(60)
            if not ledger.exhausted:
                # What fits tells more about prices than all that does not.
                PriceSearch(ledger, relaxation, limit).run(choice, PRICES, 16)
        if not ledger.exhausted:
            haggle(ledger, relaxation, HAGGLING)
        prices = relaxation.prices
        if not ledger.exhausted and many:
            relaxation, prices = Columns(ledger, relaxation, seed).run()
    if not ledger.exhausted:
        relaxation = _close(ledger, relaxation, seed)
    return prices if prices or relaxation.cut else relaxation.prices


def _tight(relaxation: Relaxation, choice: Integers, limit: int) -> bool:
    field = relaxation.field
    return field.ledger.cost is None or overfills(field.restricted.problem, choice, limit)


def _reduced(ledger: Ledger) -> Reduced | None:
    """Usage on edges leaves presolve next to nothing to do, and its time is better spent."""
    if ledger.problem.layout.edge_usage_edge.size:
        return untouched(ledger.problem)
    return presolve(ledger.problem, stopped=lambda: ledger.exhausted)


def _searched(problem: Problem) -> bool:
    """Is this one for search at the dual's prices (which keep no books of usage on edges)?"""
    return problem.limit is not None and not problem.layout.edge_usage_edge.size


def _root(ledger: Ledger, start: Start | None) -> Relaxation:
    """Scaled by a first guess of the cost: the finer the scale the better."""
    degree = Topology.of(ledger.problem.layout).degree
    rough = Relaxation.over(ledger, Scale.of(degree, ledger.largest_cost))
    rough.tighten(1, 0.0)
    limit = ledger.problem.limit
    if limit is not None and ledger.cost is None:
        # A first feasible choice, at any cost: usage at every moment priced so that it outweighs all else.
        rough.at(dict.fromkeys(range(ledger.problem.layout.moments), ledger.largest_cost / max(limit, 1)))
        rough.tighten(2, 0.0)
    dear = ledger.largest_cost if ledger.cost is None else min(ledger.largest_cost, 4 * ledger.cost)
    return Relaxation.over(ledger, Scale.of(degree, dear), start)


def _close(ledger: Ledger, relaxation: Relaxation, seed: int) -> Relaxation:
    """Shrink and tighten, then look for a better choice, while that narrows the gap; at last branch."""
    limit, moments = ledger.problem.limit, list[int]()
    for turn in range(TURNS):
        before = ledger.gap or 1.0
        pairs = _first_pairs(ledger, bool(relaxation.prices)) << turn
        moments, complete = _program(ledger, relaxation, min(pairs, MOST_PAIRS), moments, seed)
        relaxation.tighten(8, 0.0)
        if not ledger.exhausted and not relaxation.done and relaxation.sparse:
            relaxation = relaxation.shrunk()
        choice = relaxation.tighten(200, SMALL_STALL)
        if choice is None or ledger.exhausted:
            return relaxation
        if limit is None or not relaxation.prices:
            dive(relaxation, 40)
        elif turn == 0:
            PriceSearch(ledger, relaxation, limit).run(choice, 10, 48)
        else:
            flags = likely(relaxation.field.layout, relaxation.marginal(), relaxation.best(), CUT_PAIRS)
            relaxation = cut(ledger, relaxation, flags, list(relaxation.prices))
        complete |= pairs >= MOST_PAIRS
        if ledger.exhausted or (turn and complete and (ledger.gap or 1.0) > 0.8 * before):
            break
    if not ledger.exhausted and relaxation.prices:
        _whole(ledger, relaxation, seed)
    if not ledger.exhausted:
        branch(ledger, relaxation, BRANCH_WORK)
    return relaxation


def _first_pairs(ledger: Ledger, priced: bool) -> int:
    pairs = PRICED_PAIRS if priced else PROGRAM_PAIRS
    edges = ledger.problem.layout.source.size
    return pairs if ledger.seconds_left is not None else min(pairs, UNTIMED_PAIRS * max(edges, 1))


def _program(
    ledger: Ledger, relaxation: Relaxation, pairs: int, moments: list[int], seed: int
) -> tuple[list[int], bool]:
    """Offer the best choice among the strategies of the choices nearest to the bound.

    moments: known to matter; those that the nearest choices overfill may as well. Returned: those that did, and whether
    all choices known were taken in.
    """
    flags, complete = relaxation.nearest(pairs)
    narrow, limit = relaxation.shrunk(flags).field.restricted, ledger.problem.limit
    if limit is not None:
        near = [usage_profile(relaxation.field.restricted.problem, x) - limit for x, _ in relaxation.known(NEAREST)]
        moments = list(dict.fromkeys([*moments, *relaxation.prices, *(t for over in near for t in peaks(over))]))
    found = solved(ledger, narrow, moments, PROGRAM_SHARE, PROGRAM_NODES, ledger.gap_asked / 100, seed)
    return (moments if found is None else found.moments), complete


def _pairs(problem: Problem) -> int:
    return int((problem.layout.height * problem.layout.width).sum())


def _whole(ledger: Ledger, relaxation: Relaxation, seed: int) -> None:
    """The mixed-integer program of all that is not excluded, where that is little, and a proof of its answer."""
    narrow = relaxation.shrunk().field.restricted
    pairs = _pairs(narrow.problem)
    if pairs > WHOLE_PAIRS:
        return
    nodes = WHOLE_NODES if ledger.seconds_left is None else None
    found = solved(ledger, narrow, list(relaxation.prices), WHOLE_SHARE, nodes, ledger.gap_asked / 4, seed)
    if found is not None and not ledger.exhausted:
        _certify(ledger, relaxation, found.moments, seed)


def _certify(ledger: Ledger, relaxation: Relaxation, moments: list[int], seed: int) -> None:
    """What message passing cannot exclude below the best cost known is left to exact integer programming."""
    relaxation.tighten(CERTIFY_ROUNDS, SMALL_STALL)
    if ledger.exhausted or relaxation.done or ledger.choice is None:
        return
    narrow = relaxation.shrunk().field.restricted
    ceiling, left = ledger.ceiling, ledger.seconds_left
    seconds = None if left is None else PUNCTUAL * left
    found = ledger.beside(partial(proven_bound, narrow.problem, moments, ceiling, seconds, seed))
    if found is not None:
        bound, choice = found
        if choice is not None:
            ledger.offer(narrow.lift(choice))
        ledger.prove(min(bound, ceiling))


def _solution(ledger: Ledger, reduced: Reduced | None, prices: Mapping[int, float], nearest: int) -> Solution:
    status: Status = "unknown"
    if ledger.choice is not None:
        status = "optimal" if ledger.optimal else "feasible"
    elif ledger.impossible:
        status = "infeasible"
    return Solution(
        status=status,
        choice=_lifted(ledger.choice, reduced),
        cost=ledger.cost,
        bound=ledger.bound,
        gap=ledger.gap,
        wall_s=ledger.elapsed_s,
        reason=_reason(ledger),
        memory_price=float(sum(prices.values())),
        least_limit=ledger.least_peak if status == "infeasible" else None,
        least_limit_bound=ledger.least_limit_bound if status == "infeasible" else None,
        reproducible=ledger.reproducible,
        leanest=_lifted(ledger.leanest, reduced) if status == "infeasible" else None,
        nearest=tuple(filter(None, (_lifted(choice, reduced) for choice in ledger.nearest(prices, nearest)))),
    )


def _reason(ledger: Ledger) -> str:
    if ledger.impossible or ledger.optimal:
        return ledger.stop_reason or "gap proven"
    return CUT_OFF if ledger.cut_off else ledger.stop_reason or "methods exhausted"


def _lifted(choice: Integers | None, reduced: Reduced | None) -> tuple[int, ...] | None:
    lifted = choice if choice is None or reduced is None else reduced.lift(choice)
    return None if lifted is None else tuple(lifted.tolist())
