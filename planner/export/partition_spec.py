"""Shardings in JAX's terms: PartitionSpec (the axes of every dim, major first) and NamedSharding.

A PartitionSpec cannot express halos or offsets, which are refused. JAX also keeps no terms of a sum between two calls,
and no dims that their axes do not divide. Such terms are summed and such axes left out, from the minor end, and a
remark says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from planner.errors import InvalidMesh, InvalidSharding
from planner.export.even_axes import even_split_axes
from planner.ir.mesh import Mesh, MeshAxis
from planner.ir.sharding import Shape, Sharding

JaxMesh = Any
"""jax.sharding.Mesh or AbstractMesh."""


def jax_mesh(mesh: JaxMesh | Mesh | str) -> tuple[Mesh, JaxMesh]:
    """Return our mesh and JAX's for either of them, or for `dp=2,tp=4`. Raises InvalidMesh.

    JAX's mesh has Auto axes, so that XLA fills in what lies between arguments and results; Explicit axes would make
    JAX choose the sharding of every intermediate value, and refuse what the plan leaves to a collective.
    """
    if isinstance(mesh, str):
        mesh = Mesh.parse(mesh)
    if not isinstance(mesh, Mesh):
        try:
            axes = tuple(MeshAxis(str(name), int(size)) for name, size in mesh.shape.items())
        except AttributeError:
            raise InvalidMesh("mesh", got=type(mesh), wanted="a mesh of JAX's, or dp=2,tp=4") from None
        return Mesh(axes), mesh.update(axis_types=(AxisType.Auto,) * len(axes))
    sizes = tuple(axis.size for axis in mesh.axes)
    if None in sizes:
        raise InvalidMesh("mesh axis of unknown size", got=mesh.notation, wanted="numbers")
    return mesh, AbstractMesh(sizes, mesh.names)


def partition_spec(sharding: Sharding, shape: Shape, mesh: Mesh) -> tuple[PartitionSpec, list[str]]:
    """Return the spec of a tensor, and remarks on what it leaves out. Raises InvalidSharding for halos and offsets."""
    if sharding.halo_sizes or sharding.sharded_dims_offsets:
        raise InvalidSharding("halos and offsets", got=str(sharding), wanted="blocks, which are all JAX knows")
    entries, remarks = [], []
    for dim, (size, axes) in enumerate(zip(shape, sharding.split_axes, strict=True)):
        even_axes = even_split_axes(axes, size, mesh)
        if even_axes != axes:
            left_out = ", ".join(mesh.names[axis] for axis in axes[len(even_axes) :])
            remarks.append(f"dim {dim} of {size} is not split along {left_out}: JAX splits evenly")
        entries.append(tuple(mesh.names[axis] for axis in even_axes))
    if sharding.partial:
        names = ", ".join(mesh.names[axis] for axis in sharding.partial)
        remarks.append(f"terms along {names} are reduced ({sharding.reduction}): JAX keeps none between calls")
    while entries and not entries[-1]:
        entries.pop()
    return PartitionSpec(*(_entry(names) for names in entries)), remarks


def named_sharding(
    sharding: Sharding, shape: Shape, mesh: Mesh, *, target: JaxMesh, where: str
) -> tuple[NamedSharding, list[str]]:
    """Return the sharding on a mesh of JAX's, and remarks on what it leaves out. Raises InvalidSharding."""
    try:
        spec, remarks = partition_spec(sharding, shape, mesh)
    except InvalidSharding as error:
        raise error.at(where) from None
    return NamedSharding(target, spec), [f"{where}: {remark}" for remark in remarks]


def _entry(names: Sequence[str]) -> str | tuple[str, ...] | None:
    return None if not names else names[0] if len(names) == 1 else tuple(names)
