"""Classes of devices that run the same code for an op: their parts differ only in where their spans begin.

Shapes in a program for jax.shard_map are the same on every device, but blocks need not be. So a value is held in the
shape of the largest shard, padded at the end of every dim, and the function of an op chooses by the device's number
what to do to arrays of exactly the device's own shapes. The content of the padding has no meaning.

A loop whose iterations are independent in all results may run over the padding as well, from padding to padding. If
all uneven loops of an op are such, every device runs the same code.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

from planner.ir.loop_partition import find_plain_loops
from planner.ir.mesh import Mesh
from planner.ir.notation import Term
from planner.ir.program import OpCall
from planner.ir.sharding import Axes, Shape, block_size
from planner.ops.local_op import LocalPart, held_shape, local_part


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """Devices by number, the part of each, and the shapes in which they hold the operands."""

    devices: tuple[int, ...]
    parts: tuple[LocalPart, ...]
    read: tuple[Shape, ...]

    def starts(self, loop: str) -> tuple[int, ...]:
        """Return where the span of a loop begins, by device."""
        return tuple(part.spans[loop].start for part in self.parts)


def group_devices(done: OpCall, mesh: Mesh) -> list[DeviceClass]:
    """Return all devices in classes by what they do for an op."""
    # With padded loops most uneven ops need one class, and so no switch by device number.
    done = _padded_parts(done, mesh)
    groups: dict[str, list[tuple[int, LocalPart]]] = defaultdict(list)
    read = {}
    for device in range(mesh.devices):
        part = local_part(done, mesh, device)
        shapes = tuple(
            held_shape(done.operand_sharding(k, mesh), shape, mesh, device=device)
            for k, shape in enumerate(done.op.rule.shapes)
        )
        lengths = {loop: span.length for loop, span in part.spans.items()}
        key = repr((shapes, lengths, part.shapes, part.windows))
        groups[key].append((device, part))
        read[key] = shapes
    return [
        DeviceClass(tuple(device for device, _ in members), tuple(part for _, part in members), read[key])
        for key, members in groups.items()
    ]


def _padded_parts(done: OpCall, mesh: Mesh) -> OpCall:
    """Return the op with its independent loops as long as all their padded blocks together."""
    op, rule = done.op, done.op.rule
    option = {loop.name: axes for loop, axes in zip(rule.loops, done.option, strict=True)}
    # A loop that some result lacks is summed or compared over: padding would be counted.
    free = find_plain_loops(rule).intersection(*({loop for dim in term for loop in dim.loops} for term in rule.results))
    padded_loops = {name: axes for name in free - dict(done.loop_partitions).keys() if (axes := option[name])}

    def shape(term: Term, sizes: Shape) -> Shape:
        return tuple(
            _whole_blocks(size, padded_loops[dim.loops[0]], mesh)
            if dim.loops and dim.loops[0] in padded_loops
            else size
            for dim, size in zip(term, sizes, strict=True)
        )

    loops = tuple(
        replace(loop, size=_whole_blocks(loop.size, padded_loops[loop.name], mesh))
        if loop.name in padded_loops
        else loop
        for loop in rule.loops
    )
    shapes = tuple(shape(term, sizes) for term, sizes in zip(rule.operands, rule.shapes, strict=True))
    results = tuple(
        replace(kind, shape=shape(term, kind.shape)) for term, kind in zip(rule.results, op.results, strict=True)
    )
    return replace(done, op=replace(op, rule=replace(rule, loops=loops, shapes=shapes), results=results))


def _whole_blocks(size: int, axes: Axes, mesh: Mesh) -> int:
    parts = mesh.group_size(axes)
    return parts * block_size(size, parts)
