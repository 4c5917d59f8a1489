"""Symbolic dims of a model's inputs -> numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from onnx import TypeProto, ValueInfoProto

from planner.errors import InvalidGraph, InvalidRequest


def bind_dims(inputs: Iterable[ValueInfoProto], sizes: Mapping[str, int]) -> dict[str, TypeProto]:
    """Return the type of every input with numbers for dims. A dim without a name is named by its place: `x:0`.

    Raises InvalidRequest for a size below 1 or a dim that no input has, InvalidGraph for a dim without a size and for
    an input that is no tensor.
    """
    for name, size in sizes.items():
        if size < 1:
            raise InvalidRequest("size of a dim", where=name, got=size, wanted="1 or more")
    types, known = {}, set[str]()
    for entry in inputs:
        if not entry.type.HasField("tensor_type") or not entry.type.tensor_type.HasField("shape"):
            got = entry.type.WhichOneof("value") or "nothing"
            raise InvalidGraph("input", where=entry.name, got=got, wanted="a tensor with a shape")
        types[entry.name] = _bind_entry(entry, sizes, known)
    if strange := sorted(set(sizes) - known):
        wanted = f"one of {', '.join(sorted(known))}" if known else "no --dim: every size is fixed"
        raise InvalidRequest("dim that no input has", got=strange[0], wanted=wanted)
    return types


def infer_dims(inputs: Iterable[ValueInfoProto], shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Return the sizes of symbolic dims for inputs of these shapes; an input without a shape is unread and gets 1."""
    sizes: dict[str, int] = {}
    for entry in inputs:
        dims = entry.type.tensor_type.shape.dim
        for place, dim in enumerate(dims):
            if not dim.HasField("dim_value"):
                shape = shapes.get(entry.name, ())
                name = dim.dim_param or f"{entry.name}:{place}"
                sizes[name] = shape[place] if len(shape) == len(dims) else sizes.get(name, 1)
    return sizes


def _bind_entry(entry: ValueInfoProto, sizes: Mapping[str, int], known: set[str]) -> TypeProto:
    """Return the type of one input with numbers for dims; add the names of its symbolic dims to `known`."""
    kind = TypeProto()
    kind.CopyFrom(entry.type)
    for place, dim in enumerate(kind.tensor_type.shape.dim):
        if dim.HasField("dim_value"):
            continue
        name = dim.dim_param or f"{entry.name}:{place}"
        known.add(name)
        if name not in sizes:
            wanted = f"a size for it: --dim {name}=8"
            raise InvalidGraph("dynamic dim", where=f"input {entry.name!r} dim {place}", got=name, wanted=wanted)
        dim.dim_value = sizes[name]
    return kind
