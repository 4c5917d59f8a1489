"""The solver's answers equal those of a mixed-integer program over all options, in which reshards are flows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import solvers
from planner.choose.cost import CostModel
from planner.choose.formulate import Formulation, formulate
from planner.choose.hardware import load_profile
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.reshard.resharding_graph import UNREACHABLE
from solvers import evaluate
from tests.testing.graphs import small_transformer
from tests.testing.mip_oracle import FlowProgram, flow_paths, needed
from tests.testing.small_graphs import partial_sums, shared_result, two_results

# What is planned, on which mesh, under which limits in shares of the free optimum's peak.
CASES: dict[str, tuple[Graph, str, tuple[float | None, ...]]] = {
    "partial sums": (partial_sums(), "2x2", (None, 0.9, 0.7)),
    "shared result": (shared_result(), "2x2", (None, 0.9, 0.7)),
    "two results": (two_results(), "2x2", (None, 0.9, 0.7)),
    "transformer": (small_transformer(Mesh.parse("2x2"), seq=8), "2x2", (None,)),
}


def _asked(question: Formulation, limit: int | None) -> Formulation:
    return replace(question, problem=solvers.Problem(question.problem.nodes, question.problem.edges, limit))


@pytest.mark.parametrize("name", CASES)
def test_the_flow_program_over_all_options_agrees(name: str) -> None:
    graph, mesh, shares = CASES[name]
    question = formulate(graph, CostModel(Mesh.parse(mesh), load_profile("cpu")))
    free = solvers.solve(question.problem)
    assert free.assignment is not None
    peak, feasible = evaluate(question.problem, free.assignment).peak, 0
    for share in shares:
        asked = _asked(question, None if share is None else int(share * peak))
        found, (choice, answer) = solvers.solve(asked.problem, time_limit=20), FlowProgram(asked).solve()
        assert answer.is_complete
        assert (found.status == "infeasible") == (choice is None), share
        if choice is not None:
            assert found.cost is not None
            wanted = evaluate(asked.problem, choice)
            assert wanted.feasible
            assert found.bound <= wanted.cost <= found.cost * (1 + 1e-6) + 1, share
            assert found.cost <= wanted.cost * (1 + 2e-6) + 1, share
            feasible += 1
    assert feasible


def test_the_arcs_kept_make_all_distances() -> None:
    question = formulate(CASES["transformer"][0], CostModel(Mesh.parse("2x2"), load_profile("cpu")))
    for table in {id(table): table for table in question.distances.values()}.values():
        time = np.full_like(table.time, UNREACHABLE)
        np.fill_diagonal(time, 0)
        arcs = needed(table.time)
        time[arcs] = table.time[arcs]
        for between in range(len(time)):
            time = np.minimum(time, time[:, between, None] + time[None, between, :])
        reached = table.time < UNREACHABLE
        assert np.array_equal(time[reached], table.time[reached])
        assert len(arcs[0]) < reached.sum()
    assert len(list(flow_paths(question))) == len(question.problem.edges)
