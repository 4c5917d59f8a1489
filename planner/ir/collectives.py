"""Collectives between two shardings of one tensor: one table, a row each.

The names and meanings are those of the MLIR mesh dialect. A collective takes mesh axes from one place of a sharding
and either appends them to a dim's list or drops them:

    all_gather      drops the tail (the minor-most axes) of a dim's list
    all_to_all      takes the tail of one dim's list and appends it to another's
    all_reduce      drops partial axes
    reduce_scatter  drops partial axes and appends them to a dim's list
    all_slice       appends free axes to a dim's list; nothing is sent
    exchange        leads to any sharding of the tensor (`planner.ir.redistribution`); it is not a basis move

`COLLECTIVES` holds what is true of a collective on any machine. Each layer that spells, times or runs collectives has
one table of its own, keyed by `Kind`; docs/contributing/add-a-collective.md lists them.

A collective that changes a dim's list between A and A + t is exact only where the blocks nest: a block over A is the
union of its blocks over A + t. They do when A is empty, or ceil(K/|A|) = |t| ceil(K/(|A||t|)).

Rings after Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH" (2005).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from functools import cached_property
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from planner.errors import InvalidSharding
from planner.ir.mesh import Mesh
from planner.ir.redistribution import count_received_in_exchange, differing_axes
from planner.ir.sharding import Axes, Shape, Sharding, shard_bounds

Integers = NDArray[np.int64]


class Kind(StrEnum):
    """Names of the collectives."""

    ALL_GATHER = "all_gather"
    ALL_SLICE = "all_slice"
    ALL_TO_ALL = "all_to_all"
    ALL_REDUCE = "all_reduce"
    REDUCE_SCATTER = "reduce_scatter"
    EXCHANGE = "exchange"


class AxesFrom(Enum):
    """Where in a sharding a collective takes its mesh axes from."""

    TAIL = auto()  # the minor-most axes of a dim's list
    PARTIAL = auto()  # the axes over which the tensor is partial
    FREE = auto()  # axes over which the tensor is replicated


@dataclass(frozen=True, slots=True)
class CollectiveDef:
    """A row of the table of collectives.

    axes_from       where the axes come from; None only for the exchange, which leads to any sharding
    count_received  elements that each device receives, `[devices]`, uneven blocks included
    appends         whether the axes are appended to the list of `dim`; otherwise they are dropped
    ring_passes     how often a ring algorithm passes the whole of what a group holds; 0 where nothing goes in rings
    phases          the two collectives that do the same one after the other, where hierarchies make use of that
    """

    kind: Kind
    axes_from: AxesFrom | None
    count_received: Callable[[TensorMove], Integers]
    appends: bool
    ring_passes: int
    phases: tuple[Kind, Kind] | None = None

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of `Collective` beside kind and axes that are set for this kind."""
        if self.axes_from is None:
            return ("to",)
        if self.axes_from is AxesFrom.TAIL:
            return ("dim", "source_dim") if self.appends else ("dim",)
        return ("dim",) if self.appends else ()

    @property
    def reduces(self) -> bool:
        """Whether terms of a partial tensor are combined."""
        return self.axes_from is AxesFrom.PARTIAL

    @property
    def gathers(self) -> bool:
        """Whether a device holds more afterwards than before."""
        return self.axes_from is AxesFrom.TAIL and not self.appends

    @property
    def sends(self) -> bool:
        """Whether anything is sent: what a device takes of a tensor that it holds is a local copy."""
        return self.axes_from is not AxesFrom.FREE

    def resize(self, local: float, devices: int) -> float:
        """Return the size that a device holds afterwards in a group of `devices`, given the size before."""
        if self.gathers:
            return local * devices
        return local / devices if self.appends and self.axes_from is not AxesFrom.TAIL else local

    def ring_bytes(self, local: int, devices: int) -> int:
        """Return the bytes that a device receives in a ring of `devices` that hold `local` bytes each before."""
        return self.ring_passes * (local * devices if self.gathers else local) * (devices - 1) // devices

    def fold_axes(self, first: Axes, second: Axes) -> Axes | None:
        """Return the axes of one collective that does what two of this kind, on the same dim, do one after the other.

        None where there is no such collective.
        """
        if self.axes_from is None:
            return None
        if self.axes_from is AxesFrom.TAIL:  # the minor-most axes leave a list first, but are appended last
            return None if self.appends else second + first
        return first + second if self.appends else tuple(sorted(first + second))


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective over the groups of `axes`.

    `dim` gains or loses the axes. An all_to_all takes them from `source_dim`, and an exchange leads `to` a sharding.
    """

    kind: Kind
    axes: Axes
    dim: int | None = None
    source_dim: int | None = None
    to: Sharding | None = None

    @classmethod
    def exchange(cls, source: Sharding, target: Sharding, axes: Axes | None = None) -> Collective:
        """Return the exchange over `axes`; None: over the axes that differ."""
        return cls(Kind.EXCHANGE, differing_axes(source, target) if axes is None else axes, to=target)

    @property
    def definition(self) -> CollectiveDef:
        """The row of the table."""
        return COLLECTIVES[self.kind]

    @property
    def is_exchange(self) -> bool:
        return self.kind is Kind.EXCHANGE

    def target(self, source: Sharding) -> Sharding:
        """Return the sharding after the move. Raises InvalidSharding where the source lacks what the move takes."""
        if self.to is not None:
            return self.to
        if not self.axes:  # groups of one
            return source
        if source.halo_sizes or source.sharded_dims_offsets:
            raise InvalidSharding("no basis move of halos or offsets", where=str(self), got=str(source))
        row, split, partial = self.definition, list(source.split_axes), source.partial
        if row.axes_from is AxesFrom.PARTIAL:
            if not set(self.axes) <= set(partial):
                raise InvalidSharding("not partial over the axes", where=str(self), got=str(source))
            partial = tuple(axis for axis in partial if axis not in self.axes)
        elif row.axes_from is AxesFrom.TAIL:
            dim = (self.source_dim if row.appends else self.dim) or 0
            if split[dim][-len(self.axes) :] != self.axes:
                raise InvalidSharding("axes are not the tail of the dim", where=str(self), got=str(source))
            split[dim] = split[dim][: -len(self.axes)]
        if row.appends:
            split[self.dim or 0] = (*split[self.dim or 0], *self.axes)
        return Sharding(tuple(split), partial, source.reduction)

    def __str__(self) -> str:
        dims = "" if self.dim is None else f" dim {self.dim}"
        dims = dims if self.source_dim is None else f" dim {self.source_dim} -> {self.dim}"
        dims = dims if self.to is None else f" to {self.to}"
        return f"{self.kind} [{','.join(map(str, self.axes))}]{dims}"


@dataclass(frozen=True)
class TensorMove:
    """A collective carried out on a tensor of `shape` that is laid out as `source`."""

    move: Collective
    source: Sharding
    shape: Shape
    mesh: Mesh

    @cached_property
    def held(self) -> Integers:
        """[devices, dims, 2]: bounds of the shards before."""
        return shard_bounds(self.source, self.shape, self.mesh)

    @cached_property
    def wanted(self) -> Integers:
        """[devices, dims, 2]: bounds of the shards afterwards."""
        return shard_bounds(self.move.target(self.source), self.shape, self.mesh)


def _count_gathered(moved: TensorMove) -> Integers:
    return _volumes(moved.wanted) - _volumes(moved.held)


def _count_lacking(moved: TensorMove) -> Integers:
    """Count what of the shards afterwards is outside of those before."""
    low = np.maximum(moved.held[..., 0], moved.wanted[..., 0])
    high = np.minimum(moved.held[..., 1], moved.wanted[..., 1])
    kept: Integers = np.maximum(high - low, 0).prod(axis=1)
    return _volumes(moved.wanted) - kept


def _count_scattered_terms(moved: TensorMove) -> Integers:
    """Count the terms of its own block that a ring passes to a device: one from each of the others."""
    return (moved.mesh.group_size(moved.move.axes) - 1) * _volumes(moved.wanted)


def _count_reduced(moved: TensorMove) -> Integers:
    """Count a reduction of one block of the flat shard and a gather of all blocks."""
    axes, size = moved.move.axes, _volumes(moved.held)
    devices, index = moved.mesh.group_size(axes), moved.mesh.group_index(axes)
    block = -(-size // devices)
    own: Integers = np.minimum((index + 1) * block, size) - np.minimum(index * block, size)
    return size + (devices - 2) * own


def _count_nothing(moved: TensorMove) -> Integers:
    return np.zeros(moved.mesh.devices, np.int64)


def _count_exchanged(moved: TensorMove) -> Integers:
    return count_received_in_exchange(
        moved.source, moved.move.target(moved.source), moved.shape, mesh=moved.mesh, axes=moved.move.axes
    )


def _volumes(bounds: Integers) -> Integers:
    volumes: Integers = (bounds[..., 1] - bounds[..., 0]).prod(axis=1)
    return volumes


COLLECTIVES: Mapping[Kind, CollectiveDef] = MappingProxyType(
    {
        row.kind: row
        for row in (
            CollectiveDef(Kind.ALL_GATHER, AxesFrom.TAIL, _count_gathered, appends=False, ring_passes=1),
            CollectiveDef(Kind.ALL_TO_ALL, AxesFrom.TAIL, _count_lacking, appends=True, ring_passes=1),
            CollectiveDef(
                Kind.ALL_REDUCE,
                AxesFrom.PARTIAL,
                _count_reduced,
                appends=False,
                ring_passes=2,
                phases=(Kind.REDUCE_SCATTER, Kind.ALL_GATHER),
            ),
            CollectiveDef(Kind.REDUCE_SCATTER, AxesFrom.PARTIAL, _count_scattered_terms, appends=True, ring_passes=1),
            CollectiveDef(Kind.ALL_SLICE, AxesFrom.FREE, _count_nothing, appends=True, ring_passes=0),
            CollectiveDef(Kind.EXCHANGE, None, _count_exchanged, appends=False, ring_passes=0),
        )
    }
)
"""The rows; the basis moves are listed in their order, on which ties between equally cheap paths depend."""

BASIS = tuple(row.kind for row in COLLECTIVES.values() if row.axes_from is not None)
"""The collectives of the dialect: all but the exchange."""


def count_received_elements(move: Collective, source: Sharding, shape: Shape, *, mesh: Mesh) -> Integers:
    """Count the elements that each device receives, `[devices]`, uneven blocks included."""
    return move.definition.count_received(TensorMove(move, source, shape, mesh))
