"""Ops as functions of a device's arrays, written by the array function of the op's row; equal ops share one function.

Where devices do not all run the same code, there is a function for each class of devices, and one that chooses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import jax
import numpy as np

from planner.errors import InvalidSharding
from planner.export.shard_map.device_classes import DeviceClass, group_devices
from planner.export.shard_map.padding import fit_shape
from planner.export.shard_map.ring import RingWriter
from planner.export.shard_map.traced_module import TracedArrayModule
from planner.export.shard_map.tracer import TracedArray, TracedBound, TracePage, UndecidedBranch, UntraceableOperation
from planner.ir.dtypes import DTYPE_BYTES
from planner.ir.graph import TensorType
from planner.ir.indexing import LoopKind
from planner.ir.mesh import Mesh
from planner.ir.program import OpCall
from planner.ir.sharding import Axes, Shape, block_size
from planner.ops import OPS, OpContext, Span

NAMES = {"f": "float", "i": "int", "u": "uint"}
STRANGE = {"bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2", "bool": "bool"}


def jax_dtype(dtype: str) -> Any:
    """Return JAX's dtype for one of ours."""
    return np.dtype(jax.numpy.dtype(STRANGE.get(dtype) or NAMES[dtype[0]] + str(8 * DTYPE_BYTES[dtype])))


def write_device_index(axes: Axes, mesh: Mesh) -> str:
    """Return the expression for a device's index in its group."""
    return f"lax.axis_index({tuple(mesh.names[axis] for axis in axes)!r})"


def write_device_lookup(table: Sequence[Any], mesh: Mesh) -> str:
    """Return the expression for a device's entry of a table by device number."""
    return f"jnp.array({list(table)!r})[{write_device_index(tuple(range(len(mesh.names))), mesh)}]"


@dataclass
class OpFunctions:
    """The texts of all functions, and the name of the function of every op asked for so far."""

    mesh: Mesh
    texts: list[str] = field(default_factory=list)
    named: dict[str, str] = field(default_factory=dict)
    numbers: count[int] = field(default_factory=lambda: count(1))

    def of(self, run: OpCall, read: Sequence[TensorType], made: Sequence[Shape]) -> str:
        """Return the name of the function of an op.

        It takes arrays of the types `read`, as devices hold them, and returns the shapes `made`. Raises
        InvalidSharding, naming the op, for one whose code depends on values that only devices know.
        """
        op = run.op
        attrs = sorted(op.attrs.items())
        key = repr((op.op, attrs, read, op.results, made, run.option, run.loop_partitions, op.rule.sizes))
        if key not in self.named:
            name = self.named[key] = f"{op.op}_{next(self.numbers)}"
            groups = group_devices(run, self.mesh)
            if len(groups) > 1 and op.rule.ring_axes(run.option):
                what, where = "blocks travel between devices that run different code", f"op {op.id!r} ({op.op})"
                raise InvalidSharding(what, where=where, got=f"{len(groups)} sorts", wanted="even blocks")
            names = [name] if len(groups) == 1 else [f"{name}_{k}" for k in range(len(groups))]
            for each, group in zip(names, groups, strict=True):
                _FunctionWriter(run, group, self.mesh, read, made, self.texts).function(each)
            if len(groups) > 1:
                self.texts.append(self._choice(name, names, groups, operands=len(read)))
        return self.named[key]

    def _choice(self, name: str, names: Sequence[str], groups: Sequence[DeviceClass], *, operands: int) -> str:
        number = {device: k for k, group in enumerate(groups) for device in group.devices}
        which = write_device_lookup([number[device] for device in range(self.mesh.devices)], self.mesh)
        arrays = [f"x{k}" for k in range(operands)]
        chosen = ", ".join([which, f"({', '.join(names)})", *arrays])
        return f"def {name}({', '.join(arrays)}):\n    return lax.switch({chosen})\n"


