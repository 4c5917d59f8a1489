"""Column generation compared with enumeration, and its usage with that of an assignment."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from solvers import IMPOSSIBLE, Node, Problem, usage_profile
from solvers.column_generation import OVERLOAD_COST, ColumnGeneration, MasterLp
from solvers.dual_ascent import DualAscent
from solvers.dual_lns import DualLnsHybrid
from solvers.mip import LocalPolytope
from solvers.potentials import FixedPoint
from solvers.presolve import presolve
from solvers.relaxation import Relaxation
from solvers.solve_state import SolveState
from tests.testing.random_problems import tiny, with_best
from tests.testing.seeds import seeds
from tests.testing.synthetic_instances import look_alike
from tests.testing.transformer_problems import TWO_BY_FOUR, problem

SEEDS = seeds(24)
# Bytes; the least feasible limit is not far below.
LIMIT = 1_600_000_000


def test_a_choice_as_a_point_of_the_program_uses_what_the_choice_uses() -> None:
    compared = 0
    for seed in SEEDS:
        each = tiny(seed)
        layout, polytope = each.arrays, LocalPolytope(each, 1.0)
        choice = np.random.default_rng(seed).integers(0, np.diff(layout.node_start))
        possible = layout.pair_cost[layout.pair_start + layout.pair(choice)] < IMPOSSIBLE
        if possible.all():
            assert (polytope.usage(polytope._hint(choice)) == usage_profile(each, choice)).all(), seed
            compared += 1
    assert compared


def test_the_program_of_all_strategies_costs_no_more_than_the_best_choice() -> None:
    for seed, each, cost in _limited():
        optimum = MasterLp(each, range(each.arrays.time_steps), cost, has_clock=False)()
        assert optimum is not None, seed
        assert optimum.cost <= cost * (1 + 1e-6) + 1e-6, seed
        assert optimum.violated_steps == [], seed
        assert np.logical_or.reduceat(optimum.support, each.arrays.node_start[:-1]).all(), seed


def test_a_master_whose_strategies_do_not_fit_the_limit_has_multipliers() -> None:
    use = np.array([10])
    nodes = [Node(name, np.array([cost]), use, (0, 1)) for name, cost in (("a", 1), ("b", 2))]
    optimum = MasterLp(Problem(nodes, [], 15), [0], 3, has_clock=False)()
    assert optimum is not None
    assert optimum.cost == pytest.approx(3 + OVERLOAD_COST * 3 * 5 / 15)
    assert optimum.multipliers == pytest.approx({0: OVERLOAD_COST * 3 / 15})


def test_a_run_ends_where_few_pairs_are_left() -> None:
    ledger, relaxation = _tightened(tiny(0), 4)
    columns = ColumnGeneration(ledger, relaxation, 0)
    assert columns.run(relaxation.model.arrays.pairs) is relaxation
    assert "column generation" not in {line.operator for line in ledger.log}


def test_programs_and_messages_never_prove_more_than_the_best_choice_costs() -> None:
    for seed, each, cost in _limited():
        ledger, relaxation = _tightened(each, 4)
        ColumnGeneration(ledger, relaxation, 0).run()
        assert ledger.bound <= cost, seed
        assert ledger.cost is None or ledger.cost >= cost, seed


def test_steps_go_on_where_strategies_were_excluded_between_them() -> None:
    """The support of the last linear program belongs to the solve's problem, not to one restriction of it."""
    for seed, each, cost in _limited():
        ledger, relaxation = _tightened(each, 4)
        columns = ColumnGeneration(ledger, relaxation, 0)
        while columns.can_gain and not ledger.is_exhausted:
            relaxation = columns.step(relaxation)
            if not relaxation.is_done:
                relaxation = relaxation.compacted()
                assert columns.support(relaxation).size == relaxation.allowed.size
        assert ledger.bound <= cost, seed
        assert ledger.cost is None or ledger.cost >= cost, seed


def test_a_postponed_mip_waits_until_it_is_asked_for() -> None:
    layers, steps = problem(1, TWO_BY_FOUR), 0
    ledger, relaxation = _tightened(Problem(layers.nodes, layers.edges, LIMIT), 20)
    columns = ColumnGeneration(ledger, relaxation, 0, postpones=True)
    while columns.postponed is None:
        assert columns.can_gain
        relaxation = columns.step(relaxation)
    assert "MIP of columns" not in {line.operator for line in ledger.log}

    def step_once(has_result: Callable[[], bool]) -> bool:
        nonlocal steps
        steps += 1
        has_result()
        return True

    before = ledger.cost
    columns.solve_postponed(step_once)
    assert steps
    assert columns.postponed is None
    assert "MIP of columns" in {line.operator for line in ledger.log}
    assert ledger.cost is not None
    assert before is None or ledger.cost <= before


def test_near_the_least_limit_column_generation_leaves_a_small_gap() -> None:
    layers = problem(1, TWO_BY_FOUR)
    ledger, relaxation = _tightened(Problem(layers.nodes, layers.edges, LIMIT), 20)
    free = relaxation.bound
    bound = ColumnGeneration(ledger, relaxation, 0).run().bound
    assert ledger.cost is not None
    assert free < 0.98 * bound
    assert ledger.bound <= ledger.cost <= 1.005 * ledger.bound


@pytest.mark.slow
def test_prices_are_of_the_problems_own_moments_where_there_were_cuts() -> None:
    reduced = presolve(look_alike("graph network, untied", seed=0, depth=1))
    assert reduced is not None
    ledger, relaxation = _tightened(reduced.problem, 20, gap=1e-7, seconds=4.0)
    DualLnsHybrid(ledger, DualAscent(relaxation), 0).begin()
    columns = ColumnGeneration(ledger, relaxation, 0)
    relaxation, prices = columns.run(), columns.multipliers
    assert relaxation.has_cuts
    assert prices
    assert max(prices) < reduced.problem.arrays.time_steps


def _limited() -> Iterator[tuple[int, Problem, int]]:
    """Seeds, their problems that have a limit and a choice under it, and what the best choice costs."""
    for seed in SEEDS:
        each, best = with_best(tiny, seed)
        if best is not None and each.limit is not None:
            yield seed, each, best[1].cost


def _tightened(asked: Problem, rounds: int, gap: float = 1e-3, seconds: float = 60.0) -> tuple[SolveState, Relaxation]:
    """Without prices, after so many rounds of messages."""
    ledger = SolveState(asked, gap, seconds, True, None, None)
    relaxation = Relaxation.for_problem(ledger, FixedPoint.of(16, ledger.largest_cost))
    relaxation.pass_messages(rounds, 0.0)
    return ledger, relaxation
