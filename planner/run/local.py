"""One op on one device: its span of each loop, its windows of the operands, its part of every result."""

from __future__ import annotations

from typing import Any

from planner.errors import RunFailed
from planner.model.cuts import Cut
from planner.model.indexing import LoopKind
from planner.model.mesh import Mesh
from planner.model.ops import OPS, Local, Row, Span
from planner.model.program import Run
from planner.model.sharding import block_bounds, held_bounds
from planner.model.windows import interval
from planner.run.backend import rounded, run_dtype

Array = Any


def run_op(done: Run, mesh: Mesh, device: int, operands: list[Array], xp: Any, precision: str) -> tuple[Array, ...]:
    """What a device makes of its parts of the operands. Raises RunFailed."""
    op, row = done.op, OPS.get(done.op.op)
    if row is None:
        raise RunFailed("op has a rule but no array function", where=f"node {op.id!r}", got=op.op)
    spans = _spans(done, mesh, device)
    shapes = [held_bounds(done.leaves(i, mesh), kind.shape, mesh)[device] for i, kind in enumerate(op.results)]
    local = Local(
        xp,
        op.attrs,
        spans,
        tuple(tuple((ends[:, 1] - ends[:, 0]).tolist()) for ends in shapes),
        tuple(run_dtype(xp, kind.dtype, precision) for kind in op.results),
    )
    operands = list(operands)
    for position in op.rule.windows:
        origin = held_bounds(done.reads(position, mesh), op.rule.shapes[position], mesh)[device, :, 0]
        operands[position] = _window(done, row, position, spans, operands[position], origin.tolist(), xp)
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
    return tuple(rounded(xp, made, kind.dtype, precision) for made, kind in zip(arrays, op.results, strict=True))


def _spans(done: Run, mesh: Mesh, device: int) -> dict[str, Span]:
    spans, cuts = {}, dict(done.cuts)
    for loop, axes in zip(done.op.rule.loops, done.option, strict=True):
        if loop.kind is LoopKind.LINEAR:
            continue
        part = mesh.group_index(axes)[device]
        start, stop = map(int, block_bounds(loop.size, mesh.group_size(axes), part))
        cut = cuts.get(loop.name, Cut())
        if cut.offsets:
            start, stop = cut.offsets[part : part + 2]
        spans[loop.name] = Span(start - cut.halo[0], stop + cut.halo[1], loop.size)
    return spans


def _window(
    done: Run, row: Row, position: int, spans: dict[str, Span], array: Array, origin: list[int], xp: Any
) -> Array:
    """Just what the windows of an operand read of what a device holds, with the row's padding beyond the tensor."""
    rule = done.op.rule
    ends = {name: (span.start, span.stop) for name, span in spans.items()}
    take, pad = [slice(None)] * array.ndim, [(0, 0)] * array.ndim
    for place, (dim, size) in enumerate(zip(rule.operands[position], rule.shapes[position], strict=True)):
        if dim.coefficients:
            low, high = interval(dim, ends)
            first, last = min(max(low, 0), size), min(max(high, 0), size)
            take[place] = slice(first - origin[place], last - origin[place])
            pad[place] = (first - low, high - last) if high > low else (0, 0)
    cut = array[tuple(take)]
    return xp.pad(cut, pad, constant_values=row.padding) if any(map(any, pad)) else cut
