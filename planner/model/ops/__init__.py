"""The op table: one row an op. A new op is a new row; no algorithm asks which op it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType

from planner.errors import InvalidGraph, UnsupportedOp
from planner.model.binding import bind
from planner.model.graph import Op, TensorType
from planner.model.indexing import Rule
from planner.model.ops import (
    attention,
    contraction,
    convolution,
    elementwise,
    experts,
    gradients,
    lookup,
    normalization,
    ordering,
    pointwise,
    pools,
    rearrangement,
    reductions,
    scatter,
    updates,
    views,
)
from planner.model.ops.row import Array, Local, Row, Signature, Span

__all__ = ["OPS", "Array", "Local", "Row", "Signature", "Span", "bind_op", "positions"]

FAMILIES = (
    elementwise,
    pointwise,
    contraction,
    convolution,
    pools,
    experts,
    views,
    rearrangement,
    reductions,
    ordering,
    normalization,
    attention,
    lookup,
    scatter,
    gradients,
    updates,
)
OPS: Mapping[str, Row] = MappingProxyType({row.name: row for family in FAMILIES for row in family.ROWS})


MAX_KEPT = 1024
"""Letters of attributes with which a bound rule is remembered: a model has few kinds of op, and layers repeat them."""


def positions(op: Op) -> Mapping[int, str]:
    """Operand -> loop: the operand's elements are positions in that loop of an op."""
    indexes = OPS[op.op].indexes if op.op in OPS else {}
    sizes = op.rule.sizes
    return {operand: loop for operand, loop in indexes.items() if loop in sizes}


def bind_op(
    op: str,
    operands: tuple[TensorType, ...],
    results: tuple[TensorType, ...],
    attrs: Mapping[str, object],
    notation: str | None,
) -> Rule:
    """The rule of an op over its shapes: its row's, or the notation given for an op without a row.

    Raises UnsupportedOp when there is neither; InvalidGraph or InvalidRule when the op contradicts its rule.
    """
    text = repr(attrs)
    bound = _bound if len(text) <= MAX_KEPT else _bound.__wrapped__
    return bound(op, operands, results, _Attributes(text, attrs), notation)


@dataclass(frozen=True, slots=True)
class _Attributes:
    """Attributes that are the same where their text is: 1, 1.0 and True are not."""

    text: str
    values: Mapping[str, object] = field(compare=False)


@lru_cache(maxsize=4096)
def _bound(
    op: str,
    operands: tuple[TensorType, ...],
    results: tuple[TensorType, ...],
    attrs: _Attributes,
    notation: str | None,
) -> Rule:
    row = OPS.get(op)
    if row is None and notation is None:
        raise UnsupportedOp("unknown op without a rule", got=op, wanted=f"a 'rule', or one of {', '.join(OPS)}")
    try:
        text = row.notation(Signature(operands, results, attrs.values)) if row else notation or ""
    except (IndexError, ValueError) as error:
        if isinstance(error, InvalidGraph):
            raise
        raise InvalidGraph("operands", got=[str(kind) for kind in operands], wanted=f"those of {op}") from error
    rule = bind(text, [kind.shape for kind in operands], [kind.shape for kind in results])
    if row and notation is not None:
        bind(notation, [kind.shape for kind in operands], [kind.shape for kind in results])
    return rule
