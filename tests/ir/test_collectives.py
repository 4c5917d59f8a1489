"""Collectives: the dialect's worked figures; every offered move is exact and receives the predicted bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest

from planner.errors import InvalidSharding
from planner.ir.basis_moves import blocks_nest, is_exact, list_basis_moves
from planner.ir.collectives import Collective, Kind, count_received_elements
from planner.ir.mesh import Mesh
from planner.ir.sharding import Reduction, Sharding
from planner.run.collectives import run_collective
from tests.testing.collective_chains import apply_collective
from tests.testing.layout_oracle import agree, block, layouts, shard_array, unshard_array

# conformance item, mesh, move, source, shards before, shards after
FIGURES: list[tuple[int, str, Collective, Sharding, list[Any], list[Any]]] = [
    (
        41,
        "2x2",
        Collective(Kind.ALL_GATHER, (1,), 1),
        Sharding(((0,), (1,))),
        [[[1, 2], [3, 4]], [[5, 6], [7, 8]], [[9, 10], [11, 12]], [[13, 14], [15, 16]]],
        [[[1, 2, 5, 6], [3, 4, 7, 8]]] * 2 + [[[9, 10, 13, 14], [11, 12, 15, 16]]] * 2,
    ),
    (
        44,
        "2x2",
        Collective(Kind.ALL_SLICE, (1,), 1),
        Sharding(((0,), ())),
        [[[1, 2, 5, 6], [3, 4, 7, 8]]] * 2 + [[[9, 10, 13, 14], [11, 12, 15, 16]]] * 2,
        [[[1, 2], [3, 4]], [[5, 6], [7, 8]], [[9, 10], [11, 12]], [[13, 14], [15, 16]]],
    ),
    (
        46,
        "3",
        Collective(Kind.ALL_TO_ALL, (0,), 0, 1),
        Sharding(((), (0,))),
        [[[11, 12], [21, 22], [31, 32]], [[13, 14], [23, 24], [33, 34]], [[15, 16], [25, 26], [35, 36]]],
        [[[11, 12, 13, 14, 15, 16]], [[21, 22, 23, 24, 25, 26]], [[31, 32, 33, 34, 35, 36]]],
    ),
    (
        50,
        "2x2",
        Collective(Kind.REDUCE_SCATTER, (1,), 0),
        Sharding(((0,), ()), (1,)),
        [[[1, 2], [3, 4]], [[5, 6], [7, 8]], [[9, 10], [11, 12]], [[13, 14], [15, 16]]],
        [[[6, 8]], [[10, 12]], [[22, 24]], [[26, 28]]],
    ),
    (
        43,
        "2x2",
        Collective(Kind.ALL_REDUCE, (0, 1)),
        Sharding(((), ()), (0, 1), Reduction.MAX),
        [[[1, 8]], [[2, 7]], [[3, 6]], [[4, 5]]],
        [[[4, 8]]] * 4,
    ),
]

MOVED = [
    *product(["3", "2x2", "3x2", "1x4"], [(12,), (7,), (6, 4), (5, 7), (4, 1, 6), (3, 4, 5)]),
    *product(["2x2x2", "2x2x3"], [(12,), (5, 7)]),
]


@pytest.mark.parametrize("figure", FIGURES, ids=[f"{figure[0]} {figure[2]}" for figure in FIGURES])
def test_the_worked_figures_of_the_dialect(figure: tuple[Any, ...]) -> None:
    _, notation, move, source, before, after = figure  # conformance 41, conformance 43
    mesh = Mesh.parse(notation)  # conformance 44, conformance 46, conformance 50
    shards = [np.array(each) for each in before]
    got, _ = apply_collective(shards, move, source, whole_shape(shards, source, mesh), mesh)
    assert [each.tolist() for each in got] == after


@pytest.mark.parametrize("kind", sorted(set(Kind) - {Kind.EXCHANGE}))
def test_a_collective_over_no_axes_is_the_identity(kind: Kind) -> None:
    mesh, source = Mesh.parse("2x2"), Sharding(((0,), ()), (1,))  # conformance 9
    move = Collective(kind, (), None if kind is Kind.ALL_REDUCE else 0, 1 if kind is Kind.ALL_TO_ALL else None)
    assert move.target(source) == source
    shards = [np.arange(4.0).reshape(2, 2) + device for device in range(4)]
    got, received = apply_collective(shards, move, source, (4, 2), mesh)
    assert [each.tolist() for each in got] == [each.tolist() for each in shards]
    assert received.tolist() == count_received_elements(move, source, (4, 2), mesh=mesh).tolist() == [0] * 4


def whole_shape(shards: list[Any], sharding: Sharding, mesh: Mesh) -> tuple[int, ...]:
    return tuple(size * mesh.group_size(axes) for size, axes in zip(shards[0].shape, sharding.split_axes, strict=True))


@pytest.mark.parametrize(("notation", "shape"), MOVED)
def test_every_move_is_exact_and_receives_what_is_predicted(notation: str, shape: tuple[int, ...]) -> None:
    mesh, random = Mesh.parse(notation), np.random.default_rng(0)
    whole = random.integers(0, 99, shape).astype(float)
    for source in layouts(len(shape), mesh, shape, [Reduction.SUM, Reduction.MAX]):
        shards = shard_array(whole, source, mesh, random)
        for move, target in list_basis_moves(source, shape, mesh):
            assert target == move.target(source)
            got, received = apply_collective(shards, move, source, shape, mesh)
            assert agree(unshard_array(got, target, shape, mesh), whole), f"{source} {move}"
            assert received.tolist() == count_received_elements(move, source, shape, mesh=mesh).tolist(), (
                f"{source} {move}"
            )


@pytest.mark.parametrize("notation", ["2x2", "3x2", "2x2x2"])
@pytest.mark.parametrize("shape", [(8, 6), (5, 7)])
def test_every_exact_move_is_offered_and_no_other(notation: str, shape: tuple[int, ...]) -> None:
    mesh, random = Mesh.parse(notation), np.random.default_rng(0)
    whole = np.arange(math.prod(shape)).reshape(shape)
    states, tried = layouts(len(shape), mesh, shape), [0, 0]
    for source in states:
        shards = shard_array(whole, source, mesh, random)
        offered = {move for move, _ in list_basis_moves(source, shape, mesh)}
        for move, target in conceivable(source, len(shape), len(mesh.shape)):
            if target in states:
                right = arrives(shards, move, source, whole, mesh)
                assert (move in offered) == right, f"{source} {move}"
                tried[right] += 1
    assert all(tried), "moves that arrive, and moves that do not"


def conceivable(source: Sharding, dims: int, axes: int) -> Iterator[tuple[Collective, Sharding]]:
    """Every gather, slice and exchange that a sharding has the axes for."""
    orders = [order for n in range(1, axes + 1) for order in permutations(range(axes), n)]
    for order, dim in product(orders, range(dims)):
        exchanges = [Collective(Kind.ALL_TO_ALL, order, dim, taken) for taken in range(dims) if taken != dim]
        for move in (Collective(Kind.ALL_GATHER, order, dim), Collective(Kind.ALL_SLICE, order, dim), *exchanges):
            with suppress(InvalidSharding):
                yield move, move.target(source)


def arrives(shards: list[Any], move: Collective, source: Sharding, whole: Any, mesh: Mesh) -> bool:
    """Whether the devices hold the target's blocks after the move."""
    try:
        got, _ = apply_collective(shards, move, source, whole.shape, mesh)
        return agree(unshard_array(got, move.target(source), whole.shape, mesh), whole)
    except (AssertionError, ValueError):
        return False


