"""A tile exchange as rounds of lax.ppermute: in each, boxes of one shape, from and to every device at most once.

Which box a device takes of its shard, and where in its result it puts the one that arrives, stands in tables by
device number. What a device holds of what it wants is put there without being sent. Reductions on the way (terms that
meet in an exchange) are refused: they have collectives of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from planner.errors import InvalidSharding
from planner.model.exchange import Transfers, exchange
from planner.model.program import Move, Program
from planner.model.sharding import Shape, held_bounds

Integers = NDArray[np.int64]


@dataclass
class _Round:
    """Boxes of one shape, which cross between devices or (`stays`) do not."""

    shape: Shape
    stays: bool
    pairs: list[tuple[int, int]] = field(default_factory=list)
    boxes: list[Integers] = field(default_factory=list)

    def takes(self, sender: int, receiver: int, shape: Shape, stays: bool) -> bool:
        free = all(sender != source and receiver != target for source, target in self.pairs)
        return free and (self.shape, self.stays) == (shape, stays)


def exchange_function(program: Program, move: Move, name: str) -> str:
    """The text of a function of a device's shard. Raises InvalidSharding, naming the value, where terms are reduced."""
    mesh, held, made = program.mesh, program.values[move.operand], program.values[move.result]
    shape, source, target = held.type.shape, held.sharding, made.sharding
    if source.partial != target.partial or source.reduction is not target.reduction:
        what, where = "no collective of jax.lax", f"value {move.result!r}"
        raise InvalidSharding(
            what, where=where, got=str(move.collective), wanted="a sharding partial over the same axes"
        )
    done = exchange(source, target, shape, mesh)
    ends = [held_bounds(each, shape, mesh) for each in (source, target)]
    lines = [f"me = lax.axis_index({mesh.names!r})", f"made = jnp.zeros({_sizes(ends[1][0])}, x.dtype)"]
    for each in _rounds(done):
        lines += _lines(each, ends, mesh.names)
    return "\n".join([f"def {name}(x):", *(f"    {line}" for line in [*lines, "return made"]), ""])


def _rounds(done: Transfers) -> list[_Round]:
    rounds: list[_Round] = []
    for sender, receiver, box in _pieces(done):
        shape, stays = _sizes(box), sender == receiver
        fitting = (each for each in rounds if each.takes(sender, receiver, shape, stays))
        taken = next(fitting, None) or _Round(shape, stays)
        if not taken.pairs:
            rounds.append(taken)
        taken.pairs.append((sender, receiver))
        taken.boxes.append(box)
    return rounds


def _pieces(done: Transfers) -> Iterable[tuple[int, int, Integers]]:
    """What stays, and then what is sent."""
    held, wanted = done.ends.held, done.ends.wanted
    low, high = np.maximum(held[..., 0], wanted[..., 0]), np.minimum(held[..., 1], wanted[..., 1])
    for device in np.flatnonzero((low < high).all(axis=1)).tolist():
        yield device, device, np.stack([low[device], high[device]], axis=-1)
    for cell, sender, receiver in zip(done.copy.cell, done.copy.sender, done.copy.receiver, strict=True):
        yield int(sender), int(receiver), done.cells[cell]


def _sizes(box: Integers) -> Shape:
    return tuple((box[:, 1] - box[:, 0]).tolist())


def _lines(done: _Round, ends: list[Integers], names: tuple[str, ...]) -> list[str]:
    devices, rank = len(ends[0]), len(done.shape)
    takes, puts = np.zeros((2, devices, rank), np.int64)
    arrives = np.zeros(devices, bool)
    for (sender, receiver), box in zip(done.pairs, done.boxes, strict=True):
        takes[sender] = box[:, 0] - ends[0][sender, :, 0]
        puts[receiver] = box[:, 0] - ends[1][receiver, :, 0]
        arrives[receiver] = True
    sent = [] if done.stays else [f"piece = lax.ppermute(piece, {names!r}, {done.pairs!r})"]
    return [
        f"piece = lax.dynamic_slice(x, jnp.array({takes.tolist()!r})[me], {done.shape!r})",
        *sent,
        f"there = lax.dynamic_update_slice(made, piece, jnp.array({puts.tolist()!r})[me])",
        f"made = jnp.where(jnp.array({arrives.tolist()!r})[me], there, made)",
    ]
