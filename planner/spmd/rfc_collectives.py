"""The RFC's forms of collectives, on sharded tensors.

An operation that gathers or slices lists mesh axes per tensor dim, as in a sharding, and is one collective of the
dialect a dim; one that reduces lists the axes it reduces over, and names the dim that they are appended to, if any.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.errors import InvalidSharding
from planner.ir.collectives import BASIS, COLLECTIVES, Collective, Kind
from planner.ir.sharding import Sharding

Lists = Sequence[Sequence[int]]

KINDS = tuple(kind for kind in BASIS if "source_dim" not in COLLECTIVES[kind].fields)
"""The collectives that the RFC has; its local_split is the dialect's all_slice."""


def lists_axes_per_dim(kind: Kind) -> bool:
    """Return whether an operation lists its mesh axes per tensor dim."""
    return not COLLECTIVES[kind].reduces


def apply_per_dim(kind: Kind, source: Sharding, lists: Lists) -> tuple[Sharding, list[Collective]]:
    """Apply an operation that lists mesh axes per dim: return the sharding afterwards and the collectives.

    all_gather of `[[],[],[0,1,2]]` by `[[],[],[1,2]]` gives `[[],[],[0]]`; all_slice of `[[],[1],[]]` by
    `[[],[],[0]]` gives `[[],[1],[0]]`. Raises InvalidSharding for axes that are not there to take.
    """
    _check_dims(source, len(lists))
    return _apply(source, [Collective(kind, tuple(axes), dim) for dim, axes in enumerate(lists) if axes])


def apply_reduction(
    kind: Kind, source: Sharding, axes: Sequence[int], *, tensor_axis: int | None = None
) -> tuple[Sharding, list[Collective]]:
    """Apply an operation that reduces over `axes`: return the sharding afterwards and the collectives.

    all_reduce of partial [0, 1] over [0] gives partial [1]; reduce_scatter of `[[],[],[]]` partial [0] with
    `tensor_axis` 2 gives `[[],[],[0]]`. Raises InvalidSharding where the source is not partial over the axes.
    """
    _check_dims(source, 0 if tensor_axis is None else tensor_axis + 1)
    return _apply(source, [Collective(kind, tuple(axes), tensor_axis)])


def _check_dims(source: Sharding, count: int) -> None:
    rank = len(source.split_axes)
    if count > rank:
        raise InvalidSharding("more lists than dims", where=str(source), got=count, wanted=f"at most {rank}")


def _apply(source: Sharding, moves: list[Collective]) -> tuple[Sharding, list[Collective]]:
    for move in moves:
        source = move.target(source)
    return source, moves
