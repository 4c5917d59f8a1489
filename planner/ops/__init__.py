"""The op table, one row per op. To add an op, add a row: no algorithm depends on which op it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType

from planner.errors import InvalidGraph, UnsupportedOp
from planner.ir.binding import bind_rule
from planner.ir.graph import Op, TensorType
from planner.ir.indexing import Rule
from planner.ops import (
    activation_backward,
    attention,
    batch_norm,
    cached_attention,
    contraction,
    convolution,
    elementwise,
    fourier,
    fused_elementwise,
    gather,
    grouped_matmul,
    normalization,
    optimizers,
    permute_pad,
    pooling,
    random_numbers,
    reductions,
    scatter,
    sort,
    views,
)
from planner.ops.op_def import Array, OpContext, OpDef, OpSignature, Span

__all__ = ["OPS", "Array", "OpContext", "OpDef", "OpSignature", "Span", "aligned_loops", "bind_op", "indexed_loops"]

FAMILIES = (
    elementwise,
    fused_elementwise,
    contraction,
    convolution,
    pooling,
    grouped_matmul,
    views,
    permute_pad,
    reductions,
    sort,
    fourier,
    normalization,
    batch_norm,
    attention,
    cached_attention,
    random_numbers,
    gather,
    scatter,
    activation_backward,
    optimizers,
)
OPS: Mapping[str, OpDef] = MappingProxyType({row.name: row for family in FAMILIES for row in family.OP_DEFS})


MAX_CACHED_RULES = 1024
"""Bound rules are cached for ops whose attributes print in at most this many characters; layers repeat few such ops."""


def indexed_loops(op: Op) -> Mapping[int, str]:
    """Return the operands of an op whose elements are positions in a loop, each with the name of that loop."""
    indexes = OPS[op.op].indexed_loops if op.op in OPS else {}
    sizes = op.rule.sizes
    return {operand: loop for operand, loop in indexes.items() if loop in sizes}


def aligned_loops(op: Op) -> tuple[str, ...]:
    """Return the loops of an op that run over positions of one sequence."""
    return OPS[op.op].aligned_loops if op.op in OPS else ()


def bind_op(
    op: str,
    operands: tuple[TensorType, ...],
    results: tuple[TensorType, ...],
    *,
    attrs: Mapping[str, object],
    notation: str | None,
) -> Rule:
    """Return the rule of an op, bound to its shapes: that of its row, or `notation` for an op without a row.

    Raises UnsupportedOp for an op without a row and without notation, and InvalidGraph or InvalidRule for an op that
    contradicts its rule.
    """
    text = repr(attrs)
    bound = _bind_cached if len(text) <= MAX_CACHED_RULES else _bind_cached.__wrapped__
    return bound(op, operands, results, _AttributesKey(text, attrs), notation)


@dataclass(frozen=True, slots=True)
class _AttributesKey:
    """A cache key for attributes that compares their text, as 1, 1.0 and True are equal values."""

    text: str
    values: Mapping[str, object] = field(compare=False)


@lru_cache(maxsize=4096)
def _bind_cached(
    op: str,
    operands: tuple[TensorType, ...],
    results: tuple[TensorType, ...],
    attrs: _AttributesKey,
    notation: str | None,
) -> Rule:
    row = OPS.get(op)
    if row is None and notation is None:
        raise UnsupportedOp("unknown op without a rule", got=op, wanted=f"a 'rule', or one of {', '.join(OPS)}")
    try:
        text = row.notation(OpSignature(operands, results, attrs.values)) if row else notation or ""
    except (IndexError, ValueError) as error:
        if isinstance(error, InvalidGraph):
            raise
        raise InvalidGraph("operands", got=[str(kind) for kind in operands], wanted=f"those of {op}") from error
    rule = bind_rule(text, [kind.shape for kind in operands], [kind.shape for kind in results])
    if row and notation is not None:
        bind_rule(notation, [kind.shape for kind in operands], [kind.shape for kind in results])
    return rule
