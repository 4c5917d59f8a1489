"""No plan is faster, or fits in less memory, than the roofline bounds say."""

from __future__ import annotations

import pytest

import solvers
from planner.choose.cost import PICO, CostModel
from planner.choose.formulate import formulate
from planner.choose.hardware import list_profiles, load_profile
from planner.choose.rematerialization import find_recomputable_ops
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.judge.roofline_bounds import min_memory_bytes, min_step_s
from tests.testing.graphs import random_graph, small_transformer
from tests.testing.random_steps import random_step
from tests.testing.seeds import seeds

GRAPHS: list[Graph] = [*(random_graph(seed, 5) for seed in seeds(8)), small_transformer(Mesh.parse("2x2"), seq=8)]


@pytest.mark.parametrize("mesh", ["2", "2x2", "3x2"])
@pytest.mark.parametrize("number", range(len(GRAPHS)))
def test_the_best_plan_is_no_better_than_the_roofline_bounds(number: int, mesh: str) -> None:
    graph, devices = GRAPHS[number], Mesh.parse(mesh)
    problem = formulate(graph, CostModel(devices, load_profile("h100-sxm"))).problem
    best = solvers.solve(problem)
    least = solvers.solve(solvers.Problem(problem.nodes, problem.edges, 0))
    assert best.cost is not None
    assert min_step_s(graph, load_profile("h100-sxm"), devices.devices) <= best.cost * PICO
    assert least.min_feasible_limit is not None
    assert 0 < min_memory_bytes(graph, devices.devices, recompute=False) <= least.min_feasible_limit


@pytest.mark.parametrize("seed", seeds(6))
def test_the_memory_bound_holds_with_recomputation(seed: int) -> None:
    graph, mesh = random_step(seed), Mesh.parse("2")
    problem = formulate(graph, CostModel(mesh, load_profile("h100-sxm")), 1, late=find_recomputable_ops(graph)).problem
    least = solvers.solve(problem, time_limit=5, deterministic=True).min_feasible_limit
    assert least is None or min_memory_bytes(graph, 2, recompute=True) <= least


@pytest.mark.parametrize("name", list_profiles())
def test_on_one_device_the_time_bound_is_the_time_of_the_ops(name: str) -> None:
    graph, hardware = GRAPHS[-1], load_profile(name)
    model = CostModel(Mesh.parse("1"), hardware)
    types = graph.types
    alone = sum(
        model.op_ps(op, tuple(types[value] for value in op.inputs), ((),) * len(op.rule.loops)) for op in graph.ops
    )
    assert min_step_s(graph, hardware, 1) == pytest.approx(alone * PICO, abs=2 * len(graph.ops) * PICO)
