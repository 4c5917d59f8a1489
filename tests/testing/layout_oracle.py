"""A slow and simple model of shardings: which device holds which elements, and the tensor that they make together.

Written device by device from the mesh dialect's text; it uses nothing of `planner` but the values that it judges.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, reduce
from itertools import product
from typing import Any

import numpy as np

from planner.ir.mesh import Mesh
from planner.ir.sharding import Reduction, Sharding

Array = Any
Axes = Sequence[int]
Shape = tuple[int, ...]
JUNK = 77
REMEMBERED = 1 << 15
COMBINE = {
    Reduction.SUM: np.add,
    Reduction.MAX: np.maximum,
    Reduction.MIN: np.minimum,
    Reduction.PRODUCT: np.multiply,
    Reduction.BITWISE_AND: np.bitwise_and,
    Reduction.BITWISE_OR: np.bitwise_or,
    Reduction.BITWISE_XOR: np.bitwise_xor,
}


def coordinates(mesh: Mesh, device: int) -> tuple[int, ...]:
    """Return a device's coordinates; the last axis varies fastest."""
    return _coordinates(mesh.shape, device)


@lru_cache(REMEMBERED)
def _coordinates(sizes: Shape, device: int) -> tuple[int, ...]:
    found: list[int] = []
    for size in reversed(sizes):
        device, place = divmod(device, size)
        found.insert(0, place)
    return tuple(found)


def place(mesh: Mesh, device: int, axes: Axes) -> int:
    """Return a device's position along the listed axes, the first of which is the major-most."""
    return _place(mesh.shape, device, tuple(axes))


@lru_cache(REMEMBERED)
def _place(sizes: Shape, device: int, axes: tuple[int, ...]) -> int:
    at = _coordinates(sizes, device)
    return reduce(lambda index, axis: index * sizes[axis] + at[axis], axes, 0)


@lru_cache(REMEMBERED)
def block(size: int, parts: int, index: int) -> slice:
    """Return block `index` of ceil(size / parts) elements, cut off at the end."""
    width = math.ceil(size / parts)
    return slice(min(index * width, size), min((index + 1) * width, size))


def part(sharding: Sharding, shape: Shape, mesh: Mesh, device: int) -> tuple[slice, ...]:
    """Return the slice of each dim that a device holds, without halos."""
    offsets = iter(sharding.sharded_dims_offsets)
    found = []
    for size, axes in zip(shape, sharding.split_axes, strict=True):
        count, index = math.prod(mesh.shape[axis] for axis in axes), place(mesh, device, axes)
        if axes and sharding.sharded_dims_offsets:
            found.append(slice(*next(offsets)[index : index + 2]))
        else:
            found.append(block(size, count, index))
    return tuple(found)


def box(sharding: Sharding, shape: Shape, mesh: Mesh, device: int) -> list[tuple[int, int]]:
    """Return start and stop of each dim that a device holds, with halos, which may reach beyond the tensor."""
    halos = iter(sharding.halo_sizes)
    found = []
    for core, axes in zip(part(sharding, shape, mesh, device), sharding.split_axes, strict=True):
        before, after = (next(halos), next(halos)) if axes and sharding.halo_sizes else (0, 0)
        found.append((core.start - before, core.stop + after))
    return found


