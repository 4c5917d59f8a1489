"""The devices that take part in every instruction of an SPMD program, and their groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.ir.mesh import Mesh
from planner.spmd import Cluster, SpmdCall, SpmdInstruction, SpmdProgram
from planner.spmd.op_def import CallSignature
from planner.spmd.verify import check_call


@dataclass(frozen=True, slots=True)
class Participants:
    """An instruction, the position of every device in its mesh, and the group of every device, in group order.

    `path` are the devices on whose path the instruction stands; `axes` are those of its groups; `signature` is that of
    a call; `targets` are the devices of the mesh that it moves to.
    """

    instruction: SpmdInstruction
    mesh: Mesh
    positions: Mapping[int, int]
    groups: Mapping[int, tuple[int, ...]]
    path: frozenset[int]
    axes: tuple[int, ...] = ()
    signature: CallSignature | None = None
    targets: tuple[int, ...] = ()

    @property
    def where(self) -> str:
        return self.instruction.where

    @property
    def call(self) -> SpmdCall:
        assert isinstance(self.instruction, SpmdCall)
        return self.instruction

    @property
    def attrs(self) -> Mapping[str, Any]:
        assert self.signature is not None
        return self.signature.attrs


def find_participants(program: SpmdProgram, done: SpmdInstruction) -> Participants:
    """Return the participants of an instruction. Raises InvalidMesh where a mesh size is unknown."""
    cluster = program.clusters[program.mesh_name(done)]
    positions = {device: place for place, device in enumerate(cluster.devices)}
    if not isinstance(done, SpmdCall):
        alone = {device: (device,) for device in cluster.devices}
        return Participants(done, cluster.mesh, positions, alone, frozenset(cluster.devices))
    types = [program.values[name].type for name in done.operands]
    found = check_call(done, types, program.meshes, default=program.default_mesh)
    axes = _group_axes(found.attrs)
    groups = _groups(cluster, axes)
    target = found.attrs.get("target")
    targets: tuple[int, ...] = ()
    if target is not None:
        targets = program.clusters[target].devices
        everyone = tuple(dict.fromkeys((*cluster.devices, *targets)))
        groups = dict.fromkeys(everyone, everyone)
    return Participants(
        done, cluster.mesh, positions, groups, _execution_path(cluster, found, groups), axes, found, targets
    )


def _group_axes(attrs: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the axes of the groups: the listed ones, or those that split a dim with halos."""
    return tuple(attrs.get("mesh_axes", ())) or tuple(axis for axes in attrs.get("split_axes", ()) for axis in axes)


def _groups(cluster: Cluster, axes: Sequence[int]) -> dict[int, tuple[int, ...]]:
    found: dict[int, tuple[int, ...]] = {}
    for members in cluster.mesh.groups(axes).tolist():
        devices = tuple(cluster.devices[member] for member in members)
        found |= dict.fromkeys(devices, devices)
    return found


def _execution_path(cluster: Cluster, found: CallSignature, groups: Mapping[int, tuple[int, ...]]) -> frozenset[int]:
    only = found.attrs.get("only")
    if only is None:
        return frozenset(groups)
    sizes = [cluster.mesh.shape[axis] for axis in found.axes]
    places = [int(np.ravel_multi_index(tuple(each), sizes)) if sizes else 0 for each in only]
    return frozenset(group[place] for group in groups.values() for place in places)
