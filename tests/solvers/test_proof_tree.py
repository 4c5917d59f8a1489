"""Proof trees: exact on small problems, whatever the linear programs do, and quick where fractions pack a knapsack."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from solvers import Node, Problem
from solvers.cut_separation import SeparatedCuts
from solvers.evaluation import evaluate
from solvers.lp_bounding import LpBounding
from solvers.oriented_graph import OrientedGraph
from solvers.potentials import FixedPoint
from solvers.proof_tree import ProofTree
from solvers.relaxation import Relaxation
from solvers.solve_state import SolveState
from tests.testing.random_problems import contracting, dear, tiny, tiny_public, with_best
from tests.testing.seeds import seeds

SEEDS = seeds(24, 3000)
# Without linear programs a tree enumerates: seeds and most assignments of problems that are solved so.
FEW_SEEDS, FEW_ASSIGNMENTS = SEEDS[:6], 80
NODES = 14


def tree_of(
    problem: Problem,
    *,
    passes: int = 1,
    multipliers: dict[int, float] | None = None,
    state_of: Callable[..., SolveState] = SolveState,
) -> tuple[SolveState, ProofTree]:
    state = state_of(problem, 0.0, 600.0, True, None, None)
    scale = FixedPoint.of(OrientedGraph.of(problem.arrays).degree, state.largest_cost)
    relaxation = Relaxation.for_problem(state, scale)
    relaxation.set_multipliers(multipliers or {})
    relaxation.pass_messages(passes, 0.0)
    return state, ProofTree(state, relaxation, LpBounding())


def grow(state: SolveState, tree: ProofTree) -> int:
    """Grow the tree until nothing is open; return the number of branches."""
    count = 0
    while tree.can_grow and not state.is_exhausted:
        tree.grow()
        count += 1
    return count


@pytest.mark.parametrize("make", [tiny, tiny_public, contracting, dear])
def test_a_tree_alone_proves_what_the_exhaustive_search_finds(make: Callable[[int], Problem]) -> None:
    """Without an incumbent to start from and without multipliers; `tiny` has usage on edges, some without a limit."""
    for seed in SEEDS:
        problem, wanted = with_best(make, seed)
        state, tree = tree_of(problem)
        grow(state, tree)
        assert state.failures == [], seed
        assert state.is_closed, seed
        if wanted is None:
            assert state.is_infeasible, seed
        else:
            assert (state.cost, state.bound) == (wanted[1].cost, wanted[1].cost), seed


Spoil = Callable[[SeparatedCuts, range, np.random.Generator], SeparatedCuts | None]


def _with_duals(value: float) -> Spoil:
    """Return a failure that leaves this value as every dual."""

    def spoil(cuts: SeparatedCuts, time_steps: range, _: np.random.Generator) -> SeparatedCuts:
        multipliers = dict.fromkeys(time_steps, abs(value))
        spoiled = dict.fromkeys(cuts.cuts, abs(value))
        return replace(cuts, cuts=spoiled, multipliers=multipliers, messages=np.full_like(cuts.messages, value))

    return spoil


def _at_random(cuts: SeparatedCuts, time_steps: range, random: np.random.Generator) -> SeparatedCuts:
    """Leave duals of any size and sign, and a point that is none."""
    messages = random.normal(size=cuts.messages.size) * 10.0 ** random.integers(-9, 300, cuts.messages.size)
    multipliers = {t: float(10.0 ** random.integers(-9, 300)) for t in time_steps}
    return replace(cuts, multipliers=multipliers, messages=messages, point=random.normal(size=cuts.point.size))


# What a linear program that fails numerically may leave: no optimum, no worker, or duals and values that mean nothing.
FAILURES: dict[str, Spoil] = {
    "no optimum": lambda cuts, *_: replace(cuts, point=np.zeros(0)),
    "no worker": lambda *_: None,
    "not a number": _with_duals(np.nan),
    "infinite": _with_duals(np.inf),
    "minus infinity": _with_duals(-np.inf),
    "huge": _with_duals(1e300),
    "zero": _with_duals(0.0),
    "random": _at_random,
}


class _FailingState(SolveState):
    """A state in whose workers linear programs fail, each in the way `spoil` says."""

    spoil: Spoil

    def run_in_worker(self, work: Callable[[], Any], meanwhile: Any = None, on_result: Any = None) -> Any:
        time_steps = range(0 if self.problem.limit is None else self.problem.arrays.time_steps)
        return type(self).spoil(work(), time_steps, np.random.default_rng(len(self.log)))


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("make", [tiny, tiny_public, dear])
def test_linear_programs_that_fail_cost_strength_and_nothing_else(make: Callable[[int], Problem], failure: str) -> None:
    failing = type("_Failing", (_FailingState,), {"spoil": staticmethod(FAILURES[failure])})
    for seed in FEW_SEEDS:
        problem, wanted = with_best(make, seed)
        if np.prod(problem.arrays.counts) > FEW_ASSIGNMENTS:
            continue
        state, tree = tree_of(problem, state_of=failing)
        while tree.can_grow and not state.is_exhausted:
            tree.grow()
            assert wanted is None or state.bound <= wanted[1].cost, seed
        assert state.is_closed, seed
        assert state.cost == (None if wanted is None else wanted[1].cost), seed


def _ill_conditioned(seed: int) -> Problem:
    """Return `tiny_public`'s problem with usages of very different magnitudes, far beyond GLOP's tolerances."""
    problem, random = tiny_public(seed), np.random.default_rng(seed)
    nodes = [replace(node, usage=node.usage * 10 ** random.integers(0, 16, node.usage.size)) for node in problem.nodes]
    return Problem(nodes, problem.edges, None if problem.limit is None else problem.limit * 10 ** int(seed % 16))


def test_linear_programs_beyond_their_tolerances_prove_no_wrong_bound() -> None:
    for seed in FEW_SEEDS:
        problem, wanted = with_best(_ill_conditioned, seed)
        state, tree = tree_of(problem)
        grow(state, tree)
        assert state.is_closed, seed
        assert state.cost == (None if wanted is None else wanted[1].cost), seed


def test_the_bound_of_an_open_tree_is_below_the_optimum() -> None:
    for seed in SEEDS:
        problem, wanted = with_best(tiny_public, seed)
        if wanted is None or problem.limit is None:
            continue
        state, tree = tree_of(problem)
        bounds = [state.bound]
        while tree.can_grow and not state.is_exhausted:
            tree.grow()
            bounds.append(state.bound)
        assert bounds == sorted(bounds), seed
        assert bounds[-1] <= wanted[1].cost, seed


def _odd_knapsack() -> Problem:
    """Return nodes that use two bytes or, for 1000 and their number more, none, and a limit that is odd."""
    nodes = [Node(f"n{i}", np.array([0, 1000 + i]), np.array([2, 0]), (0, 1)) for i in range(NODES)]
    return Problem(nodes, [], NODES - 1)


def test_a_tree_of_a_knapsack_is_small() -> None:
    problem = _odd_knapsack()
    state, tree = tree_of(problem)
    assert grow(state, tree) <= 20
    assert state.cost == state.bound == sum(1000 + i for i in range(NODES - (NODES - 1) // 2))


def _shared_base() -> Problem:
    """Return values that live all the time, and others that each need much memory once."""
    small = [Node(f"weight {i}", np.array([0, 100 + i]), np.array([5, 0]), (0, NODES)) for i in range(20)]
    large = [Node(f"peak {i}", np.array([1, 150 + i]), np.array([45, 0]), (i, i + 1)) for i in range(NODES)]
    return Problem([*small, *large], [], 99)


def test_a_tree_takes_the_assignment_of_an_integral_linear_program() -> None:
    state, tree = tree_of(_shared_base())
    assert grow(state, tree) == 1
    # Either ten weights give way, or all peaks and one weight.
    assert (
        state.cost
        == state.bound
        == min(sum(100 + i for i in range(10)) + NODES, 100 + sum(150 + i for i in range(NODES)))
    )


def _uneven_base() -> Problem:
    """Return the same with random costs and usages, of which linear programs pack fractions, cuts or not."""
    random = np.random.default_rng(2)
    small = [
        Node(f"weight {i}", np.array([0, random.integers(200, 400)]), np.array([random.integers(20, 60), 0]), (0, 10))
        for i in range(30)
    ]
    large = [
        Node(f"peak {i}", np.array([1, random.integers(100, 900)]), np.array([520, 0]), (i, i + 1)) for i in range(10)
    ]
    return Problem([*small, *large], [], sum(int(node.usage[0]) for node in small))


def _too_large(count: int) -> Problem:
    """Return nodes of which even fractions use a byte more than the limit, so that linear programs have no optimum."""
    nodes = [Node(f"n{i}", np.array([0, 1000 + i]), np.array([2, 1]), (0, 1)) for i in range(count)]
    return Problem(nodes, [], count - 1)


def test_a_branch_whose_linear_program_has_no_optimum_is_closed_by_raising_its_multipliers() -> None:
    state, tree = tree_of(_too_large(NODES), multipliers={0: 500.0})
    assert not state.is_closed
    assert grow(state, tree) == 1
    assert state.is_infeasible


def test_a_tree_without_linear_programs_or_multipliers_enumerates() -> None:
    state, tree = tree_of(_too_large(4))
    assert grow(state, tree) == 2**5 - 1
    assert state.is_infeasible
    assert state.failures == []


def test_a_tree_keeps_its_bound_where_the_time_is_up() -> None:
    problem = _uneven_base()
    state, tree = tree_of(problem)
    before, state.stop_reason = state.bound, "time limit"
    tree.grow()
    assert tree.can_grow
    assert state.bound >= before
    state.stop_reason = ""
    grow(state, tree)
    assert state.assignment is not None
    assert state.bound == evaluate(problem, state.assignment).cost


def test_a_tree_with_too_many_open_branches_does_not_grow() -> None:
    _, tree = tree_of(_odd_knapsack())
    tree._bytes = LpBounding.max_bytes
    assert not tree.can_grow
