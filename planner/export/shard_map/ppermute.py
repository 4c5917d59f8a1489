"""A tile exchange as rounds of lax.ppermute, each with pieces of one shape, from and to every device at most once.

A piece is a box of the tensor or, where several devices combine its terms, some elements of the flattened box. Tables
by device number say which box a device takes, and where in its result it puts the arriving piece. First a device puts
there what it holds itself. Then come terms, which are combined with what is there (the first of a piece of which the
device has no term is just put there). Last come copies, from where terms were combined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.export.shard_map.op_functions import write_device_index
from planner.ir.mesh import Mesh
from planner.ir.program import ShardedValue
from planner.ir.redistribution import plan_transfers
from planner.ir.sharding import Axes, Reduction, held_bounds, shard_shape
from planner.ir.transfers import PieceTable, Transfers, box_volumes, flat_part_bounds

Integers = NDArray[np.int64]
PIECES = '''def taken(array, corner, start, shape, count):
    """Elements of a flattened box of an array."""
    return lax.dynamic_slice_in_dim(lax.dynamic_slice(array, corner, shape).reshape(-1), start, count)


def put(array, piece, corner, start, shape):
    """The array with a piece of a flattened box in its place."""
    box = lax.dynamic_slice(array, corner, shape).reshape(-1)
    return lax.dynamic_update_slice(array, lax.dynamic_update_slice(box, piece, (start,)).reshape(shape), corner)
'''
COMBINED = {
    Reduction.SUM: "there + piece",
    Reduction.AVERAGE: "there + piece",
    Reduction.MAX: "jnp.maximum(there, piece)",
    Reduction.MIN: "jnp.minimum(there, piece)",
    Reduction.PRODUCT: "there * piece",
    Reduction.BITWISE_AND: "there & piece",
    Reduction.BITWISE_OR: "there | piece",
    Reduction.BITWISE_XOR: "there ^ piece",
}


@dataclass(frozen=True, slots=True)
class _TilePiece:
    """`count` elements from `start` on of a flattened box of the tensor."""

    sender: int
    receiver: int
    box: Integers
    start: int
    count: int

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple((self.box[:, 1] - self.box[:, 0]).tolist())

    @property
    def place(self) -> tuple[int, bytes, int]:
        """The place where it arrives."""
        return self.receiver, self.box.tobytes(), self.start

    def is_compatible(self, others: Iterable[_TilePiece]) -> bool:
        """Return whether it may be sent in one round with others."""
        return all(
            self.sender != each.sender
            and self.receiver != each.receiver
            and (self.shape, self.count) == (each.shape, each.count)
            for each in others
        )


@dataclass(frozen=True, slots=True)
class _PermuteBuffers:
    """The origins `[devices, dims]` of what a device holds and makes, as positions in the tensor, and axis names."""

    x: Integers
    made: Integers
    names: tuple[str, ...]

    def lines(self, pieces: list[_TilePiece], source: str, value: str = "piece") -> list[str]:
        """Return the lines of a round.

        Pieces of `x` or `made` are sent and put in `made`, as they are or combined with what is there.
        """
        like, origins = pieces[0], {"x": self.x, "made": self.made}[source]
        corners = [(each.box[:, 0] - origins[each.sender]).tolist() for each in pieces]
        places = [(each.box[:, 0] - self.made[each.receiver]).tolist() for each in pieces]
        senders, receivers = ([getattr(each, end) for each in pieces] for end in ("sender", "receiver"))
        starts, nowhere = [each.start for each in pieces], [0] * len(like.shape)
        there = f"{self.table(receivers, places, nowhere)}, {self.table(receivers, starts, 0)}, {like.shape!r}"
        box = f"{self.table(senders, corners, nowhere)}, {self.table(senders, starts, 0)}, {like.shape!r}"
        lines = [f"piece = taken({source}, {box}, {like.count})"]
        if senders != receivers:
            pairs = list(zip(senders, receivers, strict=True))
            lines.append(f"piece = lax.ppermute(piece, {self.names!r}, {pairs!r})")
        if "there" in value:
            lines.append(f"there = taken(made, {there}, {like.count})")
        # Every device runs every line: what a device that receives nothing computes is thrown away here.
        arrives = self.table(receivers, [True] * len(pieces), False)
        return [*lines, f"made = jnp.where({arrives}, put(made, {value}, {there}), made)"]

    def table(self, devices: Sequence[int], entries: Sequence[Any], nothing: Any) -> str:
        """Return the expression for the device's own entry; `nothing` for devices without one."""
        by_device = dict(zip(devices, entries, strict=True))
        table = [by_device.get(device, nothing) for device in range(len(self.x))]
        return repr(nothing) if all(entry == nothing for entry in table) else f"jnp.array({table!r})[me]"


