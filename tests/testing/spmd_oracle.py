"""A slow and simple implementation of every collective: element by element, device by device, in Python numbers.

A local tensor is its shape and its defined elements by index; an element that is missing is undefined, and reading it
raises.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any

from planner.ir.mesh import Mesh
from tests.testing.layout_oracle import coordinates, place

Index = tuple[int, ...]


class UndefinedRead(Exception):
    """An undefined element was read."""


class Mismatch(Exception):
    """Shapes within a group do not match."""


@dataclass(frozen=True)
class Tensor:
    shape: Index
    elements: dict[Index, int]

    def at(self, index: Index) -> int:
        assert all(0 <= i < size for i, size in zip(index, self.shape, strict=True)), (index, self.shape)
        if index not in self.elements:
            raise UndefinedRead(index)
        return self.elements[index]


def made(shape: Index, element: Callable[[Index], int]) -> Tensor:
    return Tensor(shape, {index: element(index) for index in indices(shape)})


def indices(shape: Index) -> Iterator[Index]:
    return product(*(range(size) for size in shape))


def put(index: Index, dim: int, value: int) -> Index:
    return (*index[:dim], value, *index[dim + 1 :])


def wrapped(number: int) -> int:
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


KINDS: dict[str, Callable[[int, int], int]] = {
    "sum": lambda a, b: wrapped(a + b),
    "average": lambda a, b: wrapped(a + b),
    "max": max,
    "min": min,
    "product": lambda a, b: wrapped(a * b),
    "bitwise_and": lambda a, b: a & b,
    "bitwise_or": lambda a, b: a | b,
    "bitwise_xor": lambda a, b: a ^ b,
    "generic": lambda a, b: wrapped(a - 3 * b),  # neither commutative nor associative: the order shows
}


def combined(kind: str, terms: list[int]) -> int:
    total = reduce(KINDS[kind], terms)
    if kind != "average":
        return total
    return abs(total) // len(terms) * (1 if total > 0 else -1)


@dataclass(frozen=True)
class Devices:
    """The inputs of one collective over the groups of `axes`, by device."""

    mesh: Mesh
    axes: tuple[int, ...]
    attrs: dict[str, Any]
    inputs: list[Tensor]

    def group(self, device: int) -> list[int]:
        """Return the devices with equal coordinates outside the axes, ordered along the axes as listed."""
        mine = coordinates(self.mesh, device)
        rest = [axis for axis in range(len(mine)) if axis not in self.axes]
        alike = [
            other
            for other in range(len(self.inputs))
            if all(coordinates(self.mesh, other)[axis] == mine[axis] for axis in rest)
        ]
        return sorted(alike, key=lambda other: place(self.mesh, other, self.axes))

    def at(self, device: int, index: Index) -> int:
        """Return the device of the group at an in-group index."""
        return next(
            other
            for other in self.group(device)
            if all(coordinates(self.mesh, other)[axis] == i for axis, i in zip(self.axes, index, strict=True))
        )

    def agree(self, device: int, free: int | None = None) -> None:
        shapes = {
            put(self.inputs[d].shape, free, 0) if free is not None else self.inputs[d].shape for d in self.group(device)
        }
        if len(shapes) > 1:
            raise Mismatch(shapes)

    def bounds(self, device: int, size: int) -> tuple[int, int]:
        """Return the bounds of a device's block in its group."""
        n = len(self.group(device))
        width = self.attrs.get("block") or math.ceil(size / n)
        i = self.group(device).index(device)
        return min(i * width, size), min((i + 1) * width, size)


def undefined(shape: Index) -> Tensor:
    return Tensor(shape, {})


def all_gather(all_: Devices, device: int) -> Tensor:
    dim = all_.attrs["gather_axis"]
    all_.agree(device, dim)
    origin = [(d, i) for d in all_.group(device) for i in range(all_.inputs[d].shape[dim])]
    shape = put(all_.inputs[device].shape, dim, len(origin))
    return made(shape, lambda index: all_.inputs[origin[index[dim]][0]].at(put(index, dim, origin[index[dim]][1])))


def gather(all_: Devices, device: int) -> Tensor:
    root = all_.at(device, all_.attrs["root"])
    whole = all_gather(all_, root)
    return whole if device == root else undefined(whole.shape)


def cut(tensor: Tensor, dim: int, start: int, stop: int) -> Tensor:
    return made(put(tensor.shape, dim, stop - start), lambda index: tensor.at(put(index, dim, start + index[dim])))


def all_slice(all_: Devices, device: int) -> Tensor:
    dim, mine = all_.attrs["slice_axis"], all_.inputs[device]
    return cut(mine, dim, *all_.bounds(device, mine.shape[dim]))


def scatter(all_: Devices, device: int) -> Tensor:
    root = all_.inputs[all_.at(device, all_.attrs["root"])]
    dim = all_.attrs["scatter_axis"]
    return cut(root, dim, *all_.bounds(device, root.shape[dim]))


def all_to_all(all_: Devices, device: int) -> Tensor:
    split, concat = all_.attrs["split_axis"], all_.attrs["concat_axis"]
    all_.agree(device, concat if concat != split else None)
    start, stop = all_.bounds(device, all_.inputs[device].shape[split])
    pieces = {d: cut(all_.inputs[d], split, start, stop) for d in all_.group(device)}
    origin = [(d, i) for d in all_.group(device) for i in range(pieces[d].shape[concat])]
    shape = put(pieces[device].shape, concat, len(origin))
    return made(shape, lambda index: pieces[origin[index[concat]][0]].at(put(index, concat, origin[index[concat]][1])))


