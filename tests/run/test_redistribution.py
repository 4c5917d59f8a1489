"""The tile exchange between any two layouts: elements, bytes and undefined margins, compared with a slow oracle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import pytest

from planner.ir.mesh import Mesh
from planner.ir.redistribution import plan_transfers
from planner.ir.sharding import Reduction, Sharding, held_bounds
from planner.run.collectives import Reducer
from planner.run.redistribution import PlacedArrays, exchange_cells
from planner.run.transport import Communicator
from tests.testing.layout_oracle import COMBINE, agree, place, terms
from tests.testing.random_shardings import random_sharding
from tests.testing.seeds import seeds

Array = Any
Box = list[tuple[int, int]]
SEEDS = seeds(400)
MESHES = [(2,), (3,), (4,), (2, 2), (2, 3), (3, 2), (2, 2, 2), (1, 4), (2, 1, 3), (2, 2, 2, 2)]
FLOATS = (Reduction.SUM, Reduction.MAX, Reduction.MIN, Reduction.PRODUCT, Reduction.AVERAGE)
BITS = (Reduction.BITWISE_AND, Reduction.BITWISE_OR, Reduction.BITWISE_XOR, Reduction.SUM, Reduction.MAX)


def cuts(sharding: Sharding, shape: tuple[int, ...], mesh: Mesh, device: int) -> tuple[Box, Box]:
    """What a device holds by the sharding, without its halos and with them."""
    core, wide, split = [], [], 0
    for size, axes in zip(shape, sharding.split_axes, strict=True):
        parts, at = math.prod(mesh.shape[axis] for axis in axes), place(mesh, device, axes)
        width = math.ceil(size / parts)
        start, stop = min(at * width, size), min((at + 1) * width, size)
        before = after = 0
        if axes and sharding.sharded_dims_offsets:
            start, stop = sharding.sharded_dims_offsets[split][at : at + 2]
        if axes and sharding.halo_sizes:
            before, after = sharding.halo_sizes[2 * split : 2 * split + 2]
        split += bool(axes)
        core.append((start, stop))
        wide.append((start - before, stop + after))
    return core, wide


def inside(box: Box, shape: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(max(low, 0), min(high, size)) for (low, high), size in zip(box, shape, strict=True))


def local(box: Box, wide: Box, shape: Sequence[int]) -> tuple[slice, ...]:
    """The part of a shard with halos that is a box of the tensor."""
    ends = zip(inside(box, shape), wide, strict=True)
    return tuple(slice(part.start - low, part.stop - low) for part, (low, _) in ends)


def laid_out(array: Array, sharding: Sharding, mesh: Mesh, random: np.random.Generator) -> list[Array]:
    count = math.prod(mesh.shape[axis] for axis in sharding.partial)
    whole = terms(array, count, sharding.reduction, random) if sharding.partial else [array]
    shards = []
    for device in range(mesh.devices):
        _, wide = cuts(sharding, array.shape, mesh, device)
        shard = np.full([high - low for low, high in wide], 99, array.dtype)
        term = whole[place(mesh, device, sharding.partial)]
        shard[local(wide, wide, array.shape)] = term[inside(wide, array.shape)]
        shards.append(shard)
    return shards


def check(shards: Sequence[Array], whole: Array, sharding: Sharding, mesh: Mesh) -> None:
    """Cores join to terms that combine to the array; halos hold what their neighbours' cores do."""
    count = math.prod(mesh.shape[axis] for axis in sharding.partial)
    found = [np.zeros_like(whole) for _ in range(count)]
    for device, shard in enumerate(shards):
        core, wide = cuts(sharding, whole.shape, mesh, device)
        assert shard.shape == tuple(high - low for low, high in wide)
        found[place(mesh, device, sharding.partial)][inside(core, whole.shape)] = shard[local(core, wide, whole.shape)]
    for device, shard in enumerate(shards):
        _, wide = cuts(sharding, whole.shape, mesh, device)
        term = found[place(mesh, device, sharding.partial)]
        assert agree(shard[local(wide, wide, whole.shape)], term[inside(wide, whole.shape)])
    if sharding.reduction is Reduction.AVERAGE:
        total = sum(found) / count
    else:
        total = reduce(COMBINE[sharding.reduction], found)
    assert agree(np.asarray(total, whole.dtype), whole, 1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_layout_is_exchanged_for_every_other(seed: int) -> None:
    random = np.random.default_rng(seed)
    mesh = Mesh.parse("x".join(map(str, MESHES[random.integers(0, len(MESHES))])))
    shape = tuple(random.integers(1, 9, random.integers(0, 4)).tolist())
    kinds = (FLOATS, BITS)[seed % 2]
    array = random.standard_normal(shape) if seed % 2 == 0 else random.integers(0, 50, shape)
    source, target = (random_sharding(shape, mesh, kinds, random) for _ in range(2))
    shards = laid_out(np.asarray(array), source, mesh, random)
    done, wire = plan_transfers(source, target, shape, mesh), Communicator(mesh.devices)
    bounds = held_bounds(target, shape, mesh)
    neutral = 1 if target.reduction is Reduction.PRODUCT else 0
    blank = [np.full((ends[:, 1] - ends[:, 0]).tolist(), neutral, shards[0].dtype) for ends in bounds]
    held = PlacedArrays(shards, held_bounds(source, shape, mesh)[..., 0])
    exchange_cells(
        np, wire, Reducer.of(np, source.reduction), done=done, held=held, wanted=PlacedArrays(blank, bounds[..., 0])
    )
    check(blank, np.asarray(array), target, mesh)
    assert wire.received == done.received.tolist()
    assert done.sent.sum() == done.received.sum()
