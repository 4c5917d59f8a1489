"""A program's shardings as multi-device annotations of the ONNX model that its graph came from (IR version 11).

Each node says in which shards it reads its operands and leaves its results. Communication is not written: it is what
lies between. A spec lists the devices shard by shard, row-major over the dims that are split; shards that several
devices hold are listed as a group under a negative number. Dims that the graph separates and the model merged (the
rows of a Gemm) are split one by one, major first, as the format foresees. Terms of a sum cannot be expressed: a node
leaves them reduced, as its first reader does. For the meaning of the format see onnx/onnx, docs/proposals/0006 and
0007.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from onnx import ModelProto, NodeDeviceConfigurationProto, NodeProto, ShardedDimProto, ShardingSpecProto

from planner.errors import InvalidRequest, InvalidSharding
from planner.ir.graph import Op
from planner.ir.mesh import Mesh
from planner.ir.program import OpCall, Program, Reshard
from planner.ir.sharding import Shape, Sharding

IR_VERSION = 11
"""The first IR version that has annotations."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The value of the graph that a value of the model became, and its shape in the model."""

    value: str
    shape: Shape


def annotate_model(model: ModelProto, program: Program, origins: Mapping[str, Origin]) -> None:
    """Write a program's shardings on the nodes of a model, as a configuration named after the mesh.

    Raises InvalidSharding, naming the value, for terms of a sum that are read, uneven shards, halos and offsets;
    InvalidRequest where the model already has a configuration of that name.
    """
    mesh = program.mesh
    if mesh.notation in (known.name for known in model.configuration):
        raise InvalidRequest("the model has this configuration already", got=mesh.notation, wanted="a model without")
    writer = _OnnxAnnotator(program, origins, {_first(node): node for node in model.graph.node})
    specs_of_nodes = [
        (node, list(writer.specs(node))) for node in model.graph.node
    ]  # before writing anything, so that an error leaves the model as it was
    for node, specs in specs_of_nodes:
        if specs:
            node.device_configurations.append(
                NodeDeviceConfigurationProto(configuration_id=mesh.notation, sharding_spec=specs)
            )
    model.configuration.add(name=mesh.notation, num_devices=mesh.devices, device=_mesh_name(mesh))
    model.ir_version = max(model.ir_version, IR_VERSION)


def _mesh_name(mesh: Mesh) -> list[str]:
    """Return the name of every device: its place on the mesh."""
    places = mesh.coordinates.tolist()
    return [",".join(f"{axis}={k}" for axis, k in zip(mesh.names, place, strict=True)) for place in places]


def _first(node: NodeProto) -> str:
    return next(filter(None, node.output), "")


