"""The collectives on arrays: one group at a time, members in group order.

Every function takes the members' arrays and returns their results with the number of elements each received
from the others. `held` and `wanted` are the members' bounds [members, dims, 2] before and after the move.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.model.collectives import Collective, Kind
from planner.model.sharding import Reduction, block_size

Array = Any
Bounds = NDArray[np.int64]

_COMBINE = {
    Reduction.SUM: "add",
    Reduction.AVERAGE: "add",
    Reduction.MAX: "maximum",
    Reduction.MIN: "minimum",
    Reduction.PRODUCT: "multiply",
    Reduction.BITWISE_AND: "bitwise_and",
    Reduction.BITWISE_OR: "bitwise_or",
    Reduction.BITWISE_XOR: "bitwise_xor",
}


class Wire:
    """Counts what crosses between devices: `take` hands over a piece and books it unless it stays at home."""

    def __init__(self, members: int) -> None:
        self.received = [0] * members

    def take(self, piece: Array, source: int, target: int) -> Array:
        if source != target:
            self.received[target] += int(piece.size)
        return piece


def transfer(
    xp: Any, move: Collective, reduction: Reduction, shards: list[Array], held: Bounds, wanted: Bounds
) -> tuple[list[Array], list[int]]:
    """Run one collective over one group."""
    wire = Wire(len(shards))
    results: list[Array]
    match move.kind:
        case Kind.ALL_SLICE:
            results = [_cut(shard, held[i], wanted[i]) for i, shard in enumerate(shards)]
        case Kind.ALL_GATHER:
            results = [_joined(xp, wire, shards, i, move.dim) for i in range(len(shards))]
        case Kind.ALL_TO_ALL:
            results = [_exchanged(xp, wire, move, shards, held, wanted, i) for i in range(len(shards))]
        case Kind.REDUCE_SCATTER:
            pieces = [[_cut(shard, held[j], wanted[i]) for j, shard in enumerate(shards)] for i in range(len(shards))]
            results = [_combined(xp, wire, reduction, mine, i) for i, mine in enumerate(pieces)]
        case Kind.ALL_REDUCE:
            results = _all_reduced(xp, wire, reduction, shards)
    return results, wire.received


def _cut(shard: Array, held: Bounds, part: Bounds) -> Array:
    """The part of a shard, both given by their place in the whole tensor."""
    starts = np.minimum(part[:, 0] - held[:, 0], shard.shape)
    stops = part[:, 1] - held[:, 0]
    return shard[tuple(slice(int(low), int(high)) for low, high in zip(starts, stops, strict=True))]


def _joined(xp: Any, wire: Wire, shards: list[Array], member: int, dim: int | None) -> Array:
    return xp.concatenate([wire.take(shard, j, member) for j, shard in enumerate(shards)], axis=dim)


def _exchanged(
    xp: Any, wire: Wire, move: Collective, shards: list[Array], held: Bounds, wanted: Bounds, member: int
) -> Array:
    """Along `dim` the member's own part of every other's shard; these parts follow each other along `source_dim`."""
    pieces = []
    for j, shard in enumerate(shards):
        part = held[j].copy()
        part[move.dim] = wanted[member][move.dim]
        pieces.append(wire.take(_cut(shard, held[j], part), j, member))
    return xp.concatenate(pieces, axis=move.source_dim)


def _combined(xp: Any, wire: Wire, reduction: Reduction, pieces: list[Array], member: int) -> Array:
    """The members' terms combined in group order, so that every run adds alike."""
    combine = getattr(xp, _COMBINE[reduction])
    total = wire.take(pieces[0], 0, member)
    for j, piece in enumerate(pieces[1:], 1):
        total = combine(total, wire.take(piece, j, member))
    return total / len(pieces) if reduction is Reduction.AVERAGE else xp.array(total)


def _all_reduced(xp: Any, wire: Wire, reduction: Reduction, shards: list[Array]) -> list[Array]:
    """Every member combines one block of the flat shard, then all gather the blocks."""
    block = block_size(shards[0].size, len(shards))
    flat = [shard.reshape(-1) for shard in shards]
    blocks = [
        _combined(xp, wire, reduction, [terms[i * block : (i + 1) * block] for terms in flat], i)
        for i in range(len(shards))
    ]
    return [
        xp.concatenate([wire.take(part, j, i) for j, part in enumerate(blocks)]).reshape(shard.shape)
        for i, shard in enumerate(shards)
    ]
