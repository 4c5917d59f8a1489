"""Ops as functions of a process's tensors, written by the array function of the op's row; equal ops share one function.

The array function computes with fake tensors while PyTorch notes the ATen ops. It does so for every device. Devices
mostly do the same but for some numbers, as where a span begins or how long a block is: these are then read from a table
by rank. Where devices do different things, each sort has a function of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import torch
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx

from planner.errors import InvalidSharding
from planner.export.torch_program.arrays import TensorArray, TensorModule, UnknownBeforehand, torch_dtype
from planner.ir.dtypes import DTYPE_BYTES
from planner.ir.mesh import Mesh
from planner.ir.program import OpCall, ShardedValue
from planner.ir.sharding import Shape, shard_shapes
from planner.ops import OPS, OpContext
from planner.ops.local_op import LocalPart, local_part

NAMES = {"f": "float", "i": "int", "u": "uint", "b": "bfloat"}
STRANGE = {"bool": "bool", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}
NARROW = ("bf16", "f16", "f8e4m3", "f8e5m2")
"""Floats of less than 32 bits: ops compute in f32 and round what they make, as where a plan is validated."""
NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
"""An integer that is no part of a name or of another number."""
LocalType = tuple[list[int], str]
"""Shape and dtype of what a device holds; blocks may be empty."""
PLACEMENT = ("device", "pin_memory", "layout")
"""Arguments of ops that make tensors: left to torch's default device."""


def dtype_name(dtype: str) -> str:
    """Return torch's name for one of our dtypes."""
    return STRANGE.get(dtype) or NAMES[dtype[0]] + str(8 * DTYPE_BYTES[dtype])


def computed_name(dtype: str) -> str:
    """Return torch's name of the dtype in which ops compute with values of a dtype."""
    return "float32" if dtype in NARROW else dtype_name(dtype)


@dataclass
class AtenFunctions:
    """The texts of all functions, and the name of the function of every op asked for so far."""

    mesh: Mesh
    texts: list[str] = field(default_factory=list)
    named: dict[str, str] = field(default_factory=dict)
    numbers: count[int] = field(default_factory=lambda: count(1))

    def of(self, run: OpCall, read: Sequence[ShardedValue]) -> str:
        """Return the name of the function of an op whose operands are held as `read` says.

        Raises InvalidSharding, naming the op, for one whose code depends on values that only devices know, that sends
        blocks while it runs, or that PyTorch cannot compute.
        """
        op = run.op
        run.check_no_ring()
        key = repr((op.op, sorted(op.attrs.items()), read, op.results, run.option, run.loop_partitions, op.rule.sizes))
        if key not in self.named:
            name = self.named[key] = f"{op.op}_{next(self.numbers)}"
            self.texts.append(_write_function(name, self._trace_devices(run, read), self.mesh))
        return self.named[key]

    def _trace_devices(self, run: OpCall, read: Sequence[ShardedValue]) -> list[str]:
        """Return the text of the op's function on every device."""
        held = [shard_shapes(each.sharding, each.type.shape, self.mesh).tolist() for each in read]
        texts: dict[str, str] = {}
        found = []
        for device in range(self.mesh.devices):
            part = local_part(run, self.mesh, device)
            kinds = [(shapes[device], each.type.dtype) for shapes, each in zip(held, read, strict=True)]
            key = repr((part, kinds))
            if key not in texts:
                texts[key] = _trace(run, part, kinds)
            found.append(texts[key])
        return found


def _write_function(name: str, devices: Sequence[str], mesh: Mesh) -> str:
    """Return the text of a function, given its text on every device with `{name}` for its name."""
    sorts: dict[str, list[int]] = {}
    for device, text in enumerate(devices):
        sorts.setdefault(NUMBER.sub("#", text), []).append(device)
    if len(sorts) == 1:
        return _write_sort(name, devices, list(range(mesh.devices)))
    texts = [_write_sort(f"{name}_{k}", devices, members) for k, members in enumerate(sorts.values())]
    number = {device: k for k, members in enumerate(sorts.values()) for device in members}
    chosen = ", ".join(f"{name}_{number[device]}" for device in range(mesh.devices))
    return "\n\n".join([*texts, f"{name} = ({chosen})[RANK]\n"])


def _write_sort(name: str, devices: Sequence[str], members: Sequence[int]) -> str:
    """Return the text of devices that do the same but for numbers."""
    text = devices[members[0]]
    columns = list(zip(*(NUMBER.findall(devices[device]) for device in members), strict=True))
    differing = list(dict.fromkeys(column for column in columns if len(set(column)) > 1))
    if not differing:
        return text.replace("{name}", name)
    position = dict.fromkeys(range(len(devices)), 0) | {device: place for place, device in enumerate(members)}
    numbers = {column: f"k{number}" for number, column in enumerate(differing)}
    following: Iterator[tuple[str, ...]] = iter(columns)
    text = NUMBER.sub(lambda found: numbers.get(next(following), found[0]), text)
    head, body = text.split("\n", 1)
    table = ", ".join(
        "(" + "".join(f"{column[position[device]]}, " for column in differing) + ")" for device in range(len(devices))
    )
    names = "".join(f"{each}, " for each in numbers.values())
    return f"{head}\n    {names}= ({table})[RANK]\n{body}".replace("{name}", name)


