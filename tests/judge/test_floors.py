"""No plan is faster, or fits in less memory, than the floors say."""

from __future__ import annotations

import pytest

import solvers
from planner.choose.cost import PICO, CostModel
from planner.choose.formulate import formulate
from planner.choose.hardware import load, names
from planner.choose.recompute import candidates
from planner.judge.floors import memory_floor, time_floor_s
from planner.model.graph import Graph
from planner.model.mesh import Mesh
from tests.testing.graphs import random_graph, small_transformer
from tests.testing.random_steps import random_step
from tests.testing.seeds import seeds

GRAPHS: list[Graph] = [*(random_graph(seed, 5) for seed in seeds(8)), small_transformer(Mesh.parse("2x2"), seq=8)]


@pytest.mark.parametrize("mesh", ["2", "2x2", "3x2"])
@pytest.mark.parametrize("number", range(len(GRAPHS)))
def test_the_best_plan_is_no_better_than_the_floors(number: int, mesh: str) -> None:
    graph, devices = GRAPHS[number], Mesh.parse(mesh)
    problem = formulate(graph, CostModel(devices, load("h100-sxm"))).problem
    best = solvers.solve(problem)
    least = solvers.solve(solvers.Problem(problem.nodes, problem.edges, 0))
    assert best.cost is not None
    assert time_floor_s(graph, load("h100-sxm"), devices.devices) <= best.cost * PICO
    assert least.least_limit is not None
    assert 0 < memory_floor(graph, devices.devices, again=False) <= least.least_limit


@pytest.mark.parametrize("seed", seeds(6))
def test_the_memory_floor_holds_where_values_are_made_again(seed: int) -> None:
    graph, mesh = random_step(seed), Mesh.parse("2")
    problem = formulate(graph, CostModel(mesh, load("h100-sxm")), 1, candidates(graph)).problem
    least = solvers.solve(problem, time_limit=5, deterministic=True).least_limit
    assert least is None or memory_floor(graph, 2, again=True) <= least


@pytest.mark.parametrize("name", names())
def test_on_one_device_the_time_floor_is_the_time_of_the_ops(name: str) -> None:
    graph, hardware = GRAPHS[-1], load(name)
    model = CostModel(Mesh.parse("1"), hardware)
    types = graph.types
    alone = sum(
        model.op_ps(op, tuple(types[value] for value in op.inputs), ((),) * len(op.rule.loops)) for op in graph.ops
    )
    assert time_floor_s(graph, hardware, 1) == pytest.approx(alone * PICO, abs=2 * len(graph.ops) * PICO)
