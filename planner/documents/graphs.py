"""Graph and mesh documents, and the values they describe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

from planner.documents.json_reader import read_json
from planner.documents.schemas import (
    AnnotationDocument,
    GraphDocument,
    InputDocument,
    MeshDocument,
    NodeDocument,
    PinsDocument,
    ShardingDocument,
    validate_document,
)
from planner.errors import InvalidGraph, InvalidSharding, ShardplanError
from planner.ir.graph import Annotation, Graph, Input, Op, TensorType, check_sizes, value_id
from planner.ir.indexing import Option, Rule
from planner.ir.mesh import Mesh, MeshAxis
from planner.ir.sharding import Axes, Reduction, Sharding
from planner.ops import bind_op


def read_graph(path: Path, mesh: Mesh, pins: Path | None = None) -> Graph:
    """Return the graph in a file, with the annotations of a pins file added. Raises ShardplanError with the place."""
    document = validate_document(GraphDocument, read_json(path), str(path))
    more = validate_document(PinsDocument, read_json(pins), str(pins)).annotations if pins else []
    try:
        return load_graph(document, mesh, more)
    except ShardplanError as error:
        raise error.at(str(path)) from None


def load_graph(document: GraphDocument, mesh: Mesh, pins: Iterable[AnnotationDocument] = ()) -> Graph:
    """Return the graph of a document; annotations name axes of the mesh. Raises ShardplanError."""
    counts = Counter([*(entry.id for entry in document.inputs), *(node.id for node in document.nodes)])
    if twice := [name for name, count in counts.items() if count > 1]:
        raise InvalidGraph("id used twice", where=f"id {twice[0]!r}", wanted="unique ids")
    inputs = tuple(_load_input(entry) for entry in document.inputs)
    types = {entry.id: entry.type for entry in inputs}
    for node in document.nodes:
        for k, output in enumerate(node.outputs):
            types[value_id(node.id, k)] = _load_type(output.shape, output.dtype, f"node {node.id!r}")
    return Graph(
        document.name,
        inputs,
        tuple(_load_op(node, types, mesh) for node in document.nodes),
        tuple(document.outputs),
        tuple(_load_annotation(entry, mesh) for entry in (*document.annotations, *pins)),
        MappingProxyType(dict(document.producer)),
    )


def _load_input(entry: InputDocument) -> Input:
    return Input(
        entry.id, entry.kind, entry.name, _load_type(entry.shape, entry.dtype, f"input {entry.id!r}"), entry.next
    )


def _load_type(shape: Iterable[int], dtype: str, where: str) -> TensorType:
    try:
        return _tensor_type(tuple(shape), dtype)
    except InvalidGraph as error:
        raise error.at(where) from None


_tensor_type = lru_cache(maxsize=4096)(TensorType)
"""Cached, because a graph has few distinct types and each is checked when it is made."""


def _load_op(node: NodeDocument, types: Mapping[str, TensorType], mesh: Mesh) -> Op:
    where = f"node {node.id!r}"
    for value in node.inputs:
        if value not in types:
            raise InvalidGraph("use of an undefined value", where=where, got=value, wanted="a known id")
    operands = tuple(types[value] for value in node.inputs)
    results = tuple(types[value_id(node.id, k)] for k in range(len(node.outputs)))
    try:
        rule = bind_op(node.op, operands, results, attrs=node.attrs, notation=node.rule)
        option = None if node.option is None else load_option(node.option, rule, mesh)
    except ShardplanError as error:
        raise error.at(f"{where} ({node.op})") from None
    attrs = MappingProxyType(dict(node.attrs))
    return Op(node.id, node.op, tuple(node.inputs), results, rule, attrs, node.scope, node.phase, node.rule, option)


def load_option(document: Mapping[str, Sequence[int | str]], rule: Rule, mesh: Mesh) -> Option:
    """Return the option that splits the named loops. Raises InvalidMesh, InvalidSharding for an unknown loop."""
    names = [loop.name for loop in rule.loops]
    for name in document:
        if name not in names:
            raise InvalidSharding("option of an unknown loop", got=name, wanted=f"one of {', '.join(names)}")
    return tuple(tuple(mesh.axis(axis) for axis in document.get(name, ())) for name in names)


def dump_option(option: Option, rule: Rule, mesh: Mesh) -> dict[str, list[str]]:
    """Return the loops that an option splits, with the names of their mesh axes."""
    split = zip(rule.loops, option, strict=False)
    return {loop.name: [mesh.names[axis] for axis in axes] for loop, axes in split if axes}


def _load_annotation(entry: AnnotationDocument, mesh: Mesh) -> Annotation:
    try:
        sharding = load_sharding(entry.sharding, mesh)
    except ShardplanError as error:
        raise error.at(f"annotation of {entry.value!r}") from None
    return Annotation(entry.value, sharding, entry.required, entry.user, entry.operand)


def load_sharding(document: ShardingDocument, mesh: Mesh) -> Sharding:
    """Return the sharding of a document. Raises InvalidMesh for an axis the mesh lacks, InvalidSharding."""
    partial = document.partial
    split = tuple(tuple(mesh.axis(axis) for axis in axes) for axes in document.split_axes)
    return Sharding(
        split,
        tuple(mesh.axis(axis) for axis in partial.axes) if partial else (),
        Reduction(partial.reduction) if partial else Reduction.SUM,
        tuple(document.halo_sizes),
        split_offsets(document.sharded_dims_offsets, split, mesh),
    )


def split_offsets(flat: Sequence[int], split: Sequence[Axes], mesh: Mesh) -> tuple[tuple[int, ...], ...]:
    """Return the dialect's flat list of offsets as one tuple per dim. Raises InvalidSharding for a wrong count."""
    counts = [mesh.group_size(axes) + 1 for axes in split if axes and flat]
    if sum(counts) != len(flat):
        raise InvalidSharding("number of sharded dims offsets", got=len(flat), wanted=" + ".join(map(str, counts)))
    ends = list(accumulate(counts, initial=0))
    return tuple(tuple(flat[start:stop]) for start, stop in pairwise(ends))


