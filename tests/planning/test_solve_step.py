"""A search without the figures of standard layouts, as capacity makes for every candidate."""

from __future__ import annotations

import pytest

from planner.choose.cost import PICO, CostModel
from planner.choose.hardware import load_profile
from planner.ir.mesh import Mesh
from planner.pipeline import plan, solve_step
from planner.planning.deadline import Deadline
from planner.planning.plan_types import Request
from tests.testing.small_steps import trained

CPU = load_profile("cpu")


@pytest.mark.parametrize("seconds", [1e-9, 60.0])
def test_a_search_without_figures_falls_back_on_the_layout_that_a_plan_does(seconds: float) -> None:
    graph, model = trained("2x2x2"), CostModel(Mesh.parse("2x2x2"), CPU)
    found = solve_step(graph, model, Request(time_limit_s=seconds, gap=0.05))
    layout = plan(graph, model.mesh, CPU, request=Request(time_limit_s=1.0), deadline=Deadline(0.0))
    assert found.analysis is not None
    assert found.certificate.objective_s == found.analysis.step_ps * PICO
    if seconds < 1:
        assert found.choice == layout.choice
        assert found.certificate.reason == layout.certificate.reason == "time limit, before the search: FSDP"
    else:
        assert (found.certificate.objective_s or 0.0) < (layout.certificate.objective_s or 0.0)
