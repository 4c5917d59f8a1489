"""Local search changes shardings where the analysis says it pays: faster each time, correct, within the limit."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

import solvers
from planner.choose.cost import CostModel
from planner.choose.formulate import Formulation, formulate
from planner.choose.hardware import load_profile
from planner.ir.mesh import Mesh
from planner.judge.analysis import Analysis
from planner.judge.local_search import LocalSearchResult, improve_locally
from planner.pipeline import write_program
from planner.planning.deadline import Deadline
from planner.planning.last_changes import improve_result
from planner.planning.objectives import ObjectiveResult
from planner.planning.plan_types import Request
from planner.run.validate import validate
from tests.testing.graphs import random_graph
from tests.testing.random_strategies import random_strategies
from tests.testing.seeds import seeds

SEEDS = seeds(6)


def started(seed: int) -> tuple[Formulation, tuple[int, ...]]:
    model = CostModel(Mesh.parse("2x2"), load_profile("h100-sxm"))
    question = formulate(random_graph(seed, 8, (512, 1024)), model)
    return question, random_strategies(question, np.random.default_rng(seed))


def mutated(seed: int, limit: int | None = None) -> tuple[Formulation, LocalSearchResult]:
    question, start = started(seed)
    return question, improve_locally(question, start, write_program, limit=limit)


# conformance 85
@pytest.mark.parametrize("seed", SEEDS)
def test_every_change_pays_and_the_result_stays(seed: int) -> None:
    question, found = mutated(seed)
    assert len(found.steps_ps) > 1
    assert all(after < before for before, after in pairwise(found.steps_ps))
    assert Analysis(found.program, question.model).step_ps == found.steps_ps[-1]
    assert question.decode(found.strategies).options.keys() == {op.id for op in question.graph.ops}
    assert validate(found.program).verdict == "equal"


# conformance 85
def test_no_change_is_left_and_the_solver_is_never_worse() -> None:
    question, found = mutated(0)
    again = improve_locally(question, found.strategies, write_program)
    assert again.steps_ps == found.steps_ps[-1:]
    best = solvers.solve(question.problem, time_limit=20)
    assert best.cost is not None
    assert best.cost <= found.steps_ps[-1]


# conformance 85
def test_no_change_goes_over_the_memory_limit() -> None:
    for seed in SEEDS:
        question, start = started(seed)
        limit = Analysis(write_program(question, question.decode(start)), question.model).peak_bytes
        _, found = mutated(seed, limit)
        assert Analysis(found.program, question.model).peak_bytes <= limit


# conformance 85
@pytest.mark.parametrize("seed", SEEDS)
def test_behind_the_solver_nothing_is_found(seed: int) -> None:
    question, _ = started(seed)
    best = solvers.solve(question.problem, time_limit=20)
    assert best.assignment is not None
    found = improve_locally(question, best.assignment, write_program)
    assert (found.strategies, len(found.steps_ps)) == (best.assignment, 1)


# conformance 85
def test_what_the_solver_did_not_prove_is_improved_and_stays_bounded() -> None:
    question, start = started(0)
    cost = solvers.evaluate(question.problem, start).cost
    best = solvers.solve(question.problem, time_limit=20)
    poor = replace(best, status="feasible", assignment=start, cost=cost, gap=1.0)
    result = ObjectiveResult(question, poor, None, question.decode(start))
    improve = partial(improve_result, request=Request(), write=write_program, limit=80 << 30)
    better = improve(result, deadline=Deadline(None))
    assert better.solution.cost is not None
    assert best.cost is not None
    assert best.cost <= better.solution.cost < cost
    assert better.choice == question.decode(better.solution.assignment or ())
    assert better.solution.gap == pytest.approx((better.solution.cost - best.bound) / better.solution.cost)
    assert improve(better, deadline=Deadline(None)) == better
    assert improve(result, deadline=Deadline(0.0)) == result, "no time is left"
    proven = replace(result, solution=replace(poor, status="optimal"))
    assert improve(proven, deadline=Deadline(None)) is proven
