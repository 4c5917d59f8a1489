"""Local ops on tensors whose sizes are known only on the device that holds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.errors import ShardplanError
from planner.ir.binding import bind_rule
from planner.ir.dynamic_dims import is_known
from planner.ir.graph import TensorType
from planner.ir.indexing import dim_size
from planner.ir.sharding import Shape
from planner.spmd.instruction import LocalOp


def bind_local_shapes(done: LocalOp, shapes: Sequence[Shape]) -> LocalOp:
    """Return the op bound to the shapes of the operands on a device, or as it is where its shapes are known.

    Raises InvalidRule or InvalidGraph, naming the call, where the shapes do not fit or do not determine those of the
    results.
    """
    op = done.op
    if all(map(is_known, (size for shape in (*op.rule.shapes, *(k.shape for k in op.results)) for size in shape))):
        return done
    notation = str(op.rule.pattern)
    try:
        loops = bind_rule(notation, shapes, [kind.shape for kind in op.results])
        result_types = tuple(
            TensorType(tuple(dim_size(dim, loops.sizes) for dim in term), kind.dtype)
            for term, kind in zip(loops.results, op.results, strict=True)
        )
        rule = bind_rule(notation, shapes, [kind.shape for kind in result_types])
    except ShardplanError as error:
        raise error.at(done.where) from None
    return replace(done, op=replace(op, results=result_types, rule=rule))
