"""The least time, bytes received or memory: the plan found is the best of all programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from planner.choose.communication_volume import VolumeModel
from planner.choose.cost import PICO, CostModel
from planner.choose.formulate import formulate
from planner.choose.hardware import load_profile
from planner.choose.options import list_layouts
from planner.documents.explain import dump_overview, explain_plan
from planner.documents.plans import dump_plan, parse_plan
from planner.errors import InvalidRequest
from planner.ir.basis_moves import list_basis_moves
from planner.ir.collectives import count_received_elements
from planner.ir.graph import Graph, TensorType
from planner.ir.mesh import Mesh
from planner.ir.sharding import Reduction, Shape, Sharding
from planner.judge.analysis import Analysis
from planner.pipeline import plan
from planner.planning.plan_types import Plan, Request
from tests.testing.all_programs import every_program
from tests.testing.graphs import small_transformer
from tests.testing.small_graphs import (
    output_twice,
    partial_sums,
    product_and_relu,
    two_results,
    vectors,
)

Make = Callable[[], Graph]
CASES: list[tuple[Make, str]] = [
    (product_and_relu, "2"),
    (two_results, "2"),
    (vectors, "2"),
    (partial_sums, "2"),
    (output_twice, "2"),
]
IDS = [f"{make.__name__} {mesh}" for make, mesh in CASES]
MOVED = [((8, 8), "4"), ((9, 9), "3"), ((12, 36), "2x3"), ((8, 4, 4), "2x2")]
CPU = load_profile("cpu")


def planned(graph: Graph, mesh: str, objective: Any, limit: int | None = None, **more: Any) -> Plan:
    options = {"gap": 0.0, "objective": objective, "deterministic": True, **more}
    return plan(graph, Mesh.parse(mesh), CPU, request=Request(limit, **options))


@pytest.mark.parametrize(("make", "mesh"), CASES, ids=IDS)
def test_no_program_receives_fewer_bytes(make: Make, mesh: str) -> None:
    tried = list(every_program(make(), formulate(make(), VolumeModel(Mesh.parse(mesh), CPU))))
    peaks = sorted({peak for _, peak in tried})
    for limit in (None, peaks[0], peaks[len(peaks) // 3], peaks[len(peaks) // 2]):
        certificate = planned(make(), mesh, "bytes", limit).certificate
        least = min(received for received, peak in tried if limit is None or peak <= limit)
        assert (certificate.objective_bytes, certificate.bound_bytes) == (least, least)
        assert (certificate.status, certificate.gap, certificate.bound_s) == ("optimal", 0.0, 0.0)
    assert planned(make(), mesh, "bytes", peaks[0] - 1).choice is None


@pytest.mark.parametrize(("make", "mesh"), CASES, ids=IDS)
def test_no_program_needs_less_memory_and_none_that_needs_as_little_is_faster(make: Make, mesh: str) -> None:
    tried = list(every_program(make(), formulate(make(), CostModel(Mesh.parse(mesh), CPU))))
    least = min(peak for _, peak in tried)
    found = planned(make(), mesh, "memory")
    certificate = found.certificate
    assert certificate.objective_bytes == least
    assert found.analysis is not None
    assert found.analysis.peak_bytes <= least
    assert round((certificate.objective_s or 0) / PICO) == min(time for time, peak in tried if peak <= least)
    assert certificate.bound_bytes is not None
    assert certificate.bound_bytes <= least
    assert planned(make(), mesh, "memory", least - 1).choice is None


@pytest.mark.parametrize("limit", [None, 20_000])
def test_each_objective_is_least_in_its_own_measure(limit: int | None) -> None:
    mesh = "4"
    graph = small_transformer(Mesh.parse(mesh))
    time, bytes_, memory = (planned(graph, mesh, what, limit, gap=0.01) for what in ("time", "bytes", "memory"))
    assert time.analysis is not None
    assert bytes_.analysis is not None
    assert memory.analysis is not None
    bound, received = bytes_.certificate.bound_bytes, bytes_.certificate.objective_bytes
    assert bound is not None
    assert received is not None
    assert bound <= time.analysis.collective_bytes
    assert bytes_.analysis.collective_bytes <= received
    assert received == Analysis(bytes_.analysis.program, VolumeModel(Mesh.parse(mesh), CPU)).step_ps
    assert memory.analysis.peak_bytes <= min(time.analysis.peak_bytes, bytes_.analysis.peak_bytes)
    for found in (bytes_, memory):
        assert found.analysis is not None
        assert round((found.certificate.objective_s or 0) / PICO) == found.analysis.step_ps
        assert found.analysis.step_ps * PICO >= time.certificate.bound_s
        assert limit is None or found.analysis.peak_bytes <= limit
    if limit is None:
        still = [named.step_s for named in bytes_.baselines if not named.collective_bytes]
        assert received == 0
        assert bytes_.analysis.step_ps * PICO <= 1.01 * min(still)


@pytest.mark.parametrize(("shape", "mesh"), MOVED)
def test_a_move_is_priced_at_what_every_device_receives_where_shards_are_even(shape: Shape, mesh: str) -> None:
    devices, kind = Mesh.parse(mesh), TensorType(shape, "f32")
    model = VolumeModel(devices, CPU)
    axes = [axis for axis, size in enumerate(devices.shape) if size > 1]
    partial = [Sharding(((),) * len(shape), (axis,), Reduction.SUM) for axis in axes]
    for source in (*list_layouts(kind, devices), *partial):
        for move, _ in list_basis_moves(source, shape, devices):
            assert (
                count_received_elements(move, source, shape, mesh=devices) * 4 == model.move_ps(move, source, kind)
            ).all()


def test_documents_name_the_objective_and_explanations_are_in_time() -> None:
    graph = small_transformer(Mesh.parse("4"))
    for objective in ("bytes", "memory"):
        document = parse_plan(dump_plan(planned(graph, "4", objective, 20_000, gap=0.01)), "plan")
        assert document.request.objective == objective
        least = document.solver.objective_bytes
        assert least is not None
        found = dump_overview(document, 1.0)
        assert (found["objective"], found["step_ps"]) == (objective, round((document.solver.objective_s or 0) / PICO))
        known = explain_plan(document)
        assert known.limit_bytes == (least if objective == "memory" else 20_000)
        assert known.analysis.peak_bytes <= known.limit_bytes


def test_an_unknown_objective_is_named() -> None:
    with pytest.raises(InvalidRequest, match=r"objective.*beauty.*time, bytes, memory"):
        Request(objective="beauty")  # type: ignore[arg-type]
