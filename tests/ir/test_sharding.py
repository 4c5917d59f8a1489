"""Shardings: the block rule, and the validity rules of the mesh dialect."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.documents.graphs import dump_sharding, load_sharding
from planner.documents.schemas import ShardingDocument, validate_document
from planner.errors import InvalidDocument, InvalidMesh, InvalidSharding
from planner.ir.mesh import Mesh
from planner.ir.sharding import Reduction, Sharding, shard_bounds, shard_shape
from tests.testing.layout_oracle import layouts, part

# size, parts, lengths of the blocks
BLOCKS = [
    (7, 4, [2, 2, 2, 1]),
    (8, 4, [2, 2, 2, 2]),
    (5, 4, [2, 2, 1, 0]),
    (9, 8, [2, 2, 2, 2, 1, 0, 0, 0]),
    (4, 4, [1, 1, 1, 1]),
    (1, 2, [1, 0]),
    (6, 1, [6]),
]

# split_axes, partial axes, what
REFUSED = [
    ([[0], [0]], [], "mesh axis duplicated"),
    ([[0, 0]], [], "mesh axis duplicated"),
    ([[0]], [0], "mesh axis duplicated"),
    ([[]], [1, 1], "mesh axis duplicated"),
    ([[-1]], [], "mesh axis is negative"),
    ([[]], [-2], "mesh axis is negative"),
]
MESHES = ["4", "2x3", "2x2x2", "3x1x2"]
SHAPES = [(7,), (8, 5), (3, 4, 9)]


def lengths(size: int, sharding: Sharding, mesh: Mesh) -> list[int]:
    bounds = shard_bounds(sharding, (size,), mesh)
    return (bounds[:, 0, 1] - bounds[:, 0, 0]).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(("size", "parts", "wanted"), BLOCKS)
def test_blocks_have_the_size_of_the_first(size: int, parts: int, wanted: list[int]) -> None:
    assert lengths(size, Sharding(((0,),)), Mesh.parse(str(parts))) == wanted


@pytest.mark.parametrize("notation", MESHES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_device_holds_the_blocks_of_its_index(notation: str, shape: tuple[int, ...]) -> None:
    mesh = Mesh.parse(notation)
    for sharding in layouts(len(shape), mesh, shape, [Reduction.SUM]):
        bounds = shard_bounds(sharding, shape, mesh)
        for device in range(mesh.devices):
            held = part(sharding, shape, mesh, device)
            assert bounds[device].tolist() == [[each.start, each.stop] for each in held]
        largest = (bounds[..., 1] - bounds[..., 0]).max(axis=0)
        assert shard_shape(sharding, shape, mesh) == tuple(largest) == tuple(bounds[0, :, 1] - bounds[0, :, 0])


def test_the_first_axis_listed_is_the_outermost() -> None:
    mesh = Mesh.parse("2x2")  # conformance 17
    bounds = shard_bounds(Sharding(((0,),)), (4,), mesh)
    assert bounds[:, 0].tolist() == [[0, 2], [0, 2], [2, 4], [2, 4]]


def test_an_axis_listed_first_is_major_whatever_its_number() -> None:
    mesh = Mesh.parse("2x2x2")  # conformance 18
    sharding = Sharding(((2, 0), ()), (1,))
    bounds = shard_bounds(sharding, (4, 8), mesh)
    for device, (a, _, c) in enumerate(np.ndindex(2, 2, 2)):
        assert bounds[device].tolist() == [[2 * c + a, 2 * c + a + 1], [0, 8]]
    assert shard_shape(sharding, (4, 8), mesh) == (1, 8)


def test_a_shorter_list_leaves_the_tail_replicated() -> None:
    mesh = Mesh.parse("2x2")  # conformance 19
    assert Sharding(((0,),)).complete(3, mesh) == Sharding(((0,), (), ()))
    assert Sharding(()).complete(2, mesh) == Sharding.replicated(2)
    with pytest.raises(InvalidSharding, match=r"value 'x': more lists than dims \(got 3; wanted at most 2"):
        Sharding(((), (), ())).complete(2, mesh, "value 'x'")


@pytest.mark.parametrize(("split", "partial", "what"), REFUSED)
def test_an_axis_is_used_once_and_has_a_number(split: list[list[int]], partial: list[int], what: str) -> None:
    with pytest.raises(InvalidSharding, match=what):  # conformance 20, conformance 21
        Sharding(tuple(map(tuple, split)), tuple(partial))


@pytest.mark.parametrize("sharding", [Sharding(((5,),)), Sharding(((),), (2,))])
def test_an_axis_that_the_mesh_lacks_is_refused(sharding: Sharding) -> None:
    with pytest.raises(InvalidSharding, match=r"mesh axis out of range \(got [25]; wanted below 2"):
        sharding.complete(1, Mesh.parse("2x2"))  # conformance 21


def test_an_axis_named_nowhere_replicates() -> None:
    bounds = shard_bounds(Sharding(((0,),)), (6,), Mesh.parse("2x2"))  # conformance 22
    assert bounds[0].tolist() == bounds[1].tolist() == [[0, 3]]


def test_fully_replicated_has_many_spellings_and_one_meaning() -> None:
    mesh = Mesh.parse("2x2")  # conformance 23
    spellings = [Sharding(()), Sharding(((),)), Sharding(((), ()))]
    assert {each.complete(2, mesh) for each in spellings} == {Sharding.replicated(2)}
    assert str(Sharding.replicated(1)) == "[[]]"


def test_a_partial_sharding_names_axes_and_a_kind() -> None:
    sharding = Sharding(((0,),), (1,), Reduction.MAX)  # conformance 24
    assert str(sharding) == "[[0]] partial=max[1]"
    kinds = {"sum", "max", "min", "product", "average", "bitwise_and", "bitwise_or", "bitwise_xor"}
    assert set(Reduction) == kinds


def test_the_order_of_partial_axes_does_not_matter() -> None:
    assert Sharding(((),), (2, 0)) == Sharding(((),), (0, 2))
    assert Sharding(((),), (), Reduction.MAX) == Sharding(((),))


DOCUMENTS = [
    {"split_axes": [["dp"], [], ["tp"]]},
    {"split_axes": [["tp", "dp"]]},
    {"split_axes": []},
    {"split_axes": [["tp"]], "partial": {"reduction": "max", "axes": ["dp"]}},
]

# document, error, message
WRONG_DOCUMENTS: list[tuple[Any, type[Exception], str]] = [
    ({"split_axes": [[]], "partial": {"reduction": "generic", "axes": [1]}}, InvalidDocument, "reduction"),
    ({"split_axes": [["pp"]]}, InvalidMesh, "unknown mesh axis"),
    ({"split_axes": [[-1]]}, InvalidMesh, "unknown mesh axis"),
    ({"split_axes": [[5]]}, InvalidMesh, "unknown mesh axis"),
    ({"split_axes": [["dp"], [0]]}, InvalidSharding, "duplicated"),
    ({"split_axes": ["dp"]}, InvalidDocument, "split_axes"),
    ({"split_axes": [[True]]}, InvalidDocument, "split_axes"),
    ({"split_axes": [[]], "halo": [1]}, InvalidDocument, "halo"),
]
NAMED = Mesh.parse("dp=2,tp=4")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_sharding_written_is_the_sharding_read(document: dict[str, Any]) -> None:
    sharding = load_sharding(validate_document(ShardingDocument, document, "test"), NAMED)
    assert dump_sharding(sharding, NAMED) == document


@pytest.mark.parametrize(("document", "error", "message"), WRONG_DOCUMENTS)
def test_an_invalid_sharding_is_refused(document: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):  # conformance 21, conformance 25
        load_sharding(validate_document(ShardingDocument, document, "test"), NAMED)