def dump_sharding(sharding: Sharding, mesh: Mesh) -> dict[str, Any]:
    """Return the document of a sharding, with the names of the mesh axes."""
    document: dict[str, Any] = {"split_axes": [[mesh.names[axis] for axis in axes] for axes in sharding.split_axes]}
    if sharding.partial:
        names = [mesh.names[axis] for axis in sharding.partial]
        document["partial"] = {"reduction": sharding.reduction.value, "axes": names}
    if sharding.halo_sizes:
        document["halo_sizes"] = list(sharding.halo_sizes)
    if sharding.sharded_dims_offsets:
        document["sharded_dims_offsets"] = [cut for cuts in sharding.sharded_dims_offsets for cut in cuts]
    return document


def dump_graph(graph: Graph, mesh: Mesh) -> dict[str, Any]:
    """Return the document of a graph, with the names of the mesh axes. Raises InvalidGraph for unknown sizes."""
    check_sizes(graph)
    return {
        "format": "shardplan.graph",
        "version": 1,
        "name": graph.name,
        "producer": dict(graph.producer),
        "inputs": [_dump_input(i) for i in graph.inputs],
        "nodes": [_dump_node(op, mesh) for op in graph.ops],
        "outputs": list(graph.outputs),
        "annotations": [_dump_annotation(annotation, mesh) for annotation in graph.annotations],
    }


def _dump_annotation(one: Annotation, mesh: Mesh) -> dict[str, Any]:
    sharding = dump_sharding(one.sharding, mesh)
    document = {"value": one.value, "sharding": sharding, "required": one.required, "user": one.user}
    return document if one.operand is None else {**document, "operand": one.operand}


def _dump_input(entry: Input) -> dict[str, Any]:
    document = {"id": entry.id, "kind": entry.kind, "name": entry.name, **_dump_type(entry.type)}
    return document if entry.next is None else {**document, "next": entry.next}


def _dump_type(kind: TensorType) -> dict[str, Any]:
    return {"shape": list(kind.shape), "dtype": kind.dtype}


def _dump_node(op: Op, mesh: Mesh) -> dict[str, Any]:
    node: dict[str, Any] = {
        "id": op.id,
        "op": op.op,
        "inputs": list(op.inputs),
        "attrs": dict(op.attrs),
        "outputs": [_dump_type(kind) for kind in op.results],
        "scope": op.scope,
        "phase": op.phase,
    }
    if op.notation is not None:
        node["rule"] = op.notation
    if op.option is not None:
        node["option"] = dump_option(op.option, op.rule, mesh)
    return node


def read_mesh(text: str, device: str | None = None) -> Mesh:
    """Return the mesh of `dp=2,tp=4`, `2x4`, or the path of a mesh document. Raises InvalidMesh or InvalidDocument."""
    path = Path(text)
    if not (text.endswith((".json", ".json.gz")) or path.is_file()):
        return Mesh.parse(text, device)
    mesh = load_mesh(validate_document(MeshDocument, read_json(path), str(path)))
    return mesh if mesh.device else Mesh(mesh.axes, device)


def load_mesh(document: MeshDocument) -> Mesh:
    """Return the mesh of a document."""
    axes = (MeshAxis(a.name, None if a.size == "?" else a.size, a.link) for a in document.axes)
    return Mesh(tuple(axes), document.device)


def dump_mesh(mesh: Mesh) -> dict[str, Any]:
    """Return the document of a mesh."""
    axes = [{"name": a.name, "size": a.size or "?", **({"link": a.link} if a.link else {})} for a in mesh.axes]
    return {
        "format": "shardplan.mesh",
        "version": 1,
        "axes": axes,
        **({"device": mesh.device} if mesh.device else {}),
    }
