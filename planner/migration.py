"""A tensor, or the state of a whole plan, brought from one layout to another; and the verdict of having run it.

State is what a plan holds between steps: parameters, buffers and optimizer state. On the same mesh a value takes the
cheapest program between its two shardings; on another, one exchange between the meshes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.choose.cost import CostModel
from planner.choose.handover import Handover
from planner.choose.hardware import Hardware
from planner.choose.route import Objective, Route, route
from planner.errors import InvalidGraph, InvalidSharding
from planner.model.between import Place
from planner.model.graph import Input, TensorType
from planner.model.program import Program
from planner.model.sharding import Shape, Sharding
from planner.run.between import arrives
from planner.run.shrink import shrink
from planner.run.validate import validate

Integers = NDArray[np.int64]
Way = Route | Handover
STATE = ("parameter", "buffer", "optimizer_state")
MOST_ELEMENTS = 1 << 22
"""Elements on all devices together up to which a way is run at its own sizes."""


def runs_right(way: Way) -> bool | None:
    """Whether a way, run on every logical device, brings what it should, counted bytes as predicted.

    Large tensors are shrunk alike first; None where they cannot be.
    """
    if isinstance(way, Route):
        program = way.program if _elements(way) <= MOST_ELEMENTS else shrink(way.program)
        small = math.prod(program.graph.inputs[0].type.shape) * program.mesh.devices
        if program is way.program and _elements(way) > MOST_ELEMENTS < small:
            return None
        return validate(program, shrinking="none").verdict == "equal"
    kind = way.kind if _elements(way) <= MOST_ELEMENTS else TensorType(_small(way), way.kind.dtype)
    if math.prod(kind.shape) * max(way.source.mesh.devices, way.target.mesh.devices) > 2 * MOST_ELEMENTS:
        return None
    return arrives(way.source, way.target, kind)


def _elements(way: Way) -> int:
    """What all devices hold together at the fullest."""
    return int(way.buffers.sum(axis=1).max()) // way.kind.itemsize


def _small(way: Handover) -> Shape:
    """A shape on which both meshes cut as they do on the tensor's, as uneven as it is; offsets and halos stay."""
    return tuple(_small_dim(way, dim, size) for dim, size in enumerate(way.kind.shape))


def _small_dim(way: Handover, dim: int, size: int) -> int:
    ends = (way.source, way.target)
    if any(place.sharding.cut(dim) for place in ends):
        return size
    parts = math.lcm(*(place.mesh.group_size(place.sharding.split_axes[dim]) for place in ends))
    return min(size, size % parts + parts * (2 if size % parts else 1))


@dataclass(frozen=True)
class Migration:
    """The state of one plan in the layout of another: each value with its way, the same for equal values."""

    values: tuple[tuple[Input, Way], ...]

    @property
    def ways(self) -> tuple[Way, ...]:
        """The different ones."""
        return tuple({id(way): way for _, way in self.values}.values())

    @cached_property
    def received(self) -> Integers:
        """[devices by number]: bytes."""
        most = max((way.received.shape[-1] for way in self.ways), default=0)
        total = np.zeros(most, np.int64)
        for _, way in self.values:
            received = way.received.reshape(-1, way.received.shape[-1]).sum(axis=0)
            total[: len(received)] += received
        return total

    @property
    def time_ps(self) -> int:
        """One value after the other."""
        return sum(sum(way.times_ps) if isinstance(way, Route) else way.time_ps for _, way in self.values)

    @property
    def least_bytes(self) -> int:
        return sum(way.least_bytes for _, way in self.values)


def migrate(
    old: Program,
    new: Program,
    hardware: Hardware,
    objective: Objective = Objective.TIME,
    devices: Sequence[Sequence[int]] | None = None,
) -> Migration:
    """The ways of all state of `old` that `new` holds; `devices` are the numbers of the old and new mesh's.

    Raises InvalidGraph where the new plan holds state that the old one has not, or has in another type.
    """
    numbers = devices or (range(old.mesh.devices), range(new.mesh.devices))
    held = {entry.id: entry for entry in old.graph.inputs}
    ways: dict[object, Way] = {}
    values = []
    for entry in (entry for entry in new.graph.inputs if entry.kind in STATE):
        if entry.id not in held or held[entry.id].type != entry.type:
            got = str(held[entry.id].type) if entry.id in held else "nothing"
            raise InvalidGraph("the old plan holds other state", where=entry.id, got=got, wanted=str(entry.type))
        ends = [dict(program.arguments)[entry.id] for program in (old, new)]
        key = entry.type, *ends
        if key not in ways:
            places = [Place(*each) for each in zip(ends, (old.mesh, new.mesh), map(tuple, numbers), strict=True)]
            ways[key] = way_between(places[0], places[1], entry.type, hardware, objective)
        values.append((entry, ways[key]))
    return Migration(tuple(values))


def way_between(
    source: Place,
    target: Place,
    kind: TensorType,
    hardware: Hardware,
    objective: Objective = Objective.TIME,
    limit_bytes: int | None = None,
) -> Way:
    """The cheapest program on one mesh, or an exchange between two. Shardings are checked against the shape."""
    ends = [
        replace(place, sharding=_checked(place, kind, what)) for place, what in ((source, "source"), (target, "target"))
    ]
    if (source.mesh.shape, source.devices) == (target.mesh.shape, target.devices):
        model = CostModel(source.mesh, hardware)
        return route(ends[0].sharding, ends[1].sharding, kind, model, objective, limit_bytes)
    return Handover(ends[0], ends[1], kind, hardware)


def _checked(place: Place, kind: TensorType, what: str) -> Sharding:
    sharding = place.sharding.checked(kind.shape, place.mesh, what)
    if sharding.partial and (wanted := sharding.reduction.wants(kind.dtype)):
        raise InvalidSharding(f"partial {sharding.reduction}", where=what, got=kind.dtype, wanted=wanted)
    return sharding
