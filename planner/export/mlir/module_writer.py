"""The text of one module while it is written: lines of the function, declarations before it, free names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from planner.export.mlir.dialect import (
    Dialect,
    format_attributes,
    format_number,
    is_value_name,
    symbol_name,
    tensor_type,
)
from planner.ir.graph import TensorType, value_id
from planner.ir.mesh import Mesh
from planner.spmd import LocalType


@dataclass
class ModuleWriter:
    """A module that is being written.

    Names in `taken` are those of the graph. With `argument_starts` the tensors that linalg writes to are arguments.
    """

    mesh: Mesh
    dialect: Dialect
    taken: set[str]
    argument_starts: bool = False
    lines: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    callees: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def write(self, line: str) -> None:
        self.lines.append(f"  {line}")

    def fresh(self, hint: str) -> str:
        """Return a name that nothing has: `%hint`, `%hint_1`, ..."""
        hint = f"v{hint}" if hint[:1].isdigit() else hint
        hint = hint if is_value_name(hint) else "v"
        name = hint
        while name in self.taken:
            self.counts[hint] += 1
            name = f"{hint}_{self.counts[hint]}"
        self.taken.add(name)
        return f"%{name}"

    def name(self, value: str) -> tuple[str, dict[str, object]]:
        """Return the name of what an input or op makes, and an attribute for an id that cannot be a name."""
        if is_value_name(value):
            self.names[value] = f"%{value}"
            return f"%{value}", {}
        self.names[value] = self.fresh("v")
        return self.names[value], {"shardplan.id": value}

    def results(self, values: Sequence[str]) -> tuple[str, dict[str, object]]:
        """Return `%op` or `%op:2` for the results of one op, otherwise `%a, %b`, and attributes for the ids."""
        first, *others = values
        if all(value == value_id(first, k) for k, value in enumerate(others, start=1)):
            name, kept = self.name(first)
            self.names |= {value: f"{name}#{k}" for k, value in enumerate(others, start=1)}
            return (f"{name}:{len(values)}" if others else name), kept
        names = [self.name(value)[0] for value in values]
        unlike = names != [f"%{value}" for value in values]
        return ", ".join(names), {"shardplan.ids": list(values)} if unlike else {}

    def start(self, kind: TensorType, value: float | None, hint: str) -> str:
        """Return a tensor that linalg writes to (value None) or accumulates into.

        It is an argument where its size is unknown.
        """
        name = self.fresh(f"{hint}.start")
        if self.argument_starts or not kind.is_sized:
            self.arguments.append(f"{name}: {tensor_type(kind)} {{shardplan.init = true}}")
        elif value is None:
            self.write(f"{name} = tensor.empty() : {tensor_type(kind)}")
        else:
            self.write(f"{name} = arith.constant dense<{format_number(value, kind.dtype)}> : {tensor_type(kind)}")
        return name

    def callee(self, op: str, signature: str, entries: Mapping[str, object]) -> str:
        """Return the symbol of a private function that stands for an op without an upstream operation."""
        described = f"{signature} attributes{format_attributes({'shardplan.op': op, **entries})}"
        if described not in self.callees:
            self.callees[described] = symbol_name(f"shardplan.{op}.{len(self.callees)}")
        return self.callees[described]

    def module(
        self, head: str, function: str, results: Sequence[TensorType | LocalType], more: Mapping[str, object]
    ) -> str:
        """Return the whole text: the mesh, declarations, the function."""
        kinds = ", ".join(map(tensor_type, results))
        attrs = f" attributes{format_attributes(more)}" if more else ""
        declared = [f"func.func private {name}{text}" for text, name in self.callees.items()]
        opening = f"func.func {symbol_name(function)}({', '.join(self.arguments)}) -> ({kinds}){attrs} {{"
        return "\n".join([head, *declared, opening, *self.lines, "}", ""])