@dataclass
class _FunctionWriter:
    run: OpCall
    group: DeviceClass
    mesh: Mesh
    read: Sequence[TensorType]
    made: Sequence[Shape]
    texts: list[str]

    def function(self, name: str, answers: tuple[bool, ...] = ()) -> str:
        page, names = TracePage(answers), [f"x{k}" for k in range(len(self.read))]
        try:
            made = self._trace_results(page, names)
            body = f"return {made[0].text}" if len(made) == 1 else f"return {', '.join(each.text for each in made)}"
        except UndecidedBranch as question:
            each = [self.function(f"{name}_{word}", (*answers, word == "yes")) for word in ("yes", "no")]
            body = f"return lax.cond({', '.join([question.text, *each, *names])})"
        except (UntraceableOperation, AttributeError, IndexError, TypeError, ValueError) as error:
            what, where = "an op cannot be expressed for jax.shard_map", f"op {self.run.op.id!r} ({self.run.op.op})"
            raise InvalidSharding(what, where=where, got=str(error), wanted="what is known before it runs") from error
        lines = "".join(f"    {line}\n" for line in [*page.lines, body])
        self.texts.append(f"def {name}({', '.join(names)}):\n{lines}")
        return name

    def _trace_results(self, page: TracePage, names: Sequence[str]) -> list[TracedArray]:
        op, row = self.run.op, OPS.get(self.run.op.op)
        if row is None:
            raise UntraceableOperation("it has a rule but no array function")
        dtypes = tuple(jax_dtype(kind.dtype) for kind in op.results)
        part = self.group.parts[0]

        def on_page(page: TracePage) -> OpContext:
            # A position outside a table is refused where a program runs; a jitted one reads zeros there.
            return OpContext(TracedArrayModule(page), op.attrs, self._spans(page), part.shapes, dtypes, is_strict=False)

        local = on_page(page)
        kinds = [jax.ShapeDtypeStruct(kind.shape, jax_dtype(kind.dtype)) for kind in self.read]
        held = [TracedArray(page, name, kind) for name, kind in zip(names, kinds, strict=True)]
        arrays = [self._fitted(array, shape) for array, shape in zip(held, self.group.read, strict=True)]
        for position, window in part.windows.items():
            arrays[position] = window.cut(local.xp, arrays[position], row.padding)
        if op.rule.ring_axes(self.run.option):
            if row.ring is None:
                raise UntraceableOperation("it has no function for blocks that travel")
            ring = RingWriter(self.run, self.mesh, page, on_page)
            computed = row.ring.finish(local, arrays, *map(tuple, ring.results(arrays, row.ring.rounds)))
        else:
            computed = row.compute(local, *arrays)
        results = list(computed) if isinstance(computed, tuple) else [computed]
        cast_results = [self._as(each, *wanted) for each, *wanted in zip(results, part.shapes, dtypes, strict=True)]
        return [self._fitted(array, shape) for array, shape in zip(cast_results, self.made, strict=True)]

    def _fitted(self, array: TracedArray, shape: Shape) -> Any:
        if array.shape == shape:
            return array
        text = fit_shape(array.text, array.shape, shape)
        return array.page.line(text, lambda of: jax.numpy.zeros(shape, of.dtype), array)

    def _as(self, array: Any, shape: Shape, dtype: Any) -> Any:
        if array.shape != shape:
            raise UntraceableOperation(f"it makes {array.shape}, not {shape}")
        return array if array.dtype == dtype else array.astype(dtype)

    def _spans(self, page: TracePage) -> dict[str, Any]:
        spans: dict[str, Any] = {}
        for loop, axes in zip(self.run.op.rule.loops, self.run.option, strict=True):
            if loop.kind is not LoopKind.LINEAR:
                span = self.group.parts[0].spans[loop.name]
                block = block_size(loop.size, self.mesh.group_size(axes))
                start = self._start(page, self.group.starts(loop.name), axes, block)
                spans[loop.name] = Span(start, start + span.length, loop.size)
        return spans

    def _start(self, page: TracePage, starts: Sequence[int], axes: Axes, block: int) -> Any:
        """Return where a device's span of a loop begins: whole blocks and a rest, or an entry of a table."""
        if len(set(starts)) == 1:
            return starts[0]
        index = self.mesh.group_index(axes)[list(self.group.devices)]
        rests = set((starts - index * block).tolist())
        if len(rests) == 1:
            return TracedBound(page, f"({write_device_index(axes, self.mesh)} * {block})") + rests.pop()
        table = dict(zip(self.group.devices, starts, strict=True))
        return TracedBound(
            page, write_device_lookup([table.get(device, 0) for device in range(self.mesh.devices)], self.mesh)
        )
