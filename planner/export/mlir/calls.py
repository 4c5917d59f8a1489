"""Collectives and queries as the two versions of the dialect write them.

What mlir-opt 19 or 22 knows is written as that version reads it. What it does not know is written as in the documents,
for our own reader: update_halo and shard_shape in 19; in 22, halos that change their size, and a device by a linear
index of run time; in both collective_permute and the RFC's idx and size. What none of them can express (blocks of a
whole tensor, paths that only some devices take, the function of a generic reduction) is in attributes shardplan.*.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from planner.export.mlir.dialect import (
    Dialect,
    format_attributes,
    format_axis_lists,
    sharding_value,
    symbol_name,
    tensor_type,
)
from planner.export.mlir.module_writer import ModuleWriter
from planner.ir.sharding import Sharding
from planner.spmd import SpmdCall, SpmdProgram
from planner.spmd.cluster import is_static
from planner.spmd.folding import multi_index
from planner.spmd.op_def import DYNAMIC, SpmdOpDef
from planner.spmd.op_table import MESH_SHAPE_OPS, MOVES, QUERIES, SPMD_OPS
from planner.spmd.verify import count_dynamic_numbers

SHARDPLAN_PREFIX = ("block", "only", "reducer")
QUERY_NAMES = frozenset(row.name for row in QUERIES)
_HALO = MOVES[-1].name


def write_call(page: ModuleWriter, program: SpmdProgram, call: SpmdCall) -> None:
    """Write a call. Raises InvalidSharding for a sharding that the dialect cannot express."""
    _CallWriter(page, program, call).write()


@dataclass
class _CallWriter:
    page: ModuleWriter
    program: SpmdProgram
    call: SpmdCall
    tensors: list[str] = field(init=False)
    numbers: list[str] = field(init=False)

    def __post_init__(self) -> None:
        names = [self.page.names[name] for name in self.call.operands]
        attrs = dict.fromkeys(self.row.dynamic_attrs) | dict(self.call.attrs)
        count = len(names) - count_dynamic_numbers(self.row, attrs)
        self.tensors, self.numbers = names[:count], names[count:]

    @property
    def row(self) -> SpmdOpDef:
        return SPMD_OPS[self.call.op]

    @property
    def mesh(self) -> str:
        return self.program.mesh_name(self.call)

    def write(self) -> None:
        call, dialect = self.call, self.page.dialect
        clauses = " ".join(filter(None, self.clauses()))
        result, kept = self.page.results(call.results)
        kept |= {
            f"shardplan.{key}": _to_text(call.attrs[key]) for key in SHARDPLAN_PREFIX if call.attrs.get(key) is not None
        }
        kept |= {"axis": call.attrs["axis"]} if call.op in MESH_SHAPE_OPS else {}
        word = "grid_shape" if call.op == "mesh_shape" and dialect is Dialect.SHARD else call.op
        self.page.write(
            f"{result} = {dialect}.{word} {clauses}".rstrip() + f"{format_attributes(kept)} : {self.types()}"
        )

    def clauses(self) -> Iterator[str]:
        """Yield operands, mesh and attributes in the dialect's order: dynamic numbers last."""
        yield " into ".join(self.tensors)
        if self.call.op == "shard_shape":
            yield from self.shard_shape()
        elif self.call.op not in MESH_SHAPE_OPS:
            yield ("" if self.call.op == "mesh_shape" else "on ") + symbol_name(self.mesh)
            numbers = iter(self.numbers)
            for key, value in self.attrs():
                yield self.clause(key, value, numbers)

    def attrs(self) -> Iterator[tuple[str, Any]]:
        keys = sorted(self.row.attrs, key=lambda key: key in self.row.dynamic_attrs)
        given = {key: self.call.attrs[key] for key in keys if key in self.call.attrs and key not in SHARDPLAN_PREFIX}
        if self.keeps_halos():
            self.numbers = [self.as_i64(name) for name in self.numbers[: len(self.numbers) // 2]]
            given = {"split_axes": given["split_axes"], "halo_sizes": given["source_halo_sizes"]}
        yield from given.items()

    def clause(self, key: str, value: Any, numbers: Iterator[str]) -> str:
        dialect = self.page.dialect
        if value is None or value is False:
            return ""
        match key:
            case "mesh_axes":
                return f"{dialect.axes} = {_numbers(value, numbers)}"
            case "reduction":
                return f"reduction = {dialect.reduction(value)}"
            case "rotate":
                return "rotate"
            case "target":
                return f"target = {symbol_name(value)}"
            case "split_axes" | "pairs" if value:
                return f"{key} = {format_axis_lists(value)}"
            case _:
                return f"{key} = {_numbers(value, numbers) if isinstance(value, list | tuple) else value}"

    def keeps_halos(self) -> bool:
        """Return whether an update_halo leaves the halo sizes as they are, which is all that upstream knows."""
        if self.call.op != _HALO or len(self.tensors) > 1:
            return False
        attrs, half = dict[str, Any](self.call.attrs), len(self.numbers) // 2
        before, after = (list(attrs[key]) for key in self.row.dynamic_attrs)
        same = before == after and self.numbers[:half] == self.numbers[half:]
        return same and self.call.types[0] == self.program.values[self.call.operands[0]].type

    def as_i64(self, name: str) -> str:
        """Cast a halo size to i64; all other numbers are of type index."""
        cast = self.page.fresh("size")
        self.page.write(f"{cast} = arith.index_cast {name} : index to i64")
        return cast

    def shard_shape(self) -> Iterator[str]:
        attrs, numbers = dict[str, Any](self.call.attrs), iter(self.numbers)
        sharding, device = attrs["sharding"], attrs["device"]
        assert isinstance(sharding, Sharding)
        layout = self.page.fresh("sharding")
        line = sharding_value(sharding, self.call.where, self.page.dialect, mesh=symbol_name(self.mesh))
        self.page.write(f"{layout} = {line}")
        yield f"dims = {_numbers(attrs['shape'], numbers)} sharding = {layout}"
        mesh = self.program.meshes[self.mesh]
        if device is DYNAMIC:
            yield f"device = {next(numbers)}"
        else:
            yield f"device = {list(multi_index(mesh, device)) if is_static(mesh) else device}"

    def types(self) -> str:
        """Format the types: `T -> U`, `(T, index) -> U` where numbers may be operands, `U` where no tensor is read."""
        call, row = self.call, self.row
        result_types = ", ".join(map(tensor_type, call.types))
        if call.op in QUERY_NAMES or self.keeps_halos():
            return result_types
        operand_types = [tensor_type(self.program.values[name].type) for name in call.operands]
        return (
            f"({', '.join(operand_types)}) -> {result_types}"
            if row.dynamic_attrs and call.op != _HALO
            else f"{operand_types[0]} -> {result_types}"
        )


def _numbers(values: Sequence[int | None], names: Iterator[str]) -> str:
    return f"[{', '.join(next(names) if value is DYNAMIC else str(value) for value in values)}]"


def _to_text(value: Any) -> Any:
    return list(map(_to_text, value)) if isinstance(value, list | tuple) else value