def broadcast(all_: Devices, device: int) -> Tensor:
    root = all_.inputs[all_.at(device, all_.attrs["root"])]
    return made(root.shape, root.at)


def all_reduce(all_: Devices, device: int) -> Tensor:
    all_.agree(device)
    terms = [all_.inputs[d] for d in all_.group(device)]
    return made(terms[0].shape, lambda index: combined(all_.attrs["reduction"], [term.at(index) for term in terms]))


def reduce_to_root(all_: Devices, device: int) -> Tensor:
    root = all_.at(device, all_.attrs["root"])
    whole = all_reduce(all_, root)
    return whole if device == root else undefined(whole.shape)


def reduce_scatter(all_: Devices, device: int) -> Tensor:
    whole, dim = all_reduce(all_, device), all_.attrs["scatter_axis"]
    return cut(whole, dim, *all_.bounds(device, whole.shape[dim]))


def shift(all_: Devices, device: int) -> Tensor:
    axis = all_.attrs["shift_axis"]
    there = list(coordinates(all_.mesh, device))
    there[axis] -= all_.attrs["offset"]
    if all_.attrs["rotate"]:
        there[axis] %= all_.mesh.shape[axis]
    for other, tensor in enumerate(all_.inputs):
        if list(coordinates(all_.mesh, other)) == there:
            return made(tensor.shape, tensor.at)
    return undefined(all_.inputs[device].shape)


def collective_permute(all_: Devices, device: int) -> Tensor:
    group = all_.group(device)
    for source, target in all_.attrs["pairs"]:
        if group[target] == device:
            tensor = all_.inputs[group[source]]
            return made(tensor.shape, tensor.at)
    return undefined(all_.inputs[device].shape)


def update_halo(all_: Devices, device: int) -> Tensor:
    """An element at core position p of a dim (negative before, beyond the core after) is the neighbour's.

    Where there is none it stays as it was, if halos keep their sizes; else it is undefined.
    """
    lists = all_.attrs["split_axes"]
    old, halos = (_per_dim(lists, all_.attrs[f"{end}_halo_sizes"]) for end in ("source", "destination"))
    cores = [_core(tensor, old) for tensor in all_.inputs]
    mine = cores[device].shape
    shape = tuple(size + before + after for size, (before, after) in zip(mine, halos, strict=True))
    for sides in product((-1, 0, 1), repeat=len(mine)):
        other = _beside(all_.mesh, device, lists, list(sides))
        if other is not None:
            _check_core(mine, cores[other].shape, sides, halos)
    found = {}
    for index in indices(shape):
        inside = [i - before for i, (before, _) in zip(index, halos, strict=True)]
        beside = [-1 if p < 0 else int(p >= size) for p, size in zip(inside, mine, strict=True)]
        other = _beside(all_.mesh, device, lists, beside)
        if other is not None:
            steps = zip(inside, beside, cores[other].shape, mine, strict=True)
            at = tuple(p + size if s < 0 else p - m if s else p for p, s, size, m in steps)
            found[index] = cores[other].at(at)
        elif old == halos and index in all_.inputs[device].elements:
            found[index] = all_.inputs[device].elements[index]
    return Tensor(shape, found)


def _per_dim(lists: list[list[int]], sizes: list[int]) -> list[Index]:
    pairs = iter(zip(sizes[::2], sizes[1::2], strict=True))
    return [next(pairs) if axes else (0, 0) for axes in lists]


def _core(tensor: Tensor, halos: list[Index]) -> Tensor:
    """Return a shard without its halos."""
    shape = tuple(size - before - after for size, (before, after) in zip(tensor.shape, halos, strict=True))
    if min(shape, default=0) < 0:
        raise Mismatch(shape)
    around = {at: tuple(i + before for i, (before, _) in zip(at, halos, strict=True)) for at in indices(shape)}
    return Tensor(shape, {at: tensor.elements[there] for at, there in around.items() if there in tensor.elements})


def _check_core(mine: Index, theirs: Index, sides: Index, halos: list[Index]) -> None:
    for dim, side in enumerate(sides):
        before, after = halos[dim]
        if (side == 0 and mine[dim] != theirs[dim]) or {-1: before, 0: 0, 1: after}[side] > theirs[dim]:
            raise Mismatch(sides)


def _beside(mesh: Mesh, device: int, lists: list[list[int]], sides: list[int]) -> int | None:
    """Return the neighbour one step along each dim that has a side, None at the end of the mesh."""
    used = {axis for axes in lists for axis in axes}
    mine = coordinates(mesh, device)
    for other in range(mesh.devices):
        theirs = coordinates(mesh, other)
        alike = all(theirs[axis] == at for axis, at in enumerate(mine) if axis not in used)
        steps = [place(mesh, other, axes) - place(mesh, device, axes) for axes in lists]
        if alike and steps == sides:
            return other
    return None


MEANING: dict[str, Callable[[Devices, int], Tensor]] = {
    "all_gather": all_gather,
    "gather": gather,
    "all_slice": all_slice,
    "scatter": scatter,
    "all_to_all": all_to_all,
    "broadcast": broadcast,
    "all_reduce": all_reduce,
    "reduce": reduce_to_root,
    "reduce_scatter": reduce_scatter,
    "shift": shift,
    "collective_permute": collective_permute,
    "update_halo": update_halo,
}
