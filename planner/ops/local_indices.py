"""Positions in a loop that is split: each device reads or writes those in its part.

A position outside the whole loop is an error, unless the attribute `beyond` says otherwise: `clamp` takes the nearest
end, `wrap` counts negative positions from the end, `drop` reads zeros and writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from planner.ir.sharding import Shape
from planner.ops import attribute_types as types
from planner.ops.attributes import DIMS, Attribute
from planner.ops.op_def import Array, OpContext, OpSignature

BEYOND = Attribute("beyond", types.one_of("refuse", "clamp", "wrap", "drop"), "refuse")


def local_positions(local: OpContext, ids: Array, loop: str) -> tuple[Array, Array]:
    """Return which positions are in the local part of a loop, and their offsets there (0 for the others).

    Raises IndexError for a position outside the loop, unless `beyond` says what to do with it.
    """
    span, beyond = local.spans[loop], local.read(BEYOND)
    if beyond == "clamp":
        ids = ids.clip(0, span.size - 1)
    if beyond == "wrap":
        ids = local.xp.where(ids < 0, ids + span.size, ids)
    strict = local.is_strict and beyond in ("refuse", "wrap")
    if strict and ids.size and not (int(ids.min()) >= 0 and int(ids.max()) < span.size):
        raise IndexError(f"id out of range: got {int(ids.min())}..{int(ids.max())}, wanted 0..{span.size - 1}")
    inside = (ids >= span.start) & (ids < span.stop)
    return inside, local.xp.where(inside, ids - span.start, 0)


def name_loops(rank: int, prefix: str = "d") -> list[str]:
    return [f"{prefix}{i}" for i in range(rank)]


def indexed_operands(first: int, count: int = 8) -> Mapping[int, str]:
    """Map the operands from `first` on to the loops v0, v1, ... whose positions they hold."""
    return MappingProxyType({first + k: f"v{k}" for k in range(count)})


def broadcast_term(shape: Shape, whole: Sequence[int], names: Sequence[str]) -> str:
    """Return the term of a shape that broadcasts to the dims `whole`, named `names` and aligned at the right."""
    back = len(whole) - len(shape)
    triples = zip(shape, whole[back:], names[back:], strict=True)
    return " ".join("1" if have == 1 != want else name for have, want, name in triples) or "[]"


def indexed_dims(signature: OpSignature, count: int) -> tuple[int, ...]:
    """Return the attribute `dims`. Raises ValueError where it does not list `count` dims."""
    dims = signature.read(DIMS)
    if len(dims) != count:
        raise ValueError(f"{count} positions for {len(dims)} dims")
    return dims
