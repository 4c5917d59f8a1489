"""The RFC's forms of collectives, on sharded tensors: mesh axes listed per tensor dim, as in a sharding.

Each is one collective of the dialect a dim: all_gather takes axes off the end of a dim's list, local_split (today's
all_slice) and reduce_scatter append them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planner.errors import InvalidSharding
from planner.ir.collectives import Collective, Kind
from planner.ir.sharding import Reduction, Sharding

Lists = Sequence[Sequence[int]]


def all_gather(source: Sharding, lists: Lists) -> tuple[Sharding, list[Collective]]:
    """`[[],[],[0,1,2]]` gathered `[[],[],[1,2]]` is `[[],[],[0]]`. Raises InvalidSharding for axes that are no tail."""
    return _each(Kind.ALL_GATHER, source, lists)


def local_split(source: Sharding, lists: Lists) -> tuple[Sharding, list[Collective]]:
    """`[[],[1],[]]` split `[[],[],[0]]` is `[[],[1],[0]]`. Raises InvalidSharding for axes already in use."""
    return _each(Kind.ALL_SLICE, source, lists)


def all_reduce(source: Sharding, axes: Sequence[int]) -> tuple[Sharding, list[Collective]]:
    """Partial over [0, 1] reduced over [0] is partial over [1]. Raises InvalidSharding where it is not partial."""
    return _applied(source, [Collective(Kind.ALL_REDUCE, tuple(axes))])


def reduce_scatter(source: Sharding, axes: Sequence[int], tensor_axis: int) -> tuple[Sharding, list[Collective]]:
    """`[[],[],[]]` partial [0] with tensor_axis 2 is `[[],[],[0]]`. Raises InvalidSharding where it is not partial."""
    _check_dim(source, tensor_axis + 1)
    return _applied(source, [Collective(Kind.REDUCE_SCATTER, tuple(axes), tensor_axis)])


def _each(kind: Kind, source: Sharding, lists: Lists) -> tuple[Sharding, list[Collective]]:
    _check_dim(source, len(lists))
    return _applied(source, [Collective(kind, tuple(axes), dim) for dim, axes in enumerate(lists) if axes])


def _check_dim(source: Sharding, count: int) -> None:
    rank = len(source.split_axes)
    if count > rank:
        raise InvalidSharding("more lists than dims", where=str(source), got=count, wanted=f"at most {rank}")


def _applied(source: Sharding, moves: list[Collective]) -> tuple[Sharding, list[Collective]]:
    for move in moves:
        source = move.target(source)
    return source, moves


_DIMS = {Kind.ALL_GATHER: "gather_axis", Kind.ALL_SLICE: "slice_axis", Kind.REDUCE_SCATTER: "scatter_axis"}


def call_attributes(move: Collective, reduction: Reduction) -> dict[str, Any]:
    """What the call of a collective on local tensors says. Raises InvalidSharding for an exchange, which is none."""
    if move.kind is Kind.EXCHANGE:
        what, wanted = "no collectives of the documents lead there", "blocks to blocks, nothing made partial"
        raise InvalidSharding(what, got=str(move), wanted=wanted)
    attrs: dict[str, Any] = {"mesh_axes": move.axes}
    if move.kind is Kind.ALL_TO_ALL:
        return attrs | {"split_axis": move.dim, "concat_axis": move.source_dim}
    if move.kind in (Kind.ALL_REDUCE, Kind.REDUCE_SCATTER):
        attrs["reduction"] = reduction
    return attrs | ({_DIMS[move.kind]: move.dim} if move.kind in _DIMS else {})