def inside(held: Sequence[tuple[int, int]], shape: Shape) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Return the slices of a box inside the tensor, in the tensor's and in the box's coordinates."""
    ends = [
        (min(max(start, 0), size), max(min(stop, size), 0)) for (start, stop), size in zip(held, shape, strict=True)
    ]
    here = [slice(low - start, high - start) for (low, high), (start, _) in zip(ends, held, strict=True)]
    return tuple(slice(low, high) for low, high in ends), tuple(here)


def terms(array: Array, count: int, reduction: Reduction, random: np.random.Generator) -> list[Array]:
    """Return `count` random arrays that reduce to `array`."""
    if reduction is Reduction.AVERAGE:
        return [count * term for term in terms(array, count, Reduction.SUM, random)]
    noise = [_noise(array, random) for _ in range(count - 1)]
    match reduction:
        case Reduction.SUM:
            return [*noise, array - sum(noise)]
        case Reduction.PRODUCT:
            if array.dtype.kind != "f":  # signs are their own inverses
                signs = [1 - 2 * (each % 2) for each in noise]
                return [*signs, array * math.prod(signs)]
            factors = [1 + abs(each) for each in noise]
            return [*factors, array / math.prod(factors)]
        case Reduction.BITWISE_XOR:
            return [*noise, reduce(np.bitwise_xor, noise, array)]
        case _:
            return _hidden(array, count, reduction, random)


def _hidden(array: Array, count: int, reduction: Reduction, random: np.random.Generator) -> list[Array]:
    """Return terms for max or min: each element is in one of them, weaker values are in the others."""
    weaken = {
        Reduction.MAX: np.logical_and if array.dtype == bool else lambda value, each: value - abs(each),
        Reduction.MIN: np.logical_or if array.dtype == bool else lambda value, each: value + abs(each),
        Reduction.BITWISE_AND: np.bitwise_or,
        Reduction.BITWISE_OR: np.bitwise_and,
    }[reduction]
    strong = random.integers(0, count, array.shape)
    return [np.where(strong == i, array, weaken(array, _noise(array, random))) for i in range(count)]


def _noise(array: Array, random: np.random.Generator) -> Array:
    if array.dtype.kind == "f":
        return random.standard_normal(array.shape)
    return random.integers(0, 2 if array.dtype == bool else 7, array.shape).astype(array.dtype)


def shard_array(array: Array, sharding: Sharding, mesh: Mesh, random: np.random.Generator) -> list[Array]:
    """Return each device's shard of an array: random terms along partial axes, JUNK in halos beyond its ends."""
    count = math.prod(mesh.shape[axis] for axis in sharding.partial)
    whole = terms(array, count, sharding.reduction, random) if sharding.partial else [array]
    shards = []
    for device in range(math.prod(mesh.shape)):
        held = box(sharding, array.shape, mesh, device)
        shard = np.full([stop - start for start, stop in held], JUNK, array.dtype)
        there, here = inside(held, array.shape)
        shard[here] = whole[place(mesh, device, sharding.partial)][there]
        shards.append(shard)
    return shards


def unshard_array(shards: Sequence[Array], sharding: Sharding, shape: Shape, mesh: Mesh) -> Array:
    """Check shapes, replicas and halos, reduce partial terms and return the array that the shards represent."""
    count = math.prod(mesh.shape[axis] for axis in sharding.partial)
    wholes = [np.zeros(shape, shards[0].dtype) for _ in range(count)]
    seen = [np.zeros(shape, bool) for _ in range(count)]
    for device, shard in enumerate(shards):
        term, held = place(mesh, device, sharding.partial), box(sharding, shape, mesh, device)
        assert list(shard.shape) == [stop - start for start, stop in held], f"device {device} holds {shard.shape}"
        there, here = inside(held, shape)
        known = seen[term][there]
        assert agree(shard[here][known], wholes[term][there][known]), f"device {device} holds another replica"
        wholes[term][there], seen[term][there] = shard[here], True
    assert all(each.all() for each in seen), "elements that no device holds"
    if sharding.reduction is Reduction.AVERAGE:  # of integers rounded towards zero
        mean = sum(wholes) / count
        return mean if wholes[0].dtype.kind == "f" else np.trunc(mean).astype(wholes[0].dtype)
    return reduce(COMBINE[sharding.reduction], wholes)


def agree(got: Array, wanted: Array, tolerance: float = 1e-10) -> bool:
    """Return whether two arrays are equal but for rounding, relative to the largest magnitude wanted."""
    if got.shape != wanted.shape or got.dtype.kind != wanted.dtype.kind:
        return False
    if wanted.dtype.kind != "f":
        return bool((got == wanted).all())
    scale = float(abs(wanted).max(initial=0)) or 1.0
    with np.errstate(invalid="ignore"):
        return bool(((got == wanted) | (abs(got - wanted) <= tolerance * scale)).all())


def layouts(rank: int, mesh: Mesh, shape: Shape, partials: Sequence[Reduction] = ()) -> list[Sharding]:
    """Return every sharding of a tensor: each axis of two or more devices on a dim, partial or idle, in every order."""
    found: dict[Sharding, None] = {}
    for assignment in product(*(range(-1, rank + bool(partials)) if size > 1 else [-1] for size in mesh.shape)):
        split: list[tuple[int, ...]] = [()] * rank
        orders = [tuple(a for a, where in enumerate(assignment) if where == dim) for dim in range(rank)]
        partial = tuple(a for a, where in enumerate(assignment) if where == rank)
        for order in product(*(_permutations(axes) for axes in orders)):
            split = list(order)
            counts = [math.prod(mesh.shape[axis] for axis in axes) for axes in split]
            if all(count <= size for count, size in zip(counts, shape, strict=True)):
                for reduction in partials if partial else (Reduction.SUM,):
                    found[Sharding(tuple(split), partial, reduction)] = None
    return list(found)


def _permutations(axes: tuple[int, ...]) -> list[tuple[int, ...]]:
    if not axes:
        return [()]
    return [(axis, *rest) for axis in axes for rest in _permutations(tuple(a for a in axes if a != axis))]
