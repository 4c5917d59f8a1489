"""Every TRW-S pass gives a proof, whatever the messages, multipliers, rounding and removed strategies."""

from __future__ import annotations

import numpy as np
import pytest

from solvers import Edge, Node, Problem, evaluate
from solvers.linear_model import IncrementalLp, LinearModel
from solvers.oriented_graph import OrientedGraph
from solvers.potentials import FixedPoint, LagrangianCosts, Potentials
from solvers.restriction import Restriction
from solvers.trws import TrwsMessages
from tests.testing.random_problems import tiny, with_best
from tests.testing.seeds import at_least, seeds

SEEDS = seeds(300)


def _passes(problem: Problem, seed: int) -> list[tuple[Potentials, int, np.ndarray]]:
    rng = np.random.default_rng(seed)
    topology = OrientedGraph.of(problem.arrays)
    scale = FixedPoint.of(topology.degree, int(rng.choice([1, 10**6, 10**13])))
    prices = {m: float(rng.random() * 10.0 ** int(rng.integers(-3, 6))) for m in range(problem.arrays.time_steps)}
    potentials = LagrangianCosts(topology, scale).with_multipliers(
        prices if problem.limit is not None else {}, problem.limit or 0
    )
    messages = TrwsMessages(topology, rng.integers(0, scale.cap, topology.classes_of.size))
    found = []
    for step in range(6):
        scaled = messages.sweep(potentials, step % 2 == 0, 1 + step % 3)
        found.append((potentials, scaled, messages.reduced_costs.copy()))
    return found


def test_a_pass_over_any_messages_at_any_prices_bounds_the_optimum() -> None:
    feasible = 0
    for seed in SEEDS:
        problem, wanted = with_best(tiny, seed)
        if wanted is not None:
            feasible += 1
            for potentials, scaled, _ in _passes(problem, seed):
                assert potentials.bound(scaled) <= wanted[1].cost, seed
    assert feasible > at_least(1 / 2, len(SEEDS))


def test_the_remainder_of_a_strategy_bounds_every_choice_that_takes_it() -> None:
    feasible = 0
    for seed in SEEDS:
        problem, wanted = with_best(tiny, seed)
        if wanted is not None:
            feasible += 1
            at = problem.arrays.node_start[:-1] + np.array(wanted[0])
            for potentials, scaled, slack in _passes(problem, seed):
                assert potentials.bound(scaled + int(slack[at].max())) <= wanted[1].cost, seed
    assert feasible > at_least(1 / 2, len(SEEDS))


def test_a_long_tree_is_solved_to_the_unit() -> None:
    rng = np.random.default_rng(1)
    nodes = [Node(f"n{i}", rng.integers(0, 10**12, 5), np.zeros(5, np.int64), (0, 0)) for i in range(50)]
    classes = np.arange(5, dtype=np.int32)
    edges = [Edge(i - 1 - i % 2, i, classes, classes, rng.integers(0, 10**12, (5, 5))) for i in range(1, 50) if i > 1]
    problem = Problem(nodes, edges)
    topology = OrientedGraph.of(problem.arrays)
    potentials = LagrangianCosts(topology, FixedPoint.of(topology.degree, 10**14)).with_multipliers({})
    messages = TrwsMessages(topology)
    bound = 0
    for _ in range(60):
        messages.sweep(potentials, True)
        bound = potentials.bound(messages.sweep(potentials, False))
    assert evaluate(problem, messages.decode(potentials)).cost == bound


def test_a_restriction_keeps_what_its_choices_cost() -> None:
    for seed in SEEDS:
        problem, rng = tiny(seed), np.random.default_rng(seed)
        starts = problem.arrays.node_start
        allowed = rng.random(int(starts[-1])) < 0.5
        allowed[starts[:-1]] = True
        narrowed = Restriction.identity(problem).restricted_to(allowed)
        choice = rng.integers(narrowed.problem.arrays.counts)
        lifted = narrowed.postsolve(choice)
        assert evaluate(narrowed.problem, choice) == evaluate(problem, lifted), seed
        lowered = narrowed.crush(lifted)
        assert lowered is not None
        assert np.array_equal(lowered, choice), seed


def test_a_program_finds_the_known_optimum() -> None:
    program = LinearModel()
    columns = program.add_columns(np.array([-1.0, -1.0]), 10.0, integer=True)
    rows = program.add_rows(np.array([-np.inf]), np.array([5.0]))
    program.add_entries(np.repeat(rows, 2), columns, np.array([2.0, 2.0]))
    whole, relaxed = program.solve(None, seconds=None, nodes=None, gap=1e-9, seed=0), IncrementalLp(program).solve()
    assert whole.values is not None
    assert relaxed is not None
    assert (whole.values.sum(), relaxed.values.sum()) == pytest.approx((2.0, 2.5))