def _trace(run: OpCall, part: LocalPart, kinds: Sequence[LocalType]) -> str:
    """Return the text of an op's function on tensors of some types."""
    examples = [torch.empty(shape, dtype=getattr(torch, computed_name(dtype))) for shape, dtype in kinds]
    try:
        traced = make_fx(functionalize(lambda *tensors: _compute(run, part, tensors)), tracing_mode="fake")(*examples)
    except Exception as error:  # PyTorch's tracing raises many types for what it cannot do
        what, where = "an op cannot be expressed in PyTorch", f"op {run.op.id!r} ({run.op.op})"
        got = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InvalidSharding(what, where=where, got=got, wanted="what is known before it runs") from error
    return _write_text(traced, [dtype for _, dtype in kinds], [kind.dtype for kind in run.op.results])


def _compute(run: OpCall, part: LocalPart, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    op, row = run.op, OPS.get(run.op.op)
    if row is None:
        raise UnknownBeforehand("it has a rule but no array function")
    xp, arrays = TensorModule(), [TensorArray(tensor) for tensor in tensors]
    for position, window in part.windows.items():
        arrays[position] = window.cut(xp, arrays[position], row.padding)
    dtypes = tuple(np.dtype(computed_name(kind.dtype)) for kind in op.results)
    # A position outside a table is refused where a plan is validated; here zeros are read.
    made = row.compute(OpContext(xp, op.attrs, part.spans, part.shapes, dtypes, is_strict=False), *arrays)
    results = made if isinstance(made, tuple) else (made,)
    wanted = zip(results, part.shapes, dtypes, strict=True)
    return tuple(_checked(each, shape, dtype) for each, shape, dtype in wanted)


def _checked(array: TensorArray, shape: Shape, dtype: Any) -> torch.Tensor:
    if array.shape != shape:
        raise UnknownBeforehand(f"it makes {array.shape}, not {shape}")
    return array.tensor if array.tensor.dtype == torch_dtype(dtype) else array.tensor.to(torch_dtype(dtype))


def _write_text(traced: Any, read: Sequence[str], made: Sequence[str]) -> str:
    """Return the text of a recorded function; tensors of narrow floats are widened before and rounded after it."""
    names: dict[str, str] = {}
    lines: list[str] = []
    arguments: list[str] = []
    used = _find_used(traced.graph)
    for node in traced.graph.nodes:
        if node.op == "placeholder":
            name = names[node.name] = f"x{len(arguments)}"
            if node not in used:
                # A device whose part does not read an operand, such as the bias of partial sums, waits for it too.
                lines.append(f"waited({name})")
            elif read[len(arguments)] in NARROW:
                lines.append(f"{name} = {name}.float()")
            arguments.append(name)
        elif node.op == "get_attr":
            names[node.name] = _format_constant(getattr(traced, node.target))
        elif node.op == "call_function" and node in used:
            call = _format_call(node, names)
            if node.target is torch.ops.aten.lift_fresh_copy.default:
                names[node.name] = names[node.args[0].name]
            else:
                names[node.name] = f"v{len(lines)}"
                lines.append(f"{names[node.name]} = {call}")
        elif node.op == "output":
            results = [_format(each, names) for each in node.args[0]]
            rounded = [
                f"{each}.to(torch.{dtype_name(dtype)})" if dtype in NARROW else each
                for each, dtype in zip(results, made, strict=True)
            ]
            lines.append(f"return {', '.join(rounded)}")
    return f"def {{name}}({', '.join(arguments)}):\n" + "".join(f"    {line}\n" for line in lines)


def _find_used(graph: Any) -> set[Any]:
    """Return the nodes on which results depend, or that write to tensors."""
    used: set[Any] = set()
    for node in reversed(graph.nodes):
        writes = node.op == "call_function" and getattr(getattr(node.target, "_schema", None), "is_mutable", False)
        if node.op == "output" or writes or node in used:
            used.update((node, *node.all_input_nodes))
    return used


def _format_call(node: Any, names: dict[str, str]) -> str:
    given = [_format(each, names) for each in node.args]
    given += [f"{key}={_format(each, names)}" for key, each in node.kwargs.items() if key not in PLACEMENT]
    if getattr(node.target, "__name__", "") == "getitem":
        return f"{given[0]}[{given[1]}]"
    # Strides may be other than those noted.
    name = str(node.target).replace("aten.view.default", "aten.reshape.default")
    return f"{name}({', '.join(given)})"


def _format(value: Any, names: dict[str, str]) -> str:
    match value:
        case torch.fx.Node():
            return names[value.name]
        case tuple() | list():
            inside = ", ".join(_format(each, names) for each in value)
            return f"[{inside}]"
        case float():
            return repr(value) if abs(value) < float("inf") else f'float("{value}")'
        case _:
            return repr(value)


def _format_constant(tensor: torch.Tensor) -> str:
    return f"torch.tensor({_format(tensor.tolist(), {})}, dtype={tensor.dtype})"
