"""A graph written line by line, for benchmarks and tests."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from planner.ir.graph import Annotation, Graph, Input, Op, TensorType, value_id
from planner.ops import bind_op

Shape = tuple[int, ...]


class Sketch:
    """A graph written line by line; values are named by their ids."""

    def __init__(self, dtype: str = "f32") -> None:
        self.dtype = dtype
        self.inputs: list[Input] = []
        self.ops: list[Op] = []
        self.types: dict[str, TensorType] = {}

    def input(self, *shape: int, dtype: str | None = None, kind: str = "input") -> str:
        name = f"i{len(self.inputs)}"
        self.types[name] = TensorType(shape, dtype or self.dtype)
        self.inputs.append(Input(name, kind, name, self.types[name]))
        return name

    def op(self, op: str, operands: list[str], *results: Shape | TensorType, **attrs: Any) -> str:
        """Add an op and return its id, that of its first result; results without a type have the sketch's dtype."""
        name = f"n{len(self.ops)}"
        made = tuple(each if isinstance(each, TensorType) else TensorType(each, self.dtype) for each in results)
        rule = bind_op(op, tuple(self.types[value] for value in operands), made, attrs=attrs, notation=None)
        self.ops.append(Op(name, op, tuple(operands), made, rule, MappingProxyType(attrs)))
        self.types |= {value_id(name, k): kind for k, kind in enumerate(made)}
        return name

    def graph(self, *outputs: str, annotations: tuple[Annotation, ...] = ()) -> Graph:
        return Graph("test", tuple(self.inputs), tuple(self.ops), outputs, annotations)