class _OnnxAnnotator:
    def __init__(self, program: Program, origins: Mapping[str, Origin], nodes: Mapping[str, NodeProto]) -> None:
        self.program, self.origins, self.nodes = program, origins, nodes
        self.readers: dict[str, list[tuple[OpCall, int]]] = {}
        self.moves: dict[str, Reshard] = {}
        for done in program.instructions:
            if isinstance(done, Reshard):
                self.moves.setdefault(done.operand, done)
            else:
                for position, value in enumerate(done.op.inputs):
                    self.readers.setdefault(value, []).append((done, position))

    def specs(self, node: NodeProto) -> Iterator[ShardingSpecProto]:
        """Yield a spec for each operand and result that the graph has."""
        for name in dict.fromkeys((*node.input, *node.output)):
            if name not in self.origins:
                continue
            origin = self.origins[name]
            sharding = self._left(origin.value) if name in node.output else self._read(origin.value, node)
            _check_expressible(
                sharding, self.program.graph.types[origin.value].shape, self.program.mesh, where=f"value {name!r}"
            )
            spec = self._spec(name, origin, sharding)
            if spec is not None:
                yield spec

    def _read(self, value: str, node: NodeProto) -> Sharding:
        """Return the sharding in which an op of the node reads a value, or in which it is left without such an op."""
        readers = [(run, place, self._owner(run.op)) for run, place in self.readers.get(value, ())]
        for wanted in (node, None):  # an op without a node comes from an inlined function
            for run, place, owner in readers:
                if owner is wanted:
                    return run.operand_sharding(place, self.program.mesh)
        return self._left(value)

    def _owner(self, op: Op) -> NodeProto | None:
        """Return the node that an op belongs to.

        The op's id is the node's first result, or that and a number.
        """
        name, _, step = op.id.rpartition("/")
        return self.nodes.get(op.id) or (self.nodes.get(name) if step.isdigit() else None)

    def _left(self, value: str) -> Sharding:
        """Return how a node leaves a value: without the terms of a sum that its first reader finds reduced."""
        held = self.program.values[value].sharding
        while held.partial and value in self.moves:
            value = self.moves[value].result
            held = self.program.values[value].sharding
        return held

    def _spec(self, name: str, origin: Origin, sharding: Sharding) -> ShardingSpecProto | None:
        """Return the spec of a value; None where the model's dims are neither the graph's nor several of them
        merged.
        """
        mesh, shape = self.program.mesh, self.program.graph.types[origin.value].shape
        merged = _merge_dims(shape, origin.shape)
        if merged is None:
            return None
        spec = ShardingSpecProto(tensor_name=name)
        parts = [mesh.group_size(axes) for axes in sharding.split_axes]
        spec.sharded_dim.extend(_sharded_dims(shape, parts, merged))
        index = mesh.group_index([axis for axes in sharding.split_axes for axis in axes]).tolist()
        groups: list[list[int]] = [[] for _ in range(math.prod(parts))]
        for device, shard in enumerate(index):
            groups[shard].append(device)
        for number, group in enumerate(groups):
            spec.device.append(group[0] if len(group) == 1 else -1 - number)
            if len(group) > 1:
                spec.index_to_device_group_map.add(key=-1 - number, value=group)
        return spec


def _sharded_dims(shape: Shape, parts: list[int], merged: Iterable[range]) -> Iterator[ShardedDimProto]:
    """Yield, for every split dim of the model, the dims of the graph in it; only the major one where only it is
    split.
    """
    for axis, group in enumerate(merged):
        split = [dim for dim in group if parts[dim] > 1]
        if not split:
            continue
        sharded = ShardedDimProto(axis=axis)
        if split == [group[0]]:
            sharded.simple_sharding.add(dim_value=math.prod(shape[dim] for dim in group), num_shards=parts[group[0]])
        else:
            for dim in group:
                sharded.simple_sharding.add(dim_value=shape[dim], num_shards=parts[dim])
        yield sharded


def _merge_dims(shape: Shape, into: Shape) -> list[range] | None:
    """Return the dims of `shape` that each dim of `into` consists of; None where they do not match."""
    if shape == into:
        return [range(dim, dim + 1) for dim in range(len(shape))]
    merged, start = [], 0
    for size in into:
        stop = start
        while stop < len(shape) and math.prod(shape[start : stop + 1]) <= size:
            stop += 1
        if stop == start or math.prod(shape[start:stop]) != size:
            return None
        merged.append(range(start, stop))
        start = stop
    return merged if start == len(shape) else None


def _check_expressible(sharding: Sharding, shape: Shape, mesh: Mesh, *, where: str) -> None:
    if sharding.partial:
        what, wanted = "terms of a sum cannot be expressed in ONNX", "reduced before it is read"
        raise InvalidSharding(what, where=where, got=str(sharding), wanted=wanted)
    if sharding.halo_sizes or sharding.sharded_dims_offsets:
        raise InvalidSharding("halos and offsets cannot be expressed in ONNX", where=where, got=str(sharding))
    for dim, (size, axes) in enumerate(zip(shape, sharding.split_axes, strict=True)):
        if size % (parts := mesh.group_size(axes)):
            got, wanted = f"{size} over {parts} devices", "a multiple: ONNX leaves uneven shards to the backend"
            raise InvalidSharding(f"dim {dim} is split unevenly", where=where, got=got, wanted=wanted)
