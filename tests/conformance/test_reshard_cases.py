"""Published resharding cases: each target is reached, with no fewer bytes than any method must move."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.choose.axis_units import AxisUnits
from planner.choose.cost import CostModel
from planner.choose.hardware import load_profile
from planner.documents.graphs import load_sharding
from planner.documents.schemas import ShardingDocument, validate_document
from planner.ir.collectives import Collective, count_received_elements
from planner.ir.graph import TensorType
from planner.ir.mesh import Mesh
from planner.ir.sharding import Reduction, Sharding
from planner.reshard.all_pairs import AllPairsResharding
from planner.reshard.cheapest_path import find_cheapest_path
from tests.testing.collective_chains import apply_chain
from tests.testing.layout_oracle import agree, shard_array, unshard_array
from tests.testing.seeds import of_the_day

CASES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("reshard_cases.json").read_text())["cases"]
# Tables of all pairs are large on more axes: every so many cases there. All go by single ways in benchmarks/reshard.py.
MOST, EVERY = 3, 4
MESHES = sorted({tuple(case["mesh"]) for case in CASES})


@cache
def table(mesh: Mesh, kind: TensorType, reduction: Reduction | None, *also: Sharding) -> AllPairsResharding:
    return AllPairsResharding.of(
        kind, [reduction] if reduction else [], CostModel(mesh, load_profile("h100-sxm")), also
    )


def chain(source: Sharding, target: Sharding, kind: TensorType, mesh: Mesh) -> list[Collective]:
    """The moves from one to the other. Some cases split a dim into more parts than it has elements; on many axes some
    have those of a dim in an order that tables leave out, and go by a single way."""
    reduction = source.reduction if source.partial else None
    crowded = [
        each
        for each in (source, target)
        if any(mesh.group_size(axes) > size for axes, size in zip(each.split_axes, kind.shape, strict=True))
    ]
    known = table(mesh, kind, reduction, *crowded)
    if {source, target} <= known.index.keys() or AxisUnits.of(mesh).any_order:
        return known.shortest_path(source, target)
    return list(find_cheapest_path(source, target, kind, model=CostModel(mesh, load_profile("h100-sxm"))).moves)


@pytest.mark.parametrize("shape", MESHES, ids=[str(list(shape)) for shape in MESHES])
def test_every_case_reaches_its_target_and_receives_no_less_than_the_bound(
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
        load_sharding(validate_document(ShardingDocument, case[end], case["name"]), mesh)
        for end in ("source", "target")
    )
    moves = chain(source, target, kind, mesh)
    whole = random.integers(0, 1 << 20, kind.shape)
    held = shard_array(whole, source, mesh, random)
    got, at, received = apply_chain(held, moves, source, kind.shape, mesh)
    assert at == target, case["name"]
    assert agree(unshard_array(got, target, kind.shape, mesh), whole), case["name"]
    predicted, at = np.zeros_like(received), source
    for move in moves:
        predicted, at = predicted + count_received_elements(move, at, kind.shape, mesh=mesh), move.target(at)
    assert received.tolist() == predicted.tolist(), case["name"]
    total, least = int(received.sum()) * kind.itemsize, case["min_total_bytes"]
    assert total >= least, case["name"]
    assert int(received.max()) * kind.itemsize >= case["min_device_bytes"], case["name"]
    return total / least if least else None
