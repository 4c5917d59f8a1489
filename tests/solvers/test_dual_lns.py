"""Large neighbourhood search: valid, reproducible by steps, quick to stop, with or without a thread for the dual."""

from __future__ import annotations

import threading
import time

import numpy as np

from solvers import Problem, evaluate
from solvers.dual_ascent import DualAscent
from solvers.dual_lns import DualLnsHybrid, find_min_usage_assignment
from solvers.solve_state import SolveState
from tests.testing.random_problems import contracting, tiny_public, with_best
from tests.testing.root_duals import root_of
from tests.testing.solver_instances import layered


def _improved(problem: Problem, seconds: float, processes: int) -> SolveState:
    ledger = SolveState(problem, 1e-6, seconds, processes == 1, None, None)
    DualLnsHybrid(ledger, DualAscent(root_of(ledger)), 1).run(processes)
    return ledger


def test_answers_on_tiny_problems_are_optimal_and_bounds_below() -> None:
    for make in (tiny_public, contracting):
        for seed in range(15):
            problem, wanted = with_best(make, seed)
            ledger = _improved(problem, 0.2, 1)
            assert ledger.cost == (None if wanted is None else wanted[1].cost), (make.__name__, seed)
            assert wanted is None or ledger.bound <= wanted[1].cost, (make.__name__, seed)


def test_alternating_by_steps_gives_the_same_bytes_twice() -> None:
    problem = layered(seed=3, layers=6, width=12)
    first, again = (_improved(problem, 0.5, 1) for _ in range(2))
    assert first.reproducible
    assert first.assignment is not None
    assert again.assignment is not None
    assert (first.assignment.tobytes(), first.bound) == (again.assignment.tobytes(), again.bound)


def test_a_thread_for_the_dual_finds_a_feasible_choice_and_a_bound_below_it() -> None:
    problem = layered(seed=4, layers=6, width=12)
    ledger = _improved(problem, 2.0, 2)
    assert ledger.assignment is not None
    found = evaluate(problem, ledger.assignment)
    assert found.feasible
    assert 0 < ledger.bound <= found.cost == ledger.cost
    assert not ledger.reproducible


def test_cancelling_ends_both_workers() -> None:
    stop = threading.Event()
    problem = layered(seed=5, layers=10, width=20)
    ledger = SolveState(problem, 0.0, 60.0, False, lambda _: stop.set(), stop.is_set)
    before = threading.active_count()
    DualLnsHybrid(ledger, DualAscent(root_of(ledger)), 0).run(2)
    time.sleep(0.2)
    assert ledger.stop_reason in ("cancelled", "")
    assert threading.active_count() == before


def test_a_choice_known_before_is_never_lost() -> None:
    problem, wanted = with_best(tiny_public, 3)
    assert wanted is not None
    ledger = SolveState(problem, 0.0, 0.05, True, None, None)
    ledger.submit(np.array(wanted[0]))
    DualLnsHybrid(ledger, DualAscent(root_of(ledger)), 0).run(1)
    assert ledger.cost == wanted[1].cost


def test_of_no_nodes_the_frugal_choice_is_empty() -> None:
    assert find_min_usage_assignment(Problem([], [], 5)).size == 0
