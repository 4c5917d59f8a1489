"""Simplifications that need no run: facts about instructions and meshes that passes use."""

from __future__ import annotations

from collections.abc import Sequence

from planner.errors import InvalidMesh
from planner.ir.mesh import Mesh
from planner.ir.sharding import Sharding, shard_shapes
from planner.spmd.instruction import SpmdCall, SpmdInstruction
from planner.spmd.program import SpmdProgram
from planner.spmd.types import Dim, LocalType
from planner.spmd.verify import op_def_of


def is_pure(done: SpmdInstruction) -> bool:
    """Return whether an instruction may be dropped when unread and merged with an equal one. Send and recv may not."""
    return not isinstance(done, SpmdCall) or op_def_of(done).is_pure


def is_identity(call: SpmdCall, operand: LocalType) -> bool:
    """Return whether a collective without mesh axes is its operand: same type, and on every device's path.

    A reduction that changes the element type converts, so it stays. A shift never folds (as upstream).
    """
    ungrouped = not call.attrs.get("mesh_axes") and call.attrs.get("only") is None
    return op_def_of(call).may_be_identity and ungrouped and call.types == (operand,)


def mesh_sizes(mesh: Mesh, axes: Sequence[int]) -> tuple[Dim, ...]:
    """Answer mesh_shape: the sizes of the listed axes, or of all when none is listed; None where one is unknown.

    Raises InvalidMesh for an axis out of range.
    """
    return tuple(mesh.axes[axis].size for axis in mesh.check_axes(axes) or range(len(mesh.axes)))


def linear_index(mesh: Mesh, index: Sequence[int]) -> int:
    """Return the row-major index of a device, the last axis fastest: (1, 2, 3) on 10x20x30 is 663.

    Raises InvalidMesh for coordinates out of range, negative ones included.
    """
    if len(index) != len(mesh.shape):
        raise InvalidMesh("multi-index", where=mesh.notation, got=list(index), wanted=f"{len(mesh.shape)} coordinates")
    index_so_far = 0
    for place, size in zip(index, mesh.shape, strict=True):
        if not 0 <= place < size:
            raise InvalidMesh("coordinate out of range", where=mesh.notation, got=place, wanted=f"0 to {size - 1}")
        index_so_far = index_so_far * size + place
    return index_so_far


def multi_index(mesh: Mesh, device: int, axes: Sequence[int] = ()) -> tuple[int, ...]:
    """Answer process_multi_index: the coordinates along the listed axes, or along all when none is listed.

    Raises InvalidMesh for a device or an axis out of range.
    """
    if not 0 <= device < mesh.devices:
        raise InvalidMesh("device out of range", where=mesh.notation, got=device, wanted=f"0 to {mesh.devices - 1}")
    coordinates: list[int] = []
    for size in reversed(mesh.shape):
        device, place = divmod(device, size)
        coordinates.insert(0, place)
    return tuple(coordinates[axis] for axis in mesh.check_axes(axes) or range(len(coordinates)))


def shard_sizes(mesh: Mesh, sharding: Sharding, shape: tuple[int, ...], *, device: int) -> tuple[int, ...]:
    """Answer shard_shape: the sizes of what a device, given by its linear index, holds of a tensor, halos included."""
    multi_index(mesh, device)
    return tuple(int(size) for size in shard_shapes(sharding.checked(shape, mesh), shape, mesh)[device])


def unread_instructions(program: SpmdProgram) -> tuple[int, ...]:
    """Return the places of the instructions that may be dropped: pure, and read only by others that are dropped.

    Dropping from the one list drops on every device, so coherence holds.
    """
    read, dropped = set(program.outputs), []
    # Backward, so that what only dropped instructions read is dropped too.
    for place in reversed(range(len(program.instructions))):
        done = program.instructions[place]
        if is_pure(done) and not read & set(done.results):
            dropped.append(place)
        else:
            read |= set(done.operands)
    return tuple(reversed(dropped))
