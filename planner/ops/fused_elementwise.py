"""Trees of pointwise ops as one op, as a compiler fuses them: their inner values are never stored.

    steps: [["multiply", [0, 1], "f32", {}], ["add", [3, 2], "f32", {"scalar": 1}], ...]

lists ops of the family `elementwise`, each with the values it reads, the dtype of its result and its attributes. Values
are numbered from 0: first the operands, then the results of the steps. The last step computes the op's result.

Partial sums pass through the tree where they pass through its ops. The tree is linear in a set S of operands if its
last op is linear in some of its operands, each of these is linear in exactly those operands of S that it depends on,
and no other operand of the last op depends on S. For example, x y + z is linear in {x, z} and in {y, z}, but x y + y
is linear in {y} only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Any, NamedTuple

import numpy as np

from planner.errors import InvalidGraph
from planner.ir.dtypes import DTYPE_BYTES, is_float, is_integer, is_unsigned
from planner.ir.graph import TensorType
from planner.ir.notation import parse_rule
from planner.ops import elementwise
from planner.ops.attribute_types import AttributeType
from planner.ops.attributes import Attribute
from planner.ops.op_def import Array, OpContext, OpDef, OpSignature, any_dtype

FUSIBLE_OPS = {row.name: row for row in elementwise.OP_DEFS}
MAX_STEPS, MAX_GROUPS = 64, 8
"""Limits on the steps of a tree and on the sets in which it is linear, as the solver chooses for each set."""
FLOPS = 8
"""Operations per point, a rough figure: memory bounds the time of such an op."""

Group = frozenset[int]


class Step(NamedTuple):
    """One op of the tree; `reads` are the numbers of the values it reads."""

    op: str
    reads: tuple[int, ...]
    dtype: str
    attrs: Mapping[str, object]


def _parse_steps(value: object, rank: int) -> tuple[Step, ...] | None:
    """Return the steps of the tree, or None where one is malformed."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not 0 < len(value) <= MAX_STEPS:
        return None
    steps = tuple(step for step in map(_parse_step, value) if step is not None)
    return steps if len(steps) == len(value) else None


def _parse_step(step: object) -> Step | None:
    match step:
        case [str(op), [*numbers], str(dtype), dict(attrs)] if op in FUSIBLE_OPS and numbers and dtype in DTYPE_BYTES:
            reads = tuple(number for number in numbers if type(number) is int and number >= 0)
            return Step(op, reads, dtype, attrs) if len(reads) == len(numbers) else None
    return None


_WANTED = f"a list of 1 to {MAX_STEPS} steps [pointwise op, numbers of values before, dtype, attributes]"
STEPS = Attribute("steps", AttributeType("list of steps", _WANTED, _parse_steps))


@dataclass(frozen=True, slots=True)
class _TypedValue:
    """A value of the tree: its type, the operands it depends on, and the sets of operands in which it is linear."""

    type: TensorType
    operands: Group
    linear: tuple[Group, ...]


def _rule(signature: OpSignature) -> str:
    """Return the rule of the tree. Raises InvalidGraph where a value is unused or the last step is not the result."""
    values = [_TypedValue(kind, frozenset({i}), (frozenset({i}),)) for i, kind in enumerate(signature.operands)]
    for step in signature.read(STEPS):
        values.append(_infer_step(step, values))
    read = {number for step in signature.read(STEPS) for number in step.reads}
    if unread := sorted(set(range(len(values) - 1)) - read):
        raise InvalidGraph(
            "steps", got=f"value {unread[0]}, which no step reads", wanted="every value read but the last"
        )
    made, (result,) = values[-1], signature.results
    if made.type != result:
        raise InvalidGraph("result of the steps", got=str(made.type), wanted=str(result))
    groups = ", ".join("+".join(map(str, sorted(group))) for group in made.linear)
    terms = ", ".join(["..."] * len(signature.operands))
    return f"{terms} -> ..." + (f"; linear {groups}" if groups else "")


def _infer_step(step: Step, values: Sequence[_TypedValue]) -> _TypedValue:
    """Return the value that a step computes from earlier values. Raises InvalidGraph."""
    op, reads, dtype, attrs = step
    if max(reads) >= len(values):
        raise InvalidGraph("step", got=list(step), wanted=f"numbers of values before it, 0 to {len(values) - 1}")
    read = [values[n] for n in reads]
    try:
        shape = np.broadcast_shapes(*(each.type.shape for each in read))
    except ValueError:
        got = [str(each.type) for each in read]
        raise InvalidGraph("shapes of a step", got=got, wanted="shapes that broadcast") from None
    kind = TensorType(tuple(map(int, shape)), dtype)
    pattern = parse_rule(FUSIBLE_OPS[op].notation(OpSignature(tuple(each.type for each in read), (kind,), attrs)))
    if len(pattern.operands) != len(read):
        raise InvalidGraph("operands of a step", got=list(step), wanted=f"{len(pattern.operands)}")
    found = dict.fromkeys(group for members in pattern.linear for group in _linear_groups(read, members))
    on = frozenset[int]().union(*(each.operands for each in read))
    return _TypedValue(kind, on, tuple(islice(found, MAX_GROUPS)))


def _linear_groups(read: Sequence[_TypedValue], members: Sequence[int]) -> list[Group]:
    """Return the sets of the tree's operands in which an op is linear, given that it is linear in its `members`."""
    found = []
    for chosen in product(*(read[member].linear for member in members)):
        together = frozenset[int]().union(*chosen)
        each = {**{n: frozenset[int]() for n in range(len(read))}, **dict(zip(members, chosen, strict=True))}
        if all(read[n].operands & together == own for n, own in each.items()):
            found.append(together)
    return found


def _compute(local: OpContext, *operands: Array) -> Array:
    """Run the steps. Inner floats and signed integers are as wide as the widest operand or result."""
    values, steps = list(operands), local.read(STEPS)
    kinds = [*(array.dtype for array in operands), local.dtypes[0]]
    for op, numbers, dtype, attrs in steps:
        inner = OpContext(local.xp, attrs, local.spans, local.shapes, (_widest_dtype(kinds, dtype),))
        made = FUSIBLE_OPS[op].compute(inner, *(values[n] for n in numbers))
        values.append(made.astype(inner.dtypes[0], copy=False))
    return values[-1].astype(local.dtypes[0], copy=False)


def _widest_dtype(kinds: Sequence[Any], dtype: str) -> Any:
    if is_unsigned(dtype):
        return np.dtype(f"uint{dtype[1:]}")
    letter = "f" if is_float(dtype) else "i" if is_integer(dtype) else "b"
    alike = [kind for kind in kinds if kind.kind == letter]
    return np.result_type(*alike) if alike else np.dtype({"f": "float64", "i": "int64", "b": "bool"}[letter])


OP_DEFS = (OpDef("pointwise", _rule, _compute, FLOPS, any_dtype, attrs=(STEPS,)),)
