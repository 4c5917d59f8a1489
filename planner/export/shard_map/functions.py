"""Ops as functions of a device's arrays: for equal ops one function, written by the row's own array function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import jax
import numpy as np

from planner.errors import InvalidSharding
from planner.export.shard_map.recording import Edge, Page, Recorded, Recorder, Undecided, Unsayable
from planner.model.dtypes import DTYPE_BYTES
from planner.model.graph import TensorType
from planner.model.indexing import LoopKind
from planner.model.mesh import Mesh
from planner.model.ops import OPS, Local, Span
from planner.model.program import Run
from planner.model.sharding import Axes, Shape
from planner.model.windows import interval

NAMES = {"f": "float", "i": "int", "u": "uint"}
STRANGE = {"bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2", "bool": "bool"}


def dtype_of(dtype: str) -> Any:
    """JAX's dtype of ours."""
    return np.dtype(jax.numpy.dtype(STRANGE.get(dtype) or NAMES[dtype[0]] + str(8 * DTYPE_BYTES[dtype])))


def index_of(axes: Axes, mesh: Mesh) -> str:
    """A device's index in its group, as text."""
    return f"lax.axis_index({tuple(mesh.names[axis] for axis in axes)!r})"


@dataclass
class Functions:
    """The text of every function, and the name of the function of every op that was asked for."""

    mesh: Mesh
    texts: list[str] = field(default_factory=list)
    named: dict[str, str] = field(default_factory=dict)
    numbers: count[int] = field(default_factory=lambda: count(1))

    def of(self, run: Run, read: Sequence[TensorType], made: Sequence[Shape]) -> str:
        """The name of the function that takes local arrays of these types and makes results of these shapes.

        Raises InvalidSharding, naming the op, for one that asks arrays what only devices know.
        """
        key = repr((run.op.op, sorted(run.op.attrs.items()), read, run.op.results, made, run.option, run.op.rule.sizes))
        if key not in self.named:
            writer = _Writer(run, self.mesh, read, made, self.texts)
            self.named[key] = writer.function(f"{run.op.op}_{next(self.numbers)}")
        return self.named[key]


@dataclass
class _Writer:
    run: Run
    mesh: Mesh
    read: Sequence[TensorType]
    made: Sequence[Shape]
    texts: list[str]

    def function(self, name: str, answers: tuple[bool, ...] = ()) -> str:
        page, names = Page(answers), [f"x{k}" for k in range(len(self.read))]
        try:
            made = self._made(page, names)
            body = f"return {made[0].text}" if len(made) == 1 else f"return {', '.join(each.text for each in made)}"
        except Undecided as question:
            each = [self.function(f"{name}_{word}", (*answers, word == "yes")) for word in ("yes", "no")]
            body = f"return lax.cond({', '.join([question.text, *each, *names])})"
        except (Unsayable, AttributeError, IndexError, TypeError, ValueError) as error:
            what, where = "an op has no text for jax.shard_map", f"op {self.run.op.id!r} ({self.run.op.op})"
            raise InvalidSharding(what, where=where, got=str(error), wanted="what is known before it runs") from error
        lines = "".join(f"    {line}\n" for line in [*page.lines, body])
        self.texts.append(f"def {name}({', '.join(names)}):\n{lines}")
        return name

    def _made(self, page: Page, names: Sequence[str]) -> list[Recorded]:
        op, row = self.run.op, OPS.get(self.run.op.op)
        if row is None:
            raise Unsayable("it is known by its rule alone")
        dtypes = tuple(dtype_of(kind.dtype) for kind in op.results)
        # A position outside a table is refused where a program runs; a jitted one reads zeros there.
        refuses = op.attrs.get("beyond", "refuse") == "refuse"
        attrs = {**op.attrs, "beyond": "drop"} if refuses else op.attrs
        local = Local(Recorder(page), attrs, self._spans(page), tuple(self.made), dtypes)
        kinds = [jax.ShapeDtypeStruct(kind.shape, dtype_of(kind.dtype)) for kind in self.read]
        arrays = [Recorded(page, name, kind) for name, kind in zip(names, kinds, strict=True)]
        for position in op.rule.windows:
            arrays[position] = self._window(position, arrays[position], local.xp, row.padding)
        found = row.compute(local, *arrays)
        results = list(found) if isinstance(found, tuple) else [found]
        return [self._as(each, *wanted) for each, *wanted in zip(results, self.made, dtypes, strict=True)]

    def _as(self, array: Any, shape: Shape, dtype: Any) -> Any:
        if array.shape != shape:
            raise Unsayable(f"it makes {array.shape}, not {shape}")
        return array if array.dtype == dtype else array.astype(dtype)

    def _window(self, position: int, array: Any, xp: Any, padding: float) -> Any:
        """What windows read of an operand that is whole where they do, with the row's padding beyond the tensor."""
        rule = self.run.op.rule
        option = {loop.name: axes for loop, axes in zip(rule.loops, self.run.option, strict=True)}
        take, pad = [slice(None)] * array.ndim, [(0, 0)] * array.ndim
        for place, (dim, size) in enumerate(zip(rule.operands[position], rule.shapes[position], strict=True)):
            if not dim.coefficients:
                continue
            if any(option[loop] for loop in dim.loops):
                raise Unsayable("its windows are split")
            low, high = interval(dim, {loop: (0, rule.sizes[loop]) for loop in dim.loops})
            first, last = max(low, 0), min(high, size)
            take[place], pad[place] = slice(first, last), (first - low, high - last)
        cut = array[tuple(take)]
        return xp.pad(cut, pad, constant_values=padding) if any(map(any, pad)) else cut

    def _spans(self, page: Page) -> dict[str, Any]:
        spans: dict[str, Any] = {}
        for loop, axes in zip(self.run.op.rule.loops, self.run.option, strict=True):
            if loop.kind is LoopKind.LINEAR:
                continue
            parts = self.mesh.group_size(axes)
            if loop.size % parts:
                raise Unsayable(f"loop {loop.name} of {loop.size} is split unevenly")
            block = loop.size // parts
            start: Any = Edge(page, index_of(axes, self.mesh), block) if parts > 1 else 0
            spans[loop.name] = Span(start, start + block, loop.size)
        return spans
