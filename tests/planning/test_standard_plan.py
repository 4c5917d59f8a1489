"""Where no compared layout fits and there is no time for a search, a sparing or a recomputed layout is the plan."""

from __future__ import annotations

import time
from functools import cache
from typing import Literal

import pytest

from planner.choose.cost import CostModel
from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.plans import dump_plan
from planner.documents.schemas import GraphDocument, validate_document
from planner.frontends.zoo import import_zoo
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.judge.analysis import Analysis
from planner.judge.baseline_choice import write_baseline
from planner.judge.peak_estimate import estimate_peak_bytes
from planner.judge.standard_layouts import list_baselines
from planner.pipeline import plan, validate_plan
from planner.planning.deadline import Deadline
from planner.planning.plan_types import Plan, Request
from planner.planning.standard_plan import MARGIN

CPU = load_profile("cpu")


@cache
def step(mesh: str, batch: int = 8) -> Graph:
    """Return a training step that holds more activations than states."""
    written = import_zoo(
        "llama-7b",
        batch=batch,
        seq=32,
        train="adam",
        layers=2,
        width=16,
        heads=2,
        kv_heads=1,
        feed_forward=32,
        vocabulary=24,
    )
    return load_graph(validate_document(GraphDocument, written, "llama"), Mesh.parse(mesh))


def plan_in_no_time(mesh: str, limit: int, recompute: Literal["none", "auto"] = "none", *, batch: int = 8) -> Plan:
    request, ended = Request(limit, time_limit_s=1.0, recompute=recompute), Deadline(1.0, time.monotonic() - 2.0)
    return plan(step(mesh, batch), Mesh.parse(mesh), CPU, request=request, deadline=ended)


def test_where_no_compared_layout_fits_a_sparing_one_is_the_plan() -> None:
    # Eight devices and four sequences: under FSDP two devices each compute the same.
    answer = plan_in_no_time("4x2", 40_000, batch=4)
    assert answer.certificate.status == "feasible"
    assert answer.certificate.reason == "time limit, before the search: fsdp+tp"
    check_run(answer)


@pytest.mark.parametrize("mesh", ["4", "2x2"])
def test_where_nothing_fits_without_recomputation_everything_is_recomputed(mesh: str) -> None:
    assert plan_in_no_time(mesh, 60_000).choice is None
    answer = plan_in_no_time(mesh, 60_000, "auto")
    assert answer.certificate.status == "feasible"
    assert answer.certificate.reason == "time limit, before the search: FSDP, everything recomputed"
    assert dump_plan(answer)["recomputed"]
    check_run(answer)


def test_the_least_that_a_layout_holds_is_a_sufficient_limit_where_none_fits() -> None:
    answer = plan_in_no_time("2x2", 60_000)
    known = answer.certificate
    assert known.least_limit_bytes == min(each.peak_bytes for each in answer.baselines)
    assert 0 < (known.least_limit_bound_bytes or 0) <= known.least_limit_bytes
    assert plan_in_no_time("2x2", known.least_limit_bytes).certificate.status == "feasible"


@pytest.mark.parametrize("mesh", ["4", "2x2", "4x2", "2x2x2"])
def test_the_estimate_of_a_peak_is_near_that_of_the_program(mesh: str) -> None:
    graph, model = step(mesh), CostModel(Mesh.parse(mesh), CPU)
    for layout in list_baselines(graph, model.mesh):
        _, program = write_baseline(graph, model, layout)
        peak = Analysis(program, model).peak_bytes
        assert 1 / MARGIN <= estimate_peak_bytes(graph, model, layout) / peak <= MARGIN, layout.name


def check_run(answer: Plan) -> None:
    """Check that a plan fits its limit, and that its run is equal to the whole graph in numbers, bytes and peak."""
    assert answer.analysis is not None
    assert answer.analysis.peak_bytes <= answer.limit_bytes
    verdict = validate_plan(answer, shrinking="none").verdict
    assert verdict is not None
    assert verdict.verdict == "equal"
    assert verdict.counted_peak_bytes == answer.analysis.peak_bytes


def test_where_a_search_finds_nothing_a_layout_is_the_plan_with_the_bounds_of_the_search() -> None:
    least = plan_in_no_time("4x2", 1, "auto", batch=4).certificate.least_limit_bytes
    asked = Request(least, recompute="auto", time_limit_s=1e-9, deterministic=True)
    answer, again = (plan(step("4x2", 4), Mesh.parse("4x2"), CPU, request=asked) for _ in range(2))
    known, layout = answer.certificate, plan_in_no_time("4x2", least or 0, "auto", batch=4).certificate
    assert known.reason == "work limit, before the search: fsdp+tp, everything recomputed"
    assert known.reproducible
    assert again.choice == answer.choice
    assert known.objective_s == layout.objective_s
    assert known.bound_s >= layout.bound_s
    check_run(answer)
