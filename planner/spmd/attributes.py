"""Checks of attributes, one per kind of attribute. Each raises InvalidProgram: the call, the rule, got and expected."""

from __future__ import annotations

from typing import Any

from planner.errors import InvalidSharding
from planner.ir.sharding import Reduction, Sharding
from planner.spmd.op_def import DYNAMIC, CallSignature
from planner.spmd.types import Dim

GENERIC = "generic"
REDUCTIONS = (*Reduction, GENERIC)


def number(s: CallSignature, key: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        s.refuse(f"attribute {key}", value, "a whole number")


def flag(s: CallSignature, key: str, value: Any) -> None:
    if not isinstance(value, bool):
        s.refuse(f"attribute {key}", value, "true or false")


def name(s: CallSignature, key: str, value: Any) -> None:
    if value is not None and not isinstance(value, str):
        s.refuse(f"attribute {key}", value, "a name")


def numbers(s: CallSignature, key: str, value: Any, *, dynamic: bool = False) -> None:
    if not isinstance(value, (tuple, list)):
        s.refuse(f"attribute {key}", value, "a list of whole numbers")
    for each in value:
        if each is not DYNAMIC or not dynamic:
            number(s, key, each)


def axis(s: CallSignature, key: str, value: Any) -> None:
    """Check that the value is one axis of the mesh."""
    number(s, key, value)
    if not 0 <= value < len(s.mesh.axes):
        s.refuse(f"mesh axis of {key} is out of bounds", value, f"0 to {len(s.mesh.axes) - 1} (mesh {s.mesh.notation})")


def axes(s: CallSignature, key: str, value: Any) -> None:
    """Check that the values are different axes of the mesh; their order is the order of the group."""
    numbers(s, key, value)
    for each in value:
        axis(s, key, each)
    if len(set(value)) != len(value):
        s.refuse(f"{key} contains duplicate elements", list(value), "each mesh axis at most once")


def axes_lists(s: CallSignature, key: str, value: Any) -> None:
    """Check that the value is a list of mesh axes per tensor dim."""
    if not isinstance(value, (tuple, list)) or not all(isinstance(each, (tuple, list)) for each in value):
        s.refuse(f"attribute {key}", value, "a list of mesh axes per dim")
    if len(value) > s.input.rank:
        s.refuse(f"{key} has more lists than dims", len(value), f"at most {s.input.rank} (the rank)")
    axes(s, key, [each for listed in value for each in listed])


def dim(s: CallSignature, key: str, value: Any) -> None:
    """Check that the value is a dim of the operand."""
    number(s, key, value)
    if not 0 <= value < s.input.rank:
        s.refuse(f"{key} is out of bounds", value, f"0 to {s.input.rank - 1} (operand {s.input})")


def device(s: CallSignature, key: str, value: Any) -> None:
    """Check that the value has a coordinate per mesh axis of the group, within the axis; DYNAMIC ones are operands."""
    numbers(s, key, value, dynamic=True)
    if len(value) != len(s.axes):
        s.refuse(f"in-group device {key!r} has unexpected multi-index size", len(value), len(s.axes))
    for place, (coordinate, along) in enumerate(zip(value, s.axes, strict=True)):
        size = s.mesh.axes[along].size
        if coordinate is not DYNAMIC and not 0 <= coordinate < (size or coordinate + 1):
            wanted = "0 or more" if size is None else f"0 to {size - 1}"
            s.refuse(f"coordinate {place} of in-group device {key!r} is out of bounds", coordinate, wanted)


def any_device(s: CallSignature, key: str, value: Any) -> None:
    """Check that the value is an in-group device, or None for any."""
    if value is not None:
        device(s, key, value)


def devices(s: CallSignature, key: str, value: Any) -> None:
    """Check that the value lists the in-group devices whose path of execution holds the call, or is None for all."""
    if value is None:
        return
    if not isinstance(value, (tuple, list)) or not value:
        s.refuse(f"attribute {key}", value, "a list of in-group devices")
    for each in value:
        numbers(s, key, each)
        device(s, key, each)


def reduction(s: CallSignature, key: str, value: Any) -> None:
    if value not in REDUCTIONS:
        s.refuse("reduction kind", value, f"one of {', '.join(REDUCTIONS)}")
    if value == GENERIC and not s.attrs.get("reducer"):
        s.refuse("a generic reduction names no function", GENERIC, "attribute reducer: the function's name")
    if value != GENERIC and s.attrs.get("reducer"):
        s.refuse("reducer given for a reduction that has its own", value, GENERIC)


def reducible(s: CallSignature, kind: str, dtype: str) -> None:
    """Check that a reduction can combine elements of a type. A function of the program's own can combine any."""
    if kind != GENERIC and (wanted := Reduction(kind).dtype_error(dtype)):
        s.refuse(f"reduction {kind} over an element type", dtype, wanted)


def block(s: CallSignature, key: str, value: Any) -> None:
    """Check the elements of a block, or the offsets of all blocks, given where blocks are not ceil(dim / n) of the
    local dim but the whole tensor's.
    """
    if isinstance(value, list | tuple):
        numbers(s, key, value)
        if len(value) < 2 or list(value) != sorted(value) or value[0] != 0:
            s.refuse("offsets of blocks", list(value), "0 first, then never less than the one before")
    elif value is not None:
        number(s, key, value)
        if value < 1:
            s.refuse("block size", value, "1 or more")


def offset(s: CallSignature, key: str, value: Any) -> None:
    """Check the positions along the shift axis. An offset from which no device could receive is refused; with `rotate`
    positions wrap around, and every offset has a meaning.
    """
    number(s, key, value)
    if s.attrs["rotate"] is True:
        return
    size = s.mesh.axes[s.attrs["shift_axis"]].size
    if size is not None and not -size < value < size:
        s.refuse("shift offset is out of range", value, f"{1 - size} to {size - 1} (the axis has {size} devices)")


def shift_axis(s: CallSignature, key: str, value: Any) -> None:
    number(s, key, value)
    if value not in s.axes:
        s.refuse("invalid shift axis", value, f"one of the grouping mesh axes {list(s.axes)}")


def pairs(s: CallSignature, key: str, value: Any) -> None:
    """Check that (source, target) positions are in the group, with one source per target and one target per source."""
    if value is None:
        return
    if not isinstance(value, (tuple, list)):
        s.refuse(f"attribute {key}", value, "a list of (source, target)")
    for pair in value:
        numbers(s, key, pair)
        if len(pair) != 2 or not all(0 <= each < (s.group or each + 1) for each in pair):
            wanted = "two positions, 0 or more" if s.group is None else f"two positions, 0 to {s.group - 1}"
            s.refuse("pair of a collective_permute", list(pair), wanted)
    for what, listed in (("source", [pair[0] for pair in value]), ("target", [pair[1] for pair in value])):
        if len(set(listed)) != len(listed):
            s.refuse(f"{what} of a collective_permute repeated", listed, "each at most once")


def target_mesh(s: CallSignature, key: str, value: Any) -> None:
    """Check the mesh that a collective_permute moves to. It is given instead of `pairs`, which move along mesh axes."""
    if (value is None) == (s.attrs["pairs"] is None):
        s.refuse("collective_permute", "both" if value else "neither", "either pairs or a target mesh")
    if value is None:
        return
    if s.axes:
        s.refuse("mesh axes of a collective_permute between meshes", list(s.axes), "none")
    if value not in s.meshes:
        s.refuse("undefined mesh", value, f"one of {', '.join(s.meshes) or 'none'}")
    here, there = (_count(mesh) for mesh in (s.mesh, s.meshes[value]))
    if here is not None and there is not None and here != there:
        s.refuse("devices of the target mesh", there, f"{here}, as many as the source mesh has")


def _count(mesh: Any) -> Dim:
    sizes = [each.size for each in mesh.axes]
    return None if None in sizes else mesh.devices


def halo(s: CallSignature, key: str, value: Any) -> None:
    """Check that there are two sizes (before, after) per split dim."""
    numbers(s, key, value, dynamic=True)
    split = sum(bool(listed) for listed in s.attrs["split_axes"])
    if len(value) != 2 * split:
        s.refuse(f"number of {key}", len(value), f"{2 * split}, two per split dim")
    if any(each is not DYNAMIC and each < 0 for each in value):
        s.refuse(f"{key} is negative", list(value), "0 or more")


def shape(s: CallSignature, key: str, value: Any) -> None:
    numbers(s, key, value, dynamic=True)
    if any(each is not DYNAMIC and each < 0 for each in value):
        s.refuse(f"dim of {key} is negative", list(value), "0 or more")


def sharding(s: CallSignature, key: str, value: Any) -> None:
    if not isinstance(value, Sharding):
        s.refuse(f"attribute {key}", value, "a sharding")
    whole = s.attrs["shape"]
    try:
        value.complete(len(whole), s.mesh)
        if DYNAMIC not in whole and _count(s.mesh) is not None:
            value.checked(tuple(whole), s.mesh)
    except InvalidSharding as error:
        s.refuse(error.what, error.got, error.wanted)


def linear_device(s: CallSignature, key: str, value: Any) -> None:
    """Check that the value is the row-major index of a device of the mesh, or DYNAMIC for an operand."""
    if value is DYNAMIC:
        return
    number(s, key, value)
    count = _count(s.mesh)
    if not 0 <= value < (count or value + 1):
        s.refuse("linear device index", value, "0 or more" if count is None else f"0 to {count - 1}")