def write_exchange_function(held: ShardedValue, made: ShardedValue, mesh: Mesh, *, axes: Axes, name: str) -> str:
    """Return the text of a function from a device's shard of `held` to its shard of `made`."""
    shape, source, target = held.type.shape, held.sharding, made.sharding
    done = plan_transfers(source, target, shape, mesh, axes)
    x, result = (held_bounds(each, shape, mesh)[..., 0] for each in (source, target))
    ends = _PermuteBuffers(x, result, mesh.names)
    lines = [
        f"me = {write_device_index(tuple(range(len(mesh.names))), mesh)}",
        f"made = jnp.zeros({shard_shape(target, shape, mesh)!r}, x.dtype)",
        *(line for pieces in _group_rounds(_local_pieces(done)) for line in ends.lines(pieces, "x")),
    ]
    if done.endpoints.terms > 1:
        lines += _combine_pieces(done, ends, source.reduction)
    copied = "made" if done.endpoints.terms > 1 else "x"
    lines += [line for pieces in _group_rounds(_sent_pieces(done, done.copy)) for line in ends.lines(pieces, copied)]
    if target.reduction is Reduction.PRODUCT and not done.endpoints.is_receiver.all():
        lines.append(f"made = jnp.where(jnp.array({done.endpoints.is_receiver.tolist()!r})[me], made, 1)")
    return "\n".join([f"def {name}(x):", *(f"    {line}" for line in [*lines, "return made"]), ""])


def _combine_pieces(done: Transfers, ends: _PermuteBuffers, reduction: Reduction) -> list[str]:
    """Return the lines with which every device combines the terms of what it reduces."""
    lines, begun = [], set[tuple[int, bytes, int]]()
    for pieces in _group_rounds(_sent_pieces(done, done.reduce)):
        first = [
            # A term is combined only with one that is there: an earlier piece, or what the device itself held.
            each.place not in begun and not _is_inside(each.box, done.endpoints.held[each.receiver])
            for each in pieces
        ]
        begun.update(each.place for each in pieces)
        table = ends.table([each.receiver for each in pieces], first, False)
        combined = COMBINED[reduction]
        lines += ends.lines(pieces, "x", f"jnp.where({table}, piece, {combined})" if any(first) else combined)
    if reduction is Reduction.AVERAGE:
        lines.append(f"made = (made / {done.endpoints.terms}).astype(x.dtype)")
    return lines


def _group_rounds(pieces: Iterable[_TilePiece]) -> list[list[_TilePiece]]:
    rounds: list[list[_TilePiece]] = []
    for piece in pieces:
        # First fit: a round is one ppermute, in which a device may send and receive once, and all pieces have one
        # shape.
        if fitting := next((listed for listed in rounds if piece.is_compatible(listed)), None):
            fitting.append(piece)
        else:
            rounds.append([piece])
    return rounds


def _local_pieces(done: Transfers) -> Iterator[_TilePiece]:
    """Yield what each device holds of what it wants."""
    boxes, has_some = done.endpoints.overlaps()
    for device in np.flatnonzero(has_some).tolist():
        yield _TilePiece(device, device, boxes[device], 0, int(box_volumes(boxes[device : device + 1])[0]))


def _sent_pieces(done: Transfers, sent: PieceTable) -> Iterator[_TilePiece]:
    starts, stops = flat_part_bounds(done.cell_sizes[sent.cell], sent.part, sent.parts)
    for cell, sender, receiver, start, stop in zip(sent.cell, sent.sender, sent.receiver, starts, stops, strict=True):
        if start < stop:
            yield _TilePiece(int(sender), int(receiver), done.cells[cell], int(start), int(stop - start))


def _is_inside(box: Integers, other: Integers) -> bool:
    return bool((other[:, 0] <= box[:, 0]).all() and (box[:, 1] <= other[:, 1]).all())