@pytest.mark.parametrize("size", range(1, 20))
def test_blocks_nest_where_each_is_a_union_of_the_smaller_ones(size: int) -> None:
    for outer in range(1, size + 1):
        for inner in range(1, size // outer + 1):
            edges = {block(size, outer * inner, i).start for i in range(outer * inner)} | {size}
            aligned = all(
                block(size, outer * inner, o * inner).start == block(size, outer, o).start for o in range(outer)
            )
            assert blocks_nest(size, outer, inner) == (
                aligned and edges >= {block(size, outer, o).start for o in range(outer)}
            )


MATCHED = [
    (Reduction.SUM, [1.0, 2.0], 3.0),
    (Reduction.AVERAGE, [1.0, 2.0], 1.5),
    (Reduction.MAX, [1.0, 2.0], 2.0),
    (Reduction.MIN, [1.0, 2.0], 1.0),
    (Reduction.PRODUCT, [3.0, 2.0], 6.0),
    (Reduction.BITWISE_AND, [6, 3], 2),
    (Reduction.BITWISE_OR, [6, 3], 7),
    (Reduction.BITWISE_XOR, [6, 3], 5),
]


@pytest.mark.parametrize(("reduction", "terms", "wanted"), MATCHED)
def test_a_reduction_combines_by_its_kind(reduction: Reduction, terms: list[Any], wanted: Any) -> None:
    bounds = np.array([[[0, 1]]] * 2)
    for move in (Collective(Kind.ALL_REDUCE, (0,)), Collective(Kind.REDUCE_SCATTER, (0,), 0)):
        results, _ = run_collective(
            np, move, reduction, shards=[np.array([term]) for term in terms], held=bounds, wanted=bounds
        )
        assert [each.tolist() for each in results] == [[wanted]] * 2  # conformance 24


@pytest.mark.parametrize("reduction", Reduction)
def test_reducing_axis_after_axis_is_reducing_all_at_once(reduction: Reduction) -> None:
    mesh, random = Mesh.parse("2x3"), np.random.default_rng(1)
    bits = reduction.startswith("bitwise")
    whole = random.integers(1, 99, (6, 5)) if bits else random.uniform(1, 2, (6, 5))
    source = Sharding(((), ()), (0, 1), reduction)
    shards = shard_array(whole, source, mesh, random)
    step, _ = apply_collective(shards, Collective(Kind.ALL_REDUCE, (1,)), source, whole.shape, mesh)
    after = Sharding(((), ()), (0,), reduction)
    stepwise, _ = apply_collective(step, Collective(Kind.REDUCE_SCATTER, (0,), 0), after, whole.shape, mesh)
    assert agree(unshard_array(stepwise, Sharding(((0,), ())), whole.shape, mesh), whole)


# move, source, what
IMPOSSIBLE = [
    (Collective(Kind.ALL_GATHER, (0,), 0), Sharding(((0, 1),)), "not the tail"),
    (Collective(Kind.ALL_GATHER, (1,), 0), Sharding(((0,),)), "not the tail"),
    (Collective(Kind.ALL_TO_ALL, (0,), 1, 0), Sharding(((0, 1), ())), "not the tail"),
    (Collective(Kind.ALL_SLICE, (0,), 1), Sharding(((0,), ())), "duplicated"),
    (Collective(Kind.ALL_SLICE, (-1,), 0), Sharding(((),)), "negative"),
    (Collective(Kind.ALL_REDUCE, (0,)), Sharding(((0,),)), "not partial"),
    (Collective(Kind.REDUCE_SCATTER, (0, 1), 0), Sharding(((),), (1,)), "not partial"),
]


@pytest.mark.parametrize(("move", "source", "what"), IMPOSSIBLE)
def test_a_move_that_the_source_cannot_make_is_refused(move: Collective, source: Sharding, what: str) -> None:
    with pytest.raises(InvalidSharding, match=what):
        move.target(source)


# size, outer axis sizes, inner: where dropping the tail would leave blocks that are not the target's
UNEVEN = [(5, "2x2", Sharding(((0, 1),)), Collective(Kind.ALL_GATHER, (1,), 0))]


@pytest.mark.parametrize(("size", "notation", "source", "move"), UNEVEN)
def test_a_gather_of_blocks_that_do_not_nest_is_not_offered(
    size: int, notation: str, source: Sharding, move: Collective
) -> None:
    mesh = Mesh.parse(notation)
    assert not is_exact(move, source, move.target(source), shape=(size,), mesh=mesh)
    assert move not in [offered for offered, _ in list_basis_moves(source, (size,), mesh)]
    assert (Collective(Kind.ALL_GATHER, (0, 1), 0), Sharding(((),))) in list_basis_moves(source, (size,), mesh)


# move, source, shape of 24 elements a device holds, elements received by one of 4
EVEN = [
    (Collective(Kind.ALL_GATHER, (0,), 0), Sharding(((0,), ())), (24, 4), 24 * 3),
    (Collective(Kind.ALL_SLICE, (0,), 0), Sharding(((), ())), (4, 6), 0),
    (Collective(Kind.ALL_TO_ALL, (0,), 1, 0), Sharding(((0,), ())), (24, 4), 24 * 3 // 4),
    (Collective(Kind.ALL_REDUCE, (0,)), Sharding(((), ()), (0,)), (4, 6), 2 * 24 * 3 // 4),
    (Collective(Kind.REDUCE_SCATTER, (0,), 0), Sharding(((), ()), (0,)), (4, 6), 24 * 3 // 4),
]


@pytest.mark.parametrize(("move", "source", "shape", "wanted"), EVEN)
def test_even_blocks_receive_what_the_formulas_say(
    move: Collective, source: Sharding, shape: tuple[int, ...], wanted: int
) -> None:
    assert count_received_elements(move, source, shape, mesh=Mesh.parse("4")).tolist() == [wanted] * 4
