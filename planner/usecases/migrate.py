"""Reshard a tensor, or the state of a whole plan, from one layout to another, and verify it by running it.

State is what a plan holds between steps: parameters, buffers and optimizer state. On the same mesh a value takes the
cheapest program between its two shardings; between meshes, one exchange.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.choose.cost import CostModel
from planner.choose.hardware import Hardware
from planner.errors import InvalidGraph, InvalidSharding
from planner.ir.graph import Input, TensorType
from planner.ir.program import Program
from planner.ir.sharding import Shape, Sharding
from planner.reshard.cheapest_path import Objective, ReshardPath, find_cheapest_path
from planner.reshard.cross_mesh import PlacedSharding
from planner.reshard.cross_mesh_cost import CrossMeshReshard
from planner.run.cross_mesh import verify_cross_mesh
from planner.run.shrink import shrink
from planner.run.validate import validate

Integers = NDArray[np.int64]
ReshardWay = ReshardPath | CrossMeshReshard
STATE_KINDS = ("parameter", "buffer", "optimizer_state")
MAX_ELEMENTS = 1 << 22
"""Elements on all devices together, up to which a reshard is run at its own sizes."""


def verify_reshard(way: ReshardWay) -> bool | None:
    """Run a reshard on logical devices. Return whether it moves the right elements and the predicted bytes.

    Large tensors are shrunk first; the result is None where they cannot be.
    """
    if isinstance(way, ReshardPath):
        program = way.program if _peak_elements(way) <= MAX_ELEMENTS else shrink(way.program)
        small = math.prod(program.graph.inputs[0].type.shape) * program.mesh.devices
        if program is way.program and _peak_elements(way) > MAX_ELEMENTS < small:
            return None
        return validate(program, shrinking="none").verdict == "equal"
    kind = way.kind if _peak_elements(way) <= MAX_ELEMENTS else TensorType(_shrink_shape(way), way.kind.dtype)
    if math.prod(kind.shape) * max(way.source.mesh.devices, way.target.mesh.devices) > 2 * MAX_ELEMENTS:
        return None
    return verify_cross_mesh(way.source, way.target, kind)


def _peak_elements(way: ReshardWay) -> int:
    """Count the elements that all devices hold together at the peak."""
    return int(way.buffer_bytes.sum(axis=1).max()) // way.kind.itemsize


def _shrink_shape(way: CrossMeshReshard) -> Shape:
    """Return a small shape that both meshes split like the tensor's, evenly or unevenly.

    Dims with offsets or halos keep their sizes.
    """
    return tuple(_shrink_dim(way, dim, size) for dim, size in enumerate(way.kind.shape))


def _shrink_dim(way: CrossMeshReshard, dim: int, size: int) -> int:
    ends = (way.source, way.target)
    if any(place.sharding.halo_or_offsets(dim) for place in ends):
        return size
    parts = math.lcm(*(place.mesh.group_size(place.sharding.split_axes[dim]) for place in ends))
    return min(size, size % parts + parts * (2 if size % parts else 1))


@dataclass(frozen=True)
class Migration:
    """The state of one plan brought into the layout of another: each value with its reshard.

    Values of equal type and shardings share one reshard.
    """

    values: tuple[tuple[Input, ReshardWay], ...]

    @property
    def distinct_ways(self) -> tuple[ReshardWay, ...]:
        """The reshards, each once."""
        return tuple({id(way): way for _, way in self.values}.values())

    @cached_property
    def received(self) -> Integers:
        """Bytes received, by device number."""
        most = max((way.received.shape[-1] for way in self.distinct_ways), default=0)
        total = np.zeros(most, np.int64)
        for _, way in self.values:
            received = way.received.reshape(-1, way.received.shape[-1]).sum(axis=0)
            total[: len(received)] += received
        return total

    @property
    def time_ps(self) -> int:
        """Time in ps, with one value after the other."""
        return sum(sum(way.times_ps) if isinstance(way, ReshardPath) else way.time_ps for _, way in self.values)

    @property
    def min_bytes(self) -> int:
        return sum(way.min_bytes for _, way in self.values)


def plan_migration(
    old: Program,
    new: Program,
    hardware: Hardware,
    *,
    objective: Objective = Objective.TIME,
    devices: Sequence[Sequence[int]] | None = None,
) -> Migration:
    """Plan the reshards of all state that `new` holds from its layout in `old`.

    `devices` are the device numbers of the old and of the new mesh; None: both start at 0. Raises InvalidGraph where
    the old plan lacks a state of the new one, or holds it in another type.
    """
    numbers = devices or (range(old.mesh.devices), range(new.mesh.devices))
    held = {entry.id: entry for entry in old.graph.inputs}
    layouts = [dict(program.arguments) for program in (old, new)]
    ways: dict[object, ReshardWay] = {}
    values = []
    for entry in (entry for entry in new.graph.inputs if entry.kind in STATE_KINDS):
        if entry.id not in held or held[entry.id].type != entry.type:
            got = str(held[entry.id].type) if entry.id in held else "nothing"
            raise InvalidGraph("state differs from the old plan's", where=entry.id, got=got, wanted=str(entry.type))
        ends = [layout[entry.id] for layout in layouts]
        key = entry.type, *ends
        if key not in ways:
            places = [
                PlacedSharding(*each) for each in zip(ends, (old.mesh, new.mesh), map(tuple, numbers), strict=True)
            ]
            ways[key] = find_reshard(places[0], places[1], entry.type, hardware=hardware, objective=objective)
        values.append((entry, ways[key]))
    return Migration(tuple(values))


def find_reshard(
    source: PlacedSharding,
    target: PlacedSharding,
    kind: TensorType,
    *,
    hardware: Hardware,
    objective: Objective = Objective.TIME,
    limit_bytes: int | None = None,
) -> ReshardWay:
    """Find the cheapest program on one mesh, or the exchange between two.

    Raises InvalidSharding for a sharding that does not fit the tensor or its mesh.
    """
    ends = [
        replace(place, sharding=_check_sharding(place, kind, what))
        for place, what in ((source, "source"), (target, "target"))
    ]
    if (source.mesh.shape, source.devices) == (target.mesh.shape, target.devices):
        model = CostModel(source.mesh, hardware)
        return find_cheapest_path(
            ends[0].sharding, ends[1].sharding, kind, model=model, objective=objective, limit_bytes=limit_bytes
        )
    return CrossMeshReshard(ends[0], ends[1], kind, hardware)


def _check_sharding(place: PlacedSharding, kind: TensorType, what: str) -> Sharding:
    sharding = place.sharding.checked(kind.shape, place.mesh, what)
    if sharding.partial and (wanted := sharding.reduction.dtype_error(kind.dtype)):
        raise InvalidSharding(f"partial {sharding.reduction}", where=what, got=kind.dtype, wanted=wanted)
    return sharding
