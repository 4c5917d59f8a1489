"""Operations that accumulate into a tensor, linalg's `outs`.

An accumulation that starts from a tensor other than the neutral element is combined with that tensor by a separate op.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from planner.errors import InvalidGraph
from planner.frontends.mlir.annotation_checks import NamedValue
from planner.frontends.mlir.op_names import REDUCTIONS
from planner.frontends.mlir.operations import Operation
from planner.frontends.mlir.translation import InitTensor, MlirTranslation
from planner.frontends.mlir.types import MlirTensorType

COMBINER_OPS = {reduction: op for op, reduction in REDUCTIONS.items()}


def accumulate(
    t: MlirTranslation,
    operation: Operation,
    op: str,
    *,
    inputs: Sequence[NamedValue],
    attrs: Mapping[str, Any],
    kind: str,
    notation: str | None = None,
) -> None:
    """Add an op, combined with its initial value unless that is neutral."""
    results = t.tensors(operation)
    start = t.bound.get(operation.inits[0]) if operation.inits else InitTensor(neutral=True)
    if isinstance(start, InitTensor):
        if not start.neutral:
            what, wanted = "accumulation into an empty tensor", "a tensor with elements"
            raise t.scan.error(what, at=operation.at, got=f"%{operation.inits[0]}", wanted=wanted, error=InvalidGraph)
        t.add(operation, op, inputs, attrs, results, notation)
        return
    if is_neutral_start(t, operation, kind):
        t.add(operation, op, inputs, attrs, results, notation)
        return
    tensor = t.find_tensor(operation.inits[0], operation.at)
    term = t.add(operation, op, inputs, attrs, [MlirTensorType(results[0].type)], notation, suffix=".term")
    t.add(operation, COMBINER_OPS[kind], (t.result(term), tensor), {}, results)


def is_neutral_start(t: MlirTranslation, operation: Operation, kind: str) -> bool:
    """Return whether an accumulation starts from a neutral constant, which then only the operation reads."""
    tensor = t.find_tensor(operation.inits[0], operation.at)
    full = next((each for each in t.ops if each.id == tensor.value and each.op == "full"), None)
    if full is None or not _is_neutral(full.attrs["value"], kind, t.types[tensor.value].dtype):
        return False
    t.init_tensors.add(tensor.value)
    return True


def _is_neutral(value: object, kind: str, dtype: str) -> bool:
    bits = 63 if dtype == "i64" else 31 if dtype == "i32" else 15 if dtype == "i16" else 7
    least = {-math.inf, -(1 << bits)} if kind == "max" else {math.inf, (1 << bits) - 1}
    return value in {"sum": {0}, "product": {1}}.get(kind, least)


def mark_starts(t: MlirTranslation, operation: Operation) -> None:
    """Mark the tensors that an operation only writes to: the constants that fill them are dropped if unread."""
    t.init_tensors |= {tensor.value for name in operation.inits if isinstance(tensor := t.bound.get(name), NamedValue)}
