"""Instructions of an SPMD program: calls of the dialect's ops, and local ops of the op table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from planner.ir.program import OpCall
from planner.spmd.types import LocalType


@dataclass(frozen=True, slots=True)
class SpmdCall:
    """A collective or query.

    `attrs` are named as in its row; `mesh` is among them where it is not the program's default.
    """

    op: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    types: tuple[LocalType, ...]
    attrs: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}), hash=False)

    @property
    def where(self) -> str:
        results = ", ".join(f"%{name}" for name in self.results)
        return f"{results} = {self.op}({', '.join(f'%{name}' for name in self.operands)})"

    def __str__(self) -> str:
        attrs = "".join(f" {key}={_format_attribute(value)}" for key, value in self.attrs.items())
        return f"{self.where}{attrs} : {', '.join(map(str, self.types))}"


@dataclass(frozen=True, slots=True)
class LocalOp(OpCall):
    """Every device's part of an op of the op table.

    The op's own shapes are those of the whole computation; with an empty option they are the local ones.
    """

    mesh: str | None = None

    @property
    def where(self) -> str:
        results = ", ".join(f"%{name}" for name in self.results)
        return f"{results} = {self.op.op}({', '.join(f'%{name}' for name in self.operands)})"

    def __str__(self) -> str:
        split = [
            f"{loop.name}:{list(axes)}" for loop, axes in zip(self.op.rule.loops, self.option, strict=True) if axes
        ]
        split += [f"{loop} cut {cut}" for loop, cut in self.loop_partitions]
        return self.where + (f" [{', '.join(split)}]" if split else "")


SpmdInstruction = SpmdCall | LocalOp


def _format_attribute(value: object) -> str:
    if isinstance(value, (tuple, list)):
        return "[" + ",".join(map(_format_attribute, value)) + "]"
    return "?" if value is None else str(value)
