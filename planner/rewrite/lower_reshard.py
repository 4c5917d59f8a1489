"""A resharding as the dialect's collectives on local tensors, whose sizes need not be known.

A collective of the basis is one call, by the blocks of the whole tensor. An exchange has no op in the dialect:

    halos alone     one update_halo, which sends what the exchange sends
    anything else   an update_halo that drops halos; the documents' collectives between blocks, where dims that are cut
                    at offsets are gathered whole before and sliced after; the reduction's neutral element on all but
                    the first device along an axis that becomes partial; an update_halo that brings halos

The second leads to the same shards, but devices receive more than in the exchange.

The documents' path does not depend on the sizes where no split is nested in another. The shapes of the collectives
are then inferred, `?` where a mesh axis or a dim is unknown. A size that only follows from the whole tensor, as after
a gather over a mesh of unknown size, is stated by a cast.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from planner.ir.collectives import Collective, Kind
from planner.ir.graph import Op, TensorType
from planner.ir.mesh import Mesh
from planner.ir.sharding import Axes, Reduction, Sharding
from planner.ops import bind_op
from planner.reshard.documented_path import plan_collectives
from planner.spmd import LocalOp, LocalType, SpmdBuilder, local_shape
from planner.spmd.collectives import call_attributes


def write_moves(
    build: SpmdBuilder,
    value: str,
    whole: TensorType,
    *,
    source: Sharding,
    target: Sharding,
    mesh: str | None = None,
    moves: Sequence[Collective] | None = None,
) -> str:
    """Append the calls that bring a value into another sharding, and return its new name.

    The value is what devices hold of a tensor of type `whole`. `moves` lead to the target; None: the documents' path.
    Raises InvalidGraph or InvalidMesh where the path depends on a size that is unknown.
    """
    name = mesh or build.default_mesh or next(iter(build.clusters))
    writer = _Writer(build, whole, build.clusters[name].mesh, {} if mesh is None else {"mesh": mesh})
    if moves is None:
        moves = plan_collectives(source, target, whole.shape, mesh=writer.mesh)
    for move in moves:
        if move.is_exchange:
            value = writer.exchange(value, source, move.target(source))
        else:
            value = writer.basis_move(value, source, move)
        source = move.target(source)
    return writer.cast(value, target)


@dataclass(frozen=True)
class _Writer:
    """Writes moves of local values of one tensor over the devices of a mesh; `on` is the attribute of their calls."""

    build: SpmdBuilder
    whole: TensorType
    mesh: Mesh
    on: dict[str, Any]

    def basis_move(self, value: str, source: Sharding, move: Collective) -> str:
        attrs = call_attributes(move, source, self.whole.shape, mesh=self.mesh)
        return self.build.call(move.kind, value, **attrs, **self.on)[0]

    def cast(self, value: str, sharding: Sharding) -> str:
        """State what devices hold of a sharding, where the value's type does not."""
        wanted = LocalType(local_shape(self.whole.shape, sharding, self.mesh), self.whole.dtype)
        return (
            value if self.build.types[value] == wanted else self.build.call("cast", value, types=[wanted], **self.on)[0]
        )

    def exchange(self, value: str, source: Sharding, target: Sharding) -> str:
        """Write what leads from any sharding to any other."""
        if replace(source, halo_sizes=()) == replace(target, halo_sizes=()):
            return self._update_halo(value, source, target)
        first, last = (replace(each, halo_sizes=()) for each in (source, target))
        value = self._move_cores(self._update_halo(value, source, first), first, last)
        return self._update_halo(value, last, target)

    def _move_cores(self, value: str, source: Sharding, target: Sharding) -> str:
        """Lead from blocks or offsets to blocks or offsets, by way of dims that are whole where offsets change."""
        stays = set(source.partial) & set(target.partial) if source.reduction is target.reduction else set()
        before, after = (
            dict(zip(each.split_dims, each.sharded_dims_offsets, strict=False)) for each in (source, target)
        )
        same_axes = (dim for dim in before if source.split_axes[dim] == target.split_axes[dim])
        new = tuple(sorted(set(target.partial) - stays))
        kept = {dim for dim in same_axes if before[dim] == after.get(dim)} if not new else set()
        for dim in before.keys() - kept:
            axes = source.split_axes[dim]
            (value,) = self.build.call(Kind.ALL_GATHER, value, mesh_axes=axes, gather_axis=dim, **self.on)
        if new:
            # A dim of one element broadcasts, and no op splits it: it is cut after the op that makes the terms.
            ones = [dim for dim in target.split_dims if self.whole.shape[dim] == 1]
            after |= {dim: (0, *[1] * self.mesh.group_size(target.split_axes[dim])) for dim in ones}
        held = Sharding(_without(source, before), source.partial, source.reduction)
        wanted = Sharding(_without(target, after), tuple(stays), source.reduction)
        for move in plan_collectives(held, wanted, self.whole.shape, mesh=self.mesh):
            value, held = self.basis_move(value, held, move), move.target(held)
        value = self._make_partial(value, wanted, new, reduction=target.reduction)
        for dim in after.keys() - kept:
            sliced: dict[str, Any] = {"mesh_axes": target.split_axes[dim], "slice_axis": dim, "block": after[dim]}
            (value,) = self.build.call(Kind.ALL_SLICE, value, **sliced, **self.on)
        return value

    def _update_halo(self, value: str, source: Sharding, target: Sharding) -> str:
        none = (0, 0) * len(target.split_dims)
        old, new = source.halo_sizes or none, target.halo_sizes or none
        if old == new:
            return value
        sizes: dict[str, Any] = {"source_halo_sizes": old, "destination_halo_sizes": new}
        return self.build.call("update_halo", value, split_axes=target.split_axes, **sizes, **self.on)[0]

    def _make_partial(self, value: str, held: Sharding, axes: Axes, *, reduction: Reduction) -> str:
        """Leave the tensor on the first device along the axes, and what changes no result on the others.

        Where equal terms change nothing, all keep the tensor.
        """
        devices, neutral_element = self.mesh.group_size(axes), reduction.neutral
        if devices == 1 or neutral_element is None:
            return value
        flags = [self._full(flag, TensorType((size,), "bool")) for flag, size in ((True, 1), (False, devices - 1))]
        is_first = self._local("concat", flags, TensorType((devices,), "bool"), dim=0)
        (is_first,) = self.build.call(Kind.ALL_SLICE, is_first, mesh_axes=axes, slice_axis=0, **self.on)
        is_first = self._local("reshape", [is_first], TensorType((), "bool"))
        neutral = self._full(neutral_element, TensorType((), self.whole.dtype))
        operands, kinds = (
            (is_first, value, neutral),
            (TensorType((), "bool"), self.whole, self.build.types[neutral].tensor),
        )
        rule = bind_op("where", kinds, (self.whole,), attrs={}, notation=None)
        split = {dim.loops[0]: axes for dim, axes in zip(rule.results[0], held.split_axes, strict=True)}
        option = tuple(split.get(loop.name, ()) for loop in rule.loops)
        op, results = Op("where", "where", operands, (self.whole,), rule), self.build.fresh_names(1)
        done = LocalOp(op, option, operands, results, mesh=self.on.get("mesh"))
        return self.build.append(done)[0]

    def _full(self, number: float, kind: TensorType) -> str:
        return self._local("full", [], kind, value=bool(number) if kind.dtype == "bool" else number)

    def _local(self, op: str, operands: Sequence[str], result: TensorType, **attrs: object) -> str:
        """Add an op on local tensors."""
        types = tuple(self.build.types[name].tensor for name in operands)
        rule = bind_op(op, types, (result,), attrs=attrs, notation=None)
        added = Op(op, op, tuple(operands), (result,), rule, MappingProxyType(attrs))
        return self.build.local(added, *operands, mesh=self.on.get("mesh"))[0]


def _without(sharding: Sharding, dims: Collection[int]) -> tuple[Axes, ...]:
    return tuple(() if dim in dims else axes for dim, axes in enumerate(sharding.split_axes))
