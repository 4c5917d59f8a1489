"""The documented path between two shardings: its order, its fusions, and that it always reaches the target."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.ir.basis_moves import is_exact
from planner.ir.collectives import Kind
from planner.ir.mesh import Mesh
from planner.ir.sharding import Reduction, Sharding
from planner.reshard.documented_path import fuse_collectives, order_collectives, plan_collectives
from tests.testing.annotated_notation import sharding
from tests.testing.layout_oracle import layouts

Shape = tuple[int, ...]
# mesh, shape, source, target, collectives in the documents' order
ORDERED = [
    # conformance 69
    ("2x2x2", (2, 4, 32), "[[],[],[1,2]] sum[0]", "[[],[],[1,2]]", ["all_reduce [0]"]),
    (
        "2x2x2",
        (8, 8, 8),
        "[[1],[],[]] sum[0]",
        "[[],[0],[2]]",
        ["all_reduce [0]", "all_gather [1] dim 0", "all_slice [0] dim 1", "all_slice [2] dim 2"],
    ),
    # conformance 71
    ("2x2", (8, 8), "[[],[0,1]]", "[[],[0]]", ["all_gather [1] dim 1"]),
    # conformance 94: a gather of the outer axis gathers all
    ("2x2", (8, 8), "[[0,1],[]]", "[[1],[]]", ["all_gather [0,1] dim 0", "all_slice [1] dim 0"]),
    # uneven blocks of 6 over 4 do not nest in those over 2
    ("2x2", (6, 8), "[[0,1],[]]", "[[0],[]]", ["all_gather [0,1] dim 0", "all_slice [0] dim 0"]),
]
# mesh, shape, source, target, emitted
FUSED = [
    # conformance 3.4
    ("2", (2,), "[[]]", "[[]]", []),
    ("2", (3, 14), "[[]]", "[[],[0]]", ["all_slice [0] dim 1"]),
    ("?", (5, 3, 7), "[[],[],[]]", "[[0]]", ["all_slice [0] dim 0"]),
    ("2", (10, 14), "[[0]]", "[[],[0]]", ["all_to_all [0] dim 0 -> 1"]),
    ("?", (10, 14), "[[0]]", "[[],[0]]", ["all_to_all [0] dim 0 -> 1"]),
    ("2", (10, 14), "[[0]]", "[[]]", ["all_gather [0] dim 0"]),
    ("2", (10, 14), "[[],[0]]", "[[],[]]", ["all_gather [0] dim 1"]),
    ("?", (10, 14), "[[0]]", "[[]]", ["all_gather [0] dim 0"]),
    ("2", (10, 14), "[[],[]] sum[0]", "[[]]", ["all_reduce [0]"]),
    # conformance 80
    ("2x4x8", (16, 16, 16), "[[],[],[]] sum[0]", "[[],[],[0]]", ["reduce_scatter [0] dim 2"]),
    ("2x2", (8, 8), "[[],[]] sum[0,1]", "[[],[1]]", ["all_reduce [0]", "reduce_scatter [1] dim 1"]),
    # a swap of two dims' axes: one of them by exchange
    (
        "2x2",
        (8, 8),
        "[[0],[1]]",
        "[[1],[0]]",
        ["all_gather [0] dim 0", "all_to_all [1] dim 1 -> 0", "all_slice [0] dim 1"],
    ),
]


def _full(text: str, rank: int, mesh: Mesh) -> Sharding:
    return sharding(text).complete(rank, mesh)


@pytest.mark.parametrize(("mesh", "shape", "source", "target", "emitted"), ORDERED)
def test_reduce_then_gather_then_slice(mesh: str, shape: Shape, source: str, target: str, emitted: list[str]) -> None:
    over = Mesh.parse(mesh)
    ends = [_full(text, len(shape), over) for text in (source, target)]
    assert [str(move) for move in order_collectives(ends[0], ends[1], shape, mesh=over)] == emitted


@pytest.mark.parametrize(("mesh", "shape", "source", "target", "emitted"), FUSED)
def test_two_steps_that_are_one_collective_are_one(
    mesh: str, shape: Shape, source: str, target: str, emitted: list[str]
) -> None:
    over = Mesh.parse(mesh)
    ends = [_full(text, len(shape), over) for text in (source, target)]
    assert [str(move) for move in fuse_collectives(order_collectives(ends[0], ends[1], shape, mesh=over))] == emitted


@given(st.data(), st.sampled_from(["2", "3", "2x2", "3x2", "2x2x2"]), st.tuples(*[st.integers(3, 12)] * 2))
def test_the_path_reaches_its_target_by_exact_moves(data: st.DataObject, text: str, shape: Shape) -> None:
    mesh = Mesh.parse(text)
    source = data.draw(st.sampled_from(layouts(2, mesh, shape, [Reduction.SUM])))
    target = data.draw(st.sampled_from(layouts(2, mesh, shape)))
    for chain in (
        order_collectives(source, target, shape, mesh=mesh),
        fuse_collectives(order_collectives(source, target, shape, mesh=mesh)),
    ):
        at = source
        for move in chain:
            after = move.target(at)
            assert is_exact(move, at, after, shape=shape, mesh=mesh)
            at = after
        assert at == target
    kinds = [move.kind for move in order_collectives(source, target, shape, mesh=mesh)]
    order = [Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.ALL_SLICE]
    assert kinds == sorted(kinds, key=order.index)


# source, target: nothing of the documents leads there
EXCHANGED = [
    (sharding("[[0],[]]"), sharding("[[],[]] sum[0]")),
    (sharding("[[],[]] sum[0]"), sharding("[[],[]] max[0]")),
    (sharding("[[0],[]]"), Sharding(((0,), ()), halo_sizes=(1, 1))),
    (Sharding(((0,), ()), halo_sizes=(1, 1)), Sharding(((), (0,)))),
    (Sharding(((0,), ()), sharded_dims_offsets=((0, 3, 8),)), sharding("[[0],[]]")),
]


@pytest.mark.parametrize(("source", "target"), EXCHANGED, ids=str)
def test_a_step_without_a_documented_collective_is_one_exchange(source: Sharding, target: Sharding) -> None:
    (move,) = plan_collectives(source, target, (8, 8), mesh=Mesh.parse("2x2"))
    assert move.kind is Kind.EXCHANGE
    assert move.target(source) == target
    assert move.axes == (0,)
