"""Runs one op on one device: from its parts of the operands to its parts of the results (`planner.ops.local_op`)."""

from __future__ import annotations

from typing import Any

from planner.errors import RunFailed
from planner.ir.mesh import Mesh
from planner.ir.program import OpCall
from planner.ops import OPS, OpContext
from planner.ops.local_op import local_part
from planner.run.backend import round_to_dtype, run_dtype

Array = Any


def run_op(
    done: OpCall, mesh: Mesh, device: int, *, operands: list[Array], xp: Any, precision: str
) -> tuple[Array, ...]:
    """Return what a device makes of its parts of the operands. Raises RunFailed where the op fails or has no
    function.
    """
    op, row = done.op, OPS.get(done.op.op)
    if row is None:
        raise RunFailed("op has a rule but no array function", where=f"node {op.id!r}", got=op.op)
    part = local_part(done, mesh, device)
    dtypes = tuple(run_dtype(xp, kind.dtype, precision) for kind in op.results)
    local = OpContext(xp, op.attrs, part.spans, part.shapes, dtypes)
    operands = list(operands)
    for position, window in part.windows.items():
        operands[position] = window.cut(xp, operands[position], row.padding)
    try:
        made = row.compute(local, *operands)
    except (ArithmeticError, IndexError, TypeError, ValueError) as error:
        raise RunFailed(f"{op.op} failed on device {device}", where=f"node {op.id!r}", got=str(error)) from error
    results = made if isinstance(made, tuple) else (made,)
    arrays = [xp.asarray(array) for array in results]
    for array, shape in zip(arrays, local.shapes, strict=True):
        if array.shape != shape:
            raise RunFailed(
                f"{op.op} made another shape on device {device}",
                where=f"node {op.id!r}",
                got=array.shape,
                wanted=shape,
            )
    return tuple(
        round_to_dtype(xp, made, kind.dtype, precision=precision) for made, kind in zip(arrays, op.results, strict=True)
    )
