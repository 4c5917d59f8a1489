"""What an infeasible answer names as a remedy fits when it is asked for."""

from __future__ import annotations

from dataclasses import replace

from planner.choose.hardware import load_profile
from planner.ir.mesh import Mesh
from planner.pipeline import plan
from planner.planning.plan_types import Certificate, Request
from tests.testing.small_steps import trained

CPU = load_profile("cpu")


def certified(mesh: str, limit_bytes: int) -> Certificate:
    asked = Request(memory_limit_bytes=limit_bytes, recompute="auto", gap=0.2)
    return plan(trained(mesh, batch=64, train="sgd"), Mesh.parse(mesh), CPU, request=asked).certificate


def test_more_devices_are_named_where_recomputation_is_not_enough_and_they_fit() -> None:
    limit = (certified("2", 1).least_limit_bound_bytes or 0) - 1
    infeasible = certified("2", limit)
    assert infeasible.status == "infeasible"
    remedy, _, found = infeasible.reason.partition(" fits: a step of ")
    option, mesh = remedy.split(" ")
    assert option == "--mesh"
    assert mesh in ("0=4", "0=8", "0=16")
    assert found.endswith(" per device")
    assert certified(mesh, limit).objective_s is not None


def test_where_nothing_fits_the_answer_says_that_recomputation_would() -> None:
    mesh = Mesh.parse("2")
    graph = trained("2", batch=64, train="sgd")
    limits = {}
    for mode in ("none", "auto"):
        asked = Request(memory_limit_bytes=1, recompute=mode, gap=0.05)
        limits[mode] = plan(graph, mesh, CPU, request=asked).certificate.least_limit_bytes or 0
    assert limits["auto"] < limits["none"]
    between = Request(memory_limit_bytes=(limits["auto"] + limits["none"]) // 2, gap=0.05)
    proven = plan(graph, mesh, CPU, request=between).certificate
    assert proven.status == "infeasible"
    assert proven.reason.startswith("--recompute auto fits: a step of")
    none_fits = plan(graph, mesh, CPU, request=replace(between, memory_limit_bytes=1)).certificate
    assert (none_fits.status, none_fits.reason) == ("infeasible", "gap proven")
