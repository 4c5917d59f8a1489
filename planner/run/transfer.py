"""The collectives on arrays: one group at a time, members in group order.

Every function takes the members' arrays and gives their results; None where a member's result is undefined.
`parts` are (start, stop) along a dim, a member each. The wire books what members receive from each other.
`transfer` runs the moves between shardings; `planner.run.spmd` runs the same functions on local tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.model.collectives import Collective, Kind
from planner.model.sharding import Reduction, block_size

Array = Any
Bounds = NDArray[np.int64]
Parts = Sequence[tuple[int, int]]

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


@dataclass(frozen=True, slots=True)
class Reducer:
    """Elementwise `combine` of two terms, in group order so that every run adds alike; `finish` gets the total."""

    combine: Callable[[Array, Array], Array]
    finish: Callable[[Array, int], Array] = lambda total, terms: total

    @classmethod
    def of(cls, xp: Any, reduction: Reduction) -> Reducer:
        combine = getattr(xp, _COMBINE[reduction])
        return cls(combine, _averaged) if reduction is Reduction.AVERAGE else cls(combine)


def _averaged(total: Array, terms: int) -> Array:
    """Of integers rounded towards zero, as integer division in MLIR's arith dialect."""
    return total / terms if total.dtype.kind == "f" else total // terms + ((total % terms != 0) & (total < 0))


def transfer(
    xp: Any, move: Collective, reduction: Reduction, shards: list[Array], held: Bounds, wanted: Bounds
) -> tuple[list[Array], list[int]]:
    """Run one collective over one group; its members' bounds [members, dims, 2] before and after the move.

    Results with the number of elements each member received.
    """
    wire, members = Wire(len(shards)), range(len(shards))
    reducer = Reducer.of(xp, reduction)
    dim = move.dim if move.dim is not None else 0
    parts: Parts = [] if move.dim is None else [tuple(part) for part in (wanted[:, dim] - held[0, dim, 0]).tolist()]
    match move.kind:
        case Kind.ALL_SLICE:
            return sliced(shards, dim, parts), wire.received
        case Kind.ALL_GATHER:
            return [gathered(xp, wire, shards, dim, member) for member in members], wire.received
        case Kind.ALL_TO_ALL:
            return exchanged(xp, wire, shards, dim, move.source_dim or 0, parts), wire.received
        case Kind.REDUCE_SCATTER:
            return reduce_scattered(xp, wire, reducer, shards, dim, parts), wire.received
        case Kind.ALL_REDUCE:
            return all_reduced(xp, wire, reducer, shards), wire.received
        case Kind.EXCHANGE:
            raise AssertionError("an exchange is no chain of groups: planner.run.exchange")


def block_parts(size: int, members: int, block: int | None = None) -> Parts:
    """Blocks of ceil(size / members), or of `block`, cut off at the end."""
    width = block_size(size, members) if block is None else block
    return [(min(i * width, size), min((i + 1) * width, size)) for i in range(members)]


def piece(shard: Array, dim: int, part: tuple[int, int]) -> Array:
    return shard[(slice(None),) * dim + (slice(*part),)]


def sliced(shards: list[Array], dim: int, parts: Parts) -> list[Array]:
    """Every member its part of its own array."""
    return [piece(shard, dim, part) for shard, part in zip(shards, parts, strict=True)]


def gathered(xp: Any, wire: Wire, shards: list[Array], dim: int, member: int) -> Array:
    """What a member holds that has all arrays, one after another along a dim."""
    return xp.concatenate([wire.take(shard, j, member) for j, shard in enumerate(shards)], axis=dim)


def exchanged(xp: Any, wire: Wire, shards: list[Array], split: int, concat: int, parts: Parts) -> list[Array]:
    """Piece j of every member's array goes to member j, who joins them along another dim."""
    return [
        xp.concatenate([wire.take(piece(shard, split, part), j, i) for j, shard in enumerate(shards)], axis=concat)
        for i, part in enumerate(parts)
    ]


def scattered(wire: Wire, shard: Array, root: int, dim: int, parts: Parts) -> list[Array]:
    """Every member its part of the root's array."""
    return [wire.take(piece(shard, dim, part), root, i) for i, part in enumerate(parts)]


def permuted(wire: Wire, shards: list[Array], sources: Sequence[int | None]) -> list[Array | None]:
    """Every member the array of its source; no source, no result."""
    return [None if j is None else wire.take(shards[j], j, i) for i, j in enumerate(sources)]


def reduced(xp: Any, wire: Wire, reducer: Reducer, terms: list[Array], member: int) -> Array:
    """What a member holds that combines all terms."""
    total = wire.take(terms[0], 0, member)
    for j, term in enumerate(terms[1:], 1):
        total = reducer.combine(total, wire.take(term, j, member))
    return xp.array(reducer.finish(total, len(terms)))


def reduce_scattered(xp: Any, wire: Wire, reducer: Reducer, shards: list[Array], dim: int, parts: Parts) -> list[Array]:
    """Every member combines its part of all arrays."""
    return [
        reduced(xp, wire, reducer, [piece(shard, dim, part) for shard in shards], i) for i, part in enumerate(parts)
    ]


def all_reduced(xp: Any, wire: Wire, reducer: Reducer, shards: list[Array]) -> list[Array]:
    """Every member combines one block of the flat shard, then all gather the blocks."""
    flat = [shard.reshape(-1) for shard in shards]
    blocks = reduce_scattered(xp, wire, reducer, flat, 0, block_parts(flat[0].size, len(shards)))
    return [gathered(xp, wire, blocks, 0, i).reshape(shard.shape) for i, shard in enumerate(shards)]
