"""Devices that do alike: of one op, those whose parts differ in nothing but where their spans begin.

Shapes in a program for jax.shard_map are the same on every device, and blocks need not be. So a value is held in the
shape of the largest shard, filled up at the end of every dim, and the function of an op chooses by the device's number
what is done to arrays of just the device's own shapes. What stands in the filling means nothing.

A loop whose iterations know nothing of each other, in any result, may run over the filling as well, from filling to
filling: of an op in which all uneven loops are such, every device does alike.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

from planner.model.cuts import plain
from planner.model.mesh import Mesh
from planner.model.notation import Term
from planner.model.parts import Part, held_shape, part_of
from planner.model.program import Run
from planner.model.sharding import Axes, Shape, block_size


@dataclass(frozen=True, slots=True)
class Alike:
    """Devices by number, the part of each, and the shapes in which they hold the operands."""

    devices: tuple[int, ...]
    parts: tuple[Part, ...]
    read: tuple[Shape, ...]

    def starts(self, loop: str) -> tuple[int, ...]:
        """Where the span of a loop begins, by device."""
        return tuple(part.spans[loop].start for part in self.parts)


def alike(done: Run, mesh: Mesh) -> list[Alike]:
    """All devices, in groups by what they do of an op."""
    done = _filled(done, mesh)
    groups: dict[str, list[tuple[int, Part]]] = defaultdict(list)
    read = {}
    for device in range(mesh.devices):
        part = part_of(done, mesh, device)
        shapes = tuple(
            held_shape(done.reads(k, mesh), shape, mesh, device) for k, shape in enumerate(done.op.rule.shapes)
        )
        lengths = {loop: span.length for loop, span in part.spans.items()}
        key = repr((shapes, lengths, part.shapes, part.windows))
        groups[key].append((device, part))
        read[key] = shapes
    return [
        Alike(tuple(device for device, _ in members), tuple(part for _, part in members), read[key])
        for key, members in groups.items()
    ]


def _filled(done: Run, mesh: Mesh) -> Run:
    """The op with its independent loops as long as all their blocks, filled up, are together."""
    op, rule = done.op, done.op.rule
    option = {loop.name: axes for loop, axes in zip(rule.loops, done.option, strict=True)}
    free = plain(rule).intersection(*({loop for dim in term for loop in dim.loops} for term in rule.results))
    longer = {name: axes for name in free - dict(done.cuts).keys() if (axes := option[name])}

    def shape(term: Term, sizes: Shape) -> Shape:
        return tuple(
            _whole_blocks(size, longer[dim.loops[0]], mesh) if dim.loops and dim.loops[0] in longer else size
            for dim, size in zip(term, sizes, strict=True)
        )

    loops = tuple(
        replace(loop, size=_whole_blocks(loop.size, longer[loop.name], mesh)) if loop.name in longer else loop
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
