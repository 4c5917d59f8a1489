"""The collectives on arrays: one group at a time, members in group order.

Every function takes the arrays of the members that are here and returns their results, None where a member's result
is undefined. `parts` are (start, stop) along a dim, one per member. A collective consists of what members send, which
the communicator delivers (`planner.run.transport`), and what they make of what they receive. A reduction takes its
terms in group order, so that it adds alike wherever it runs. `run_collective` runs the moves between shardings;
`planner.run.spmd_executor` runs the same functions on local tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.ir.collectives import Collective, Kind
from planner.ir.sharding import Reduction, block_size
from planner.run.transport import Communicator

Array = Any
Bounds = NDArray[np.int64]
BlockRanges = Sequence[tuple[int, int]]

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


@dataclass(frozen=True, slots=True)
class Reducer:
    """Elementwise `combine` of two terms, in group order so that every run adds alike; `finish` is applied to the
    total.
    """

    combine: Callable[[Array, Array], Array]
    finish: Callable[[Array, int], Array] = lambda total, terms: total

    @classmethod
    def of(cls, xp: Any, reduction: Reduction) -> Reducer:
        combine = getattr(xp, _COMBINE[reduction])
        return cls(combine, _average_total) if reduction is Reduction.AVERAGE else cls(combine)


def _average_total(total: Array, terms: int) -> Array:
    """Divide a total by its number of terms.

    Integers are rounded towards zero, as by integer division in MLIR's arith dialect.
    """
    return total / terms if total.dtype.kind == "f" else total // terms + ((total % terms != 0) & (total < 0))


@dataclass(frozen=True, slots=True)
class GroupShards:
    """What a collective over one group works on: the arrays of the members that are here.

    `dim` and `source_dim` are those of the collective, 0 where it has none. `cut` returns the ranges along `dim`, a
    member each, into which a member's array is cut. `reducer` is None where nothing is reduced.
    """

    xp: Any
    wire: Communicator
    shards: list[Array]
    dim: int
    source_dim: int
    cut: Callable[[Array], BlockRanges]
    reducer: Reducer | None

    @property
    def parts(self) -> BlockRanges:
        """The ranges where all members' arrays are cut alike."""
        return self.cut(self.shards[0])

    @property
    def terms_reducer(self) -> Reducer:
        assert self.reducer is not None, "a collective that reduces is given its reduction"
        return self.reducer


def _slice_shards(group: GroupShards) -> list[Array]:
    """Cut every member's own array: they need not agree."""
    here = zip(group.wire.here, group.shards, strict=True)
    return [slice_piece(shard, group.dim, group.cut(shard)[i]) for i, shard in here]


ARRAY_FUNCTIONS: Mapping[Kind, Callable[[GroupShards], list[Array]]] = MappingProxyType(
    {
        Kind.ALL_GATHER: lambda g: all_gather(g.xp, g.wire, g.shards, dim=g.dim),
        Kind.ALL_SLICE: _slice_shards,
        Kind.ALL_TO_ALL: lambda g: all_to_all(g.xp, g.wire, g.shards, split=g.dim, concat=g.source_dim, parts=g.parts),
        Kind.ALL_REDUCE: lambda g: all_reduce(g.xp, g.wire, g.terms_reducer, shards=g.shards),
        Kind.REDUCE_SCATTER: lambda g: reduce_scatter(
            g.xp, g.wire, g.terms_reducer, shards=g.shards, dim=g.dim, parts=g.parts
        ),
    }
)
"""Every basis move. An exchange is no chain of groups: `planner.run.redistribution`."""


def run_collective(
    xp: Any,
    move: Collective,
    reduction: Reduction,
    *,
    shards: list[Array],
    held: Bounds,
    wanted: Bounds,
    wire: Communicator | None = None,
) -> tuple[list[Array], list[int]]:
    """Run a basis move over one group, given its members' bounds `[members, dims, 2]` before and after it.

    `shards` are those of the members that `wire` has here (None: of all members). Return their results and the
    number of elements that each member received.
    """
    wire = wire or Communicator(len(shards))
    dim = move.dim or 0
    ends = [] if move.dim is None else (wanted[:, dim] - held[0, dim, 0]).tolist()
    ranges: BlockRanges = [tuple(part) for part in ends]
    group = GroupShards(xp, wire, shards, dim, move.source_dim or 0, lambda shard: ranges, Reducer.of(xp, reduction))
    return ARRAY_FUNCTIONS[move.kind](group), wire.received


