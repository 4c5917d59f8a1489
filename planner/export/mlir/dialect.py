"""The two dialects that upstream reads, and values, types and shardings in them.

mesh   mlir-opt 19: a sharding is an attribute, and may be partial
shard  mlir-opt 22: a sharding is a value, and may have halos or offsets
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping, Sequence
from enum import StrEnum

from planner.errors import InvalidSharding
from planner.ir.dtypes import is_float, is_unsigned
from planner.ir.graph import TensorType
from planner.ir.mesh import Mesh
from planner.ir.sharding import Sharding
from planner.spmd import INDEX, LocalType

MESH_SYMBOL = "@mesh"
_ELEMENT = {"f8e4m3": "f8E4M3FN", "f8e5m2": "f8E5M2", "bool": "i1"}
_BITS = {"f64": "<d", "f32": "<f", "f16": "<e", "bf16": "<f"}
_BARE = re.compile(r"[A-Za-z_][\w$.]*", re.ASCII)
_VALUE = re.compile(r"[0-9]+|[A-Za-z$._-][\w$.-]*", re.ASCII)


class SymbolRef(str):
    """The text of a symbol, `@name`, as an attribute."""


class Dialect(StrEnum):
    """The dialect of a text, by the upstream tool that reads it."""

    MESH = "mesh"
    SHARD = "shard"

    @property
    def axes(self) -> str:
        """The keyword before the mesh axes of a collective."""
        return "mesh_axes" if self is Dialect.MESH else "grid_axes"

    def reduction(self, kind: str) -> str:
        return f"<{kind}>" if self is Dialect.MESH else kind


def element_type(dtype: str) -> str:
    return _ELEMENT.get(dtype) or (f"ui{dtype[1:]}" if is_unsigned(dtype) else dtype)


def tensor_type(kind: TensorType | LocalType) -> str:
    if kind == INDEX:
        return INDEX.dtype
    dims = ("?x" if dim is None else f"{dim}x" for dim in kind.shape)
    return f"tensor<{''.join(dims)}{element_type(kind.dtype)}>"


def quote(text: str) -> str:
    """Format a string literal; what is not printable ASCII is written as bytes of UTF-8."""
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'\\"' else f"\\{b:02X}" for b in text.encode()) + '"'


def symbol_name(name: str) -> str:
    return f"@{name}" if _BARE.fullmatch(name) else f"@{quote(name)}"


def is_value_name(name: str) -> bool:
    return _VALUE.fullmatch(name) is not None


def format_attribute(value: object) -> str:
    """Format a Python value as an attribute. Raises TypeError for one that no attribute can be."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return f"{value} : i64"
        case float():
            return f"{format_number(value, 'f64')} : f64"
        case SymbolRef():
            return str(value)
        case str():
            return quote(value)
        case Mapping():
            return format_attributes(value).strip() or "{}"
        case Sequence():
            return f"[{', '.join(map(format_attribute, value))}]"
        case _:
            raise TypeError(f"no attribute: {type(value).__name__}")


def format_attributes(entries: Mapping[str, object]) -> str:
    """Format ` {key = value, ...}`; an empty string without entries."""
    if not entries:
        return ""
    keys = [key if _BARE.fullmatch(key) else quote(key) for key in entries]
    return " {" + ", ".join(f"{k} = {format_attribute(v)}" for k, v in zip(keys, entries.values(), strict=True)) + "}"


def format_number(value: float, dtype: str) -> str:
    """Format a literal of the dtype; what is not finite is written as its bits."""
    if dtype == "bool":
        return "true" if value else "false"
    if not is_float(dtype):
        return str(int(value))
    if math.isfinite(value):
        mantissa, e, exponent = repr(float(value)).partition("e")
        return (mantissa if "." in mantissa else f"{mantissa}.0") + e + exponent
    raw = struct.pack(_BITS[dtype], value)[::-1]
    return "0x" + (raw[:2] if dtype == "bf16" else raw).hex().upper()


def mesh_declaration(mesh: Mesh, dialect: Dialect, name: str = MESH_SYMBOL, *, devices: Sequence[int] = ()) -> str:
    """Declare the mesh as a symbol.

    Names, links, device type and device numbers are in attributes of our own, where there are any.
    """
    word = "mesh.mesh" if dialect is Dialect.MESH else "shard.grid"
    shape = "x".join(str(axis.size or "?") for axis in mesh.axes)
    entries: dict[str, object] = {}
    if mesh.names != tuple(map(str, range(len(mesh.axes)))):
        entries["shardplan.axes"] = list(mesh.names)
    if links := {axis.name: axis.link for axis in mesh.axes if axis.link}:
        entries["shardplan.links"] = links
    if mesh.device:
        entries["shardplan.device"] = mesh.device
    if devices:
        entries["shardplan.devices"] = list(devices)
    return f"{word} {name}(shape = {shape}){format_attributes(entries)}"


def format_axis_lists(axes: Sequence[Sequence[int]]) -> str:
    inner = (", ".join(map(str, each)) for each in axes or ((),))
    return "[" + ", ".join(f"[{each}]" for each in inner) + "]"


def sharding_attribute(sharding: Sharding, where: str) -> str:
    """Format `<@mesh, [[0]], partial = sum[1]>`. Raises InvalidSharding where mlir-opt 19 cannot express it."""
    if sharding.halo_sizes or sharding.sharded_dims_offsets:
        got, wanted = str(sharding), "the shard dialect (22)"
        raise InvalidSharding("mlir-opt 19 has no halos and no offsets", where=where, got=got, wanted=wanted)
    axes = ", ".join(map(str, sharding.partial))
    partial = f", partial = {sharding.reduction}[{axes}]" if sharding.partial else ""
    return f"<{MESH_SYMBOL}, {format_axis_lists(sharding.split_axes)}{partial}>"


def sharding_value(sharding: Sharding, where: str, dialect: Dialect = Dialect.SHARD, *, mesh: str = MESH_SYMBOL) -> str:
    """Format `shard.sharding @mesh split_axes = [[0]] ...`. Raises InvalidSharding where mlir-opt 22 cannot express
    it.
    """
    if sharding.partial and dialect is Dialect.SHARD:
        got, wanted = str(sharding), "the mesh dialect (19)"
        raise InvalidSharding("mlir-opt 22 has no partial tensors", where=where, got=got, wanted=wanted)
    text = f"{dialect}.sharding {mesh} split_axes = {format_axis_lists(sharding.split_axes)}"
    if sharding.partial:
        text += f" partial = {sharding.reduction}[{', '.join(map(str, sharding.partial))}]"
    cuts = [cut for dim in sharding.sharded_dims_offsets for cut in dim]
    for key, sizes in (("halo_sizes", sharding.halo_sizes), ("sharded_dims_offsets", cuts)):
        text += f" {key} = [{', '.join(map(str, sizes))}]" if sizes else ""
    return f"{text} : !{dialect}.sharding"
