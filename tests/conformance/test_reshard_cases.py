"""The published resharding cases: every target is reached, and never with fewer bytes than any method must move."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.choose.cost import CostModel
from planner.choose.hardware import load
from planner.choose.reshard import Distances
from planner.documents.graphs import sharding_from
from planner.documents.schemas import ShardingDocument, checked
from planner.model.collectives import Collective, received_elements
from planner.model.graph import TensorType
from planner.model.mesh import Mesh
from planner.model.sharding import Reduction, Sharding
from tests.testing.layout_oracle import agree, assembled, laid_out
from tests.testing.movement import brought
from tests.testing.seeds import of_the_day

CASES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("reshard_cases.json").read_text())["cases"]
# Tables of all pairs are large on more axes: every so many cases there. All go by single ways in benchmarks/reshard.py.
MOST, EVERY = 3, 4
MESHES = sorted({tuple(case["mesh"]) for case in CASES})


@cache
def table(mesh: Mesh, kind: TensorType, reduction: Reduction | None, *also: Sharding) -> Distances:
    return Distances.of(kind, [reduction] if reduction else [], CostModel(mesh, load("h100-sxm")), also)


def chain(source: Sharding, target: Sharding, kind: TensorType, mesh: Mesh) -> list[Collective]:
    """The moves from one to the other; some cases split a dim into more parts than it has elements."""
    reduction = source.reduction if source.partial else None
    crowded = [
        each
        for each in (source, target)
        if any(mesh.group_size(axes) > size for axes, size in zip(each.split_axes, kind.shape, strict=True))
    ]
    return table(mesh, kind, reduction, *crowded).chain(source, target)


@pytest.mark.parametrize("shape", MESHES, ids=[str(list(shape)) for shape in MESHES])
def test_every_case_arrives_and_receives_no_less_than_it_must(
    shape: tuple[int, ...], record_property: Callable[[str, object], None]
) -> None:
    cases = [case for case in CASES if tuple(case["mesh"]) == shape]
    ratios = [run(case) for case in of_the_day(cases[::EVERY] if len(shape) > MOST else cases)]
    record_property("bytes over least", ratios)


def run(case: dict[str, Any]) -> float | None:
    """Bytes received over the least any method must move (None where that is nothing)."""
    mesh = Mesh.parse("x".join(map(str, case["mesh"])))
    kind, random = TensorType(tuple(case["shape"]), case["dtype"]), np.random.default_rng(0)
    source, target = (
        sharding_from(checked(ShardingDocument, case[end], case["name"]), mesh) for end in ("source", "target")
    )
    moves = chain(source, target, kind, mesh)
    whole = random.integers(0, 1 << 20, kind.shape)
    held = laid_out(whole, source, mesh, random)
    got, at, received = brought(held, moves, source, kind.shape, mesh)
    assert at == target, case["name"]
    assert agree(assembled(got, target, kind.shape, mesh), whole), case["name"]
    predicted, at = np.zeros_like(received), source
    for move in moves:
        predicted, at = predicted + received_elements(move, at, kind.shape, mesh), move.target(at)
    assert received.tolist() == predicted.tolist(), case["name"]
    total, least = int(received.sum()) * kind.itemsize, case["min_total_bytes"]
    assert total >= least, case["name"]
    assert int(received.max()) * kind.itemsize >= case["min_device_bytes"], case["name"]
    return total / least if least else None
