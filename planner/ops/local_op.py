"""One device's part of an op: its span of each loop, what its windows read, and the shapes of its results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.ir.indexing import LoopKind
from planner.ir.loop_partition import LoopPartition
from planner.ir.mesh import Mesh
from planner.ir.program import OpCall
from planner.ir.sharding import Shape, Sharding, block_bounds, held_bounds
from planner.ir.windows import read_interval
from planner.ops.op_def import Span

Array = Any
Ends = tuple[int, int]


@dataclass(frozen=True, slots=True)
class WindowRead:
    """What the windows of an operand read, by dim.

    takes  start and stop within the device's shard
    pads   elements of padding before and after, where windows reach beyond the tensor
    """

    takes: tuple[Ends, ...]
    pads: tuple[Ends, ...]

    def cut(self, xp: Any, array: Array, padding: float) -> Array:
        """Return the elements that are read, padded where windows reach beyond the tensor."""
        cut = array[tuple(slice(*ends) for ends in self.takes)]
        return xp.pad(cut, self.pads, constant_values=padding) if any(map(any, self.pads)) else cut


@dataclass(frozen=True, slots=True)
class LocalPart:
    """Spans by loop, local shapes of the results, and window reads by operand."""

    spans: Mapping[str, Span]
    shapes: tuple[Shape, ...]
    windows: Mapping[int, WindowRead]


def local_part(done: OpCall, mesh: Mesh, device: int) -> LocalPart:
    """Return a device's part of an op, under the option and the loop partitions of its call."""
    op, spans = done.op, _loop_spans(done, mesh, device)
    shapes = [
        held_shape(done.result_sharding(i, mesh), kind.shape, mesh, device=device) for i, kind in enumerate(op.results)
    ]
    windows = {position: _window_read(done, position, spans, mesh=mesh, device=device) for position in op.rule.windows}
    return LocalPart(spans, tuple(shapes), windows)


def held_shape(sharding: Sharding, shape: Shape, mesh: Mesh, *, device: int) -> Shape:
    """Return the shape of a device's shard, halos included."""
    ends = held_bounds(sharding, shape, mesh)[device]
    return tuple((ends[:, 1] - ends[:, 0]).tolist())


def _loop_spans(done: OpCall, mesh: Mesh, device: int) -> dict[str, Span]:
    spans, cuts = {}, dict(done.loop_partitions)
    for loop, axes in zip(done.op.rule.loops, done.option, strict=True):
        if loop.kind is LoopKind.LINEAR:
            continue
        part = mesh.group_index(axes)[device]
        start, stop = map(int, block_bounds(loop.size, mesh.group_size(axes), part))
        cut = cuts.get(loop.name, LoopPartition())
        if cut.offsets:
            start, stop = cut.offsets[part : part + 2]
        spans[loop.name] = Span(start - cut.halo[0], stop + cut.halo[1], loop.size)
    return spans


def _window_read(done: OpCall, position: int, spans: Mapping[str, Span], *, mesh: Mesh, device: int) -> WindowRead:
    rule = done.op.rule
    held = held_bounds(done.operand_sharding(position, mesh), rule.shapes[position], mesh)[device].tolist()
    ends = {name: (span.start, span.stop) for name, span in spans.items()}
    takes, pads = [], []
    for dim, size, (origin, end) in zip(rule.operands[position], rule.shapes[position], held, strict=True):
        low, high = read_interval(dim, ends) if dim.coefficients else (origin, end)
        first, last = (min(max(low, 0), size), min(max(high, 0), size)) if dim.coefficients else (low, high)
        takes.append((first - origin, last - origin))
        # What is read may lie wholly in the padding on one side of the dim.
        pads.append((min(high, 0) - min(low, 0), max(high, size) - max(low, size)) if dim.coefficients else (0, 0))
    return WindowRead(tuple(takes), tuple(pads))