def split_blocks(size: int, members: int, block: int | None = None) -> BlockRanges:
    """Return blocks of ceil(size / members), or of `block`, cut off at the end."""
    width = block_size(size, members) if block is None else block
    return [(min(i * width, size), min((i + 1) * width, size)) for i in range(members)]


def slice_piece(shard: Array, dim: int, part: tuple[int, int]) -> Array:
    return shard[(slice(None),) * dim + (slice(*part),)]


def combine_terms(xp: Any, reducer: Reducer, terms: Sequence[Array]) -> Array:
    """Combine all terms in their order."""
    total = terms[0]
    for term in terms[1:]:
        total = reducer.combine(total, term)
    return xp.array(reducer.finish(total, len(terms)))


def all_gather(xp: Any, wire: Communicator, shards: list[Array], *, dim: int) -> list[Array]:
    """Join all members' arrays along a dim."""
    arrived = wire.exchange([[shard] * wire.members for shard in shards])
    return [xp.concatenate(pieces, axis=dim) for pieces in arrived]


def all_to_all(
    xp: Any, wire: Communicator, shards: list[Array], *, split: int, concat: int, parts: BlockRanges
) -> list[Array]:
    """Send piece j of every member's array to member j, which joins them along another dim."""
    arrived = wire.exchange([[slice_piece(shard, split, part) for part in parts] for shard in shards])
    return [xp.concatenate(pieces, axis=concat) for pieces in arrived]


def reduce_scatter(
    xp: Any, wire: Communicator, reducer: Reducer, *, shards: list[Array], dim: int, parts: BlockRanges
) -> list[Array]:
    """Let every member combine its part of all arrays."""
    arrived = wire.exchange([[slice_piece(shard, dim, part) for part in parts] for shard in shards])
    return [combine_terms(xp, reducer, pieces) for pieces in arrived]


def all_reduce(xp: Any, wire: Communicator, reducer: Reducer, *, shards: list[Array]) -> list[Array]:
    """Let every member combine one block of the flat shard, then gather all blocks."""
    flat = [shard.reshape(-1) for shard in shards]
    blocks = reduce_scatter(xp, wire, reducer, shards=flat, dim=0, parts=split_blocks(flat[0].size, wire.members))
    whole = all_gather(xp, wire, blocks, dim=0)
    return [each.reshape(shard.shape) for each, shard in zip(whole, shards, strict=True)]


def gather_to_root(wire: Communicator, shards: list[Array], root: int) -> list[list[Array] | None]:
    """Return all members' arrays for the root, and None for the others."""
    arrived = wire.exchange([[shard if j == root else None for j in range(wire.members)] for shard in shards])
    return [pieces if member == root else None for member, pieces in zip(wire.here, arrived, strict=True)]


def scatter_from_root(
    wire: Communicator, shards: list[Array], root: int, *, dim: int, parts: BlockRanges
) -> list[Array]:
    """Give every member its part of the root's array."""
    nothing = [None] * wire.members
    sent = [
        [slice_piece(shard, dim, part) for part in parts] if member == root else nothing
        for member, shard in zip(wire.here, shards, strict=True)
    ]
    return [pieces[root] for pieces in wire.exchange(sent)]


def permute(wire: Communicator, shards: list[Array], sources: Sequence[int | None]) -> list[Array | None]:
    """Give every member the array of its source, or None without a source."""
    sent = [
        [shard if source == member else None for source in sources]
        for member, shard in zip(wire.here, shards, strict=True)
    ]
    arrived = wire.exchange(sent)
    return [
        None if (source := sources[member]) is None else pieces[source]
        for member, pieces in zip(wire.here, arrived, strict=True)
    ]
