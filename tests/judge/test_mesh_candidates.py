"""Meshes of a number of devices; a mesh that covers another can do all that the other can, at no higher cost."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest

import solvers
from planner.choose.cost import CostModel
from planner.choose.formulate import formulate
from planner.choose.hardware import load_profile
from planner.errors import InvalidMesh, InvalidRequest
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.judge import mesh_candidates
from planner.judge.mesh_candidates import (
    count_meshes,
    devices_per_tier,
    enumerate_candidates,
    enumerate_meshes,
    parse_device_counts,
    refines,
)
from tests.testing.graphs import random_graph, small_transformer
from tests.testing.seeds import seeds

HARDWARE = load_profile("h100-sxm")

COUNTS = [
    ("8", (8,)),
    ("8..512", (8, 16, 32, 64, 128, 256, 512)),
    ("3..20", (3, 6, 12)),
    ("24, 8,16..32", (8, 16, 24, 32)),
]
NOT_COUNTS = ["", "8..", "..8", "16..8", "0", "-8", "8..1e3", "eight", "8,,16", "99999999999"]

# Mesh, mesh of the same hardware (8 devices on the inner link), does the first cover the second?
COVERS = [
    ("2x4", "8", True),
    ("8", "2x4", False),
    ("2x4", "4x2", True),
    ("2x2x2", "4x2", True),
    ("2x2x2", "2x4", True),
    ("2x8", "16", True),
    ("16x2x4", "16x8", True),
    ("2x16x4", "16x2x4", False),
    ("4x2x8", "2x4x8", True),
    ("4x8", "8", True),
    ("4x8", "4", False),
    ("2x4x8", "2x8", True),
    ("8x8", "1", True),
]

GRAPHS: list[Graph] = [*(random_graph(seed, 4) for seed in seeds(6)), small_transformer(Mesh.parse("2x2"), seq=8)]
DEARER = [("2x4", "8"), ("2x2x2", "4x2"), ("2x8", "16"), ("4x2x4", "4x8"), ("4x8", "8")]


@pytest.mark.parametrize(("text", "wanted"), COUNTS)
def test_numbers_of_devices_are_listed_or_doubled(text: str, wanted: tuple[int, ...]) -> None:
    assert parse_device_counts(text) == wanted


@pytest.mark.parametrize("text", NOT_COUNTS)
def test_invalid_numbers_of_devices_are_refused(text: str) -> None:
    with pytest.raises(InvalidMesh, match="numbers of devices"):
        parse_device_counts(text)


def test_more_devices_than_a_mesh_may_have_are_refused_before_any_mesh_is_listed() -> None:
    for text in ("999999937", "735134400", "8..1048577"):
        with pytest.raises(InvalidMesh, match=r"number of devices \(got \d+; wanted at most 1048576\)"):
            parse_device_counts(text)


def test_meshes_beyond_the_limit_are_refused_without_listing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    template = Mesh.parse("?x?x?x?x?x?x?x?")
    assert len(enumerate_candidates(1, 1, [1_048_573], axes=3, template=template)) == 8
    assert len(enumerate_candidates(1, 1, [1_048_573], axes=3, template=template, most=1)) == 1

    def list_nothing(*_arguments: object) -> None:
        pytest.fail("a mesh is listed")

    monkeypatch.setattr(mesh_candidates, "_factorizations", list_nothing)
    # 720720 = 2^4 3^2 5 7 11 13 in eight factors: C(11, 7) C(9, 7) 8^4.
    with pytest.raises(InvalidRequest, match=r"too many meshes \(got 4866048000;"):
        enumerate_candidates(1, 1, [720_720] * 100, axes=3, template=template)


@pytest.mark.parametrize("template", [None, "?x?", "2x?x?x?", "?x?x?x?", "4x2"])
def test_meshes_are_counted_as_they_are_listed(template: str | None) -> None:
    mesh = Mesh.parse(template) if template else None
    for devices, axes in product([*range(1, 40), 64, 72, 720, 997], (1, 2, 3)):
        assert count_meshes(devices, axes, mesh) == len(list(enumerate_meshes(devices, axes, mesh)))


@pytest.mark.parametrize("devices", [1, 2, 7, 12, 16])
def test_every_factorisation_is_listed_once(devices: int) -> None:
    listed = [mesh.shape for mesh in enumerate_meshes(devices, 3)]
    sizes = range(2, devices + 1)
    wanted = {shape for axes in (1, 2, 3) for shape in product(sizes, repeat=axes) if prod(shape) == devices} or {(1,)}
    assert len(listed) == len(set(listed))
    assert set(listed) == wanted


def test_unknown_sizes_of_a_template_are_filled_in() -> None:
    template = Mesh.parse("dp=?,tp=4,pp=?")
    assert [mesh.notation for mesh in enumerate_meshes(16, 3, template)] == [
        "dp=1,tp=4,pp=4",
        "dp=2,tp=4,pp=2",
        "dp=4,tp=4,pp=1",
    ]
    assert not list(enumerate_meshes(6, 3, template))


def test_a_million_candidates_are_refused_before_they_are_listed() -> None:
    with pytest.raises(InvalidRequest, match="too many meshes"):
        enumerate_candidates(100, 8, (2, 4, 8, 16, 32, 64, 128, 256, 512), axes=3)


@pytest.mark.parametrize(("one", "other", "wanted"), COVERS)
def test_a_mesh_covers_those_that_arise_by_joining_its_axes(one: str, other: str, wanted: bool) -> None:
    assert refines(devices_per_tier(Mesh.parse(one), HARDWARE), devices_per_tier(Mesh.parse(other), HARDWARE)) is wanted


@pytest.mark.parametrize("number", range(len(GRAPHS)))
@pytest.mark.parametrize(("one", "other"), DEARER)
def test_no_plan_on_a_mesh_is_cheaper_than_the_best_on_one_that_covers_it(number: int, one: str, other: str) -> None:
    assert refines(*(devices_per_tier(Mesh.parse(text), HARDWARE) for text in (one, other)))
    assert _optimum(GRAPHS[number], one) <= _optimum(GRAPHS[number], other)


def _optimum(graph: Graph, mesh: str) -> int:
    found = solvers.solve(formulate(graph, CostModel(Mesh.parse(mesh), HARDWARE)).problem, gap=0.0)
    assert found.status == "optimal"
    assert found.cost is not None
    return found.cost
