"""Placements and specs as JSON, by value of the graph, for those who do not plan in Python.

    {"mesh": {"dp": 2, "tp": 4}, "arguments": [...], "values": {...}, "results": [...], "remarks": [...]}

An argument has its id, kind, name and layout, in the order of the graph. A value of the graph, and a result, has a
layout.
DTensor  a placement per axis of the mesh: {"replicate": true}, {"shard": dim}, {"shard": dim, "split_factor": n} for
         the strided one, {"partial": reduction}. Gradients are values like all others; a partial one says so.
JAX      an entry per dim: null, an axis, or a list of axes, major first, as PartitionSpec takes them.
What a framework cannot express is left out, and a remark says where.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from planner.errors import ShardplanError
from planner.ir.program import Program

Layout = Any
Write = Callable[..., tuple[Layout, list[str]]]


def dtensor_document(program: Program) -> str:
    """Return the JSON text with DTensor placements. Raises InvalidSharding, naming the value."""
    write = import_module("planner.export.dtensor").placements
    return _build_document(program, write, lambda placements: [_placement(each) for each in placements])


def partition_spec_document(program: Program) -> str:
    """Return the JSON text with PartitionSpec entries. Raises InvalidSharding, naming the value."""
    write = import_module("planner.export.partition_spec").partition_spec
    return _build_document(
        program, write, lambda spec: [list(each) if isinstance(each, tuple) else each for each in spec]
    )


def load_placements(layout: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
    """Return the DTensor placements of a layout in a document."""
    kinds = import_module("torch.distributed.tensor.placement_types")

    def read(entry: Mapping[str, Any]) -> Any:
        if "shard" not in entry:
            return kinds.Partial(entry["partial"]) if "partial" in entry else kinds.Replicate()
        if "split_factor" in entry:
            return kinds._StridedShard(entry["shard"], split_factor=entry["split_factor"])
        return kinds.Shard(entry["shard"])

    return tuple(map(read, layout))


def distribute_module(module: Any, device_mesh: Any, document: Mapping[str, Any]) -> Any:
    """Place the parameters and buffers of a torch.nn.Module, by name, as a document says; others are replicated."""
    tensor = import_module("torch.distributed.tensor")
    named = {entry["name"]: entry["layout"] for entry in document["arguments"] if entry["kind"] != "input"}

    def place(prefix: str, part: Any, mesh: Any) -> None:
        for holder, wrap in (
            (part._parameters, import_module("torch.nn").Parameter),
            (part._buffers, lambda held: held),
        ):
            for key, held in holder.items():
                layout = named.get(f"{prefix}.{key}".lstrip("."))
                if held is not None and layout is not None:
                    holder[key] = wrap(tensor.distribute_tensor(held.data, mesh, load_placements(layout)))

    return tensor.distribute_module(module, device_mesh, place)


def _placement(placement: Any) -> dict[str, Any]:
    if placement.is_partial():
        return {"partial": placement.reduce_op}
    if not hasattr(placement, "dim"):
        return {"replicate": True}
    factor = getattr(placement, "split_factor", 1)
    return {"shard": placement.dim} | ({"split_factor": factor} if factor > 1 else {})


def _build_document(program: Program, found: Write, shown: Callable[[Any], Layout]) -> str:
    remarks: dict[str, None] = {}

    def layout(value: str) -> Layout:
        held = program.values[value]
        try:
            made, lacking = found(held.sharding, held.type.shape, program.mesh)
        except ShardplanError as error:
            raise error.at(f"value {value!r}") from None
        remarks.update(dict.fromkeys(f"{value}: {remark}" for remark in lacking))
        return shown(made)

    document = {
        "graph": program.graph.name,
        "mesh": dict(zip(program.mesh.names, program.mesh.shape, strict=True)),
        "arguments": [
            {"id": i.id, "kind": i.kind, "name": i.name, "layout": layout(i.id)} for i in program.graph.inputs
        ],
        "values": {value: layout(value) for op in program.graph.ops for value in op.values},
        "results": [
            {"id": value, "layout": layout(held)}
            for value, held in zip(program.graph.outputs, program.outputs, strict=True)
        ],
    }
    return json.dumps({**document, "remarks": list(remarks)}, indent=1) + "\n"
