"""Runs one op on one device: from its parts of the operands to its parts of the results (`planner.ops.local_op`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from planner.errors import RunFailed
from planner.ir.graph import TensorType
from planner.ir.mesh import Mesh
from planner.ir.program import OpCall
from planner.ops import OPS, OpContext, OpDef
from planner.ops.local_op import local_part
from planner.run.backend import round_to_dtype, run_dtype

Array = Any


@dataclass(frozen=True)
class LocalRun:
    """A device's part of an op, ready to run: the row of the op, what the device knows, and its operands."""

    done: OpCall
    device: int
    row: OpDef
    local: OpContext
    operands: list[Array]
    precision: str

    @contextmanager
    def tell_failure(self) -> Iterator[None]:
        """Raise RunFailed, naming node and device, for what an array function raises."""
        try:
            yield
        except (ArithmeticError, IndexError, TypeError, ValueError) as error:
            op = self.done.op
            what, where = f"{op.op} failed on device {self.device}", f"node {op.id!r}"
            raise RunFailed(what, where=where, got=str(error)) from error

    def round(self, made: tuple[Array, ...]) -> tuple[Array, ...]:
        """Return the results in their dtypes. Raises RunFailed where they have other shapes than they should."""
        xp, op = self.local.xp, self.done.op
        arrays = [xp.asarray(array) for array in made]
        for array, shape in zip(arrays, self.local.shapes, strict=True):
            if array.shape != shape:
                what = f"{op.op} made another shape on device {self.device}"
                raise RunFailed(what, where=f"node {op.id!r}", got=array.shape, wanted=shape)
        return tuple(self.round_value(array, kind) for array, kind in zip(arrays, op.results, strict=True))

    def round_value(self, array: Array, kind: TensorType) -> Array:
        return round_to_dtype(self.local.xp, array, kind.dtype, precision=self.precision)


def prepare_op(done: OpCall, mesh: Mesh, device: int, *, operands: list[Array], xp: Any, precision: str) -> LocalRun:
    """Return a device's part of an op. Raises RunFailed for an op without an array function."""
    op, row = done.op, OPS.get(done.op.op)
    if row is None:
        raise RunFailed("op has a rule but no array function", where=f"node {op.id!r}", got=op.op)
    part = local_part(done, mesh, device)
    dtypes = tuple(run_dtype(xp, kind.dtype, precision) for kind in op.results)
    local = OpContext(xp, op.attrs, part.spans, part.shapes, dtypes)
    operands = list(operands)
    for position, window in part.windows.items():
        operands[position] = window.cut(xp, operands[position], row.padding)
    return LocalRun(done, device, row, local, operands, precision)


def run_op(
    done: OpCall, mesh: Mesh, device: int, *, operands: list[Array], xp: Any, precision: str
) -> tuple[Array, ...]:
    """Return what a device makes of its parts of the operands, where nothing travels.

    Raises RunFailed where the op fails or has no function.
    """
    run = prepare_op(done, mesh, device, operands=operands, xp=xp, precision=precision)
    with run.tell_failure():
        made = run.row.compute(run.local, *run.operands)
    return run.round(made if isinstance(made, tuple) else (made,))
