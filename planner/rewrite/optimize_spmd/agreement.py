"""The mesh axes along which all devices are known to hold the same value.

Local tensors carry no sharding, so nothing is known of arguments. Collectives that drop axes from a sharding give every
member of a group the same, and add their axes; those that append axes give each its own, and take theirs away. Ops keep
what all their operands share.
"""

from __future__ import annotations

from planner.ir.collectives import BASIS, COLLECTIVES, Kind
from planner.spmd import LocalOp, SpmdCall, SpmdInstruction, SpmdProgram

UNIFORM = ("mesh_shape", "size")


def find_agreed_axes(program: SpmdProgram) -> dict[str, frozenset[int]]:
    """Return for every value the axes of its mesh along which all devices hold the same; none for unknown values."""
    agreed = {name: frozenset[int]() for name, _ in program.arguments}
    for done in program.instructions:
        agreed |= dict.fromkeys(done.results, _find_agreed(program, done, agreed))
    return agreed


def _find_agreed(program: SpmdProgram, done: SpmdInstruction, agreed: dict[str, frozenset[int]]) -> frozenset[int]:
    mesh = program.mesh_name(done)
    everywhere = frozenset(range(len(program.meshes[mesh].axes)))
    if any(program.values[name].mesh != mesh for name in done.operands):
        return frozenset()
    shared = everywhere.intersection(*(agreed[name] for name in done.operands))
    if isinstance(done, LocalOp):
        return shared - {axis for axes in done.option for axis in axes}
    return _find_after_call(done, shared, everywhere)


def _find_after_call(call: SpmdCall, shared: frozenset[int], everywhere: frozenset[int]) -> frozenset[int]:
    axes: frozenset[int] = frozenset(call.attrs.get("mesh_axes", ()))  # type: ignore[call-overload]
    if call.op in BASIS:
        return shared - axes if COLLECTIVES[Kind(call.op)].appends else shared | axes
    if call.op == "broadcast":
        return shared | axes
    if call.op == "cast":
        return shared
    return everywhere if call.op in UNIFORM else frozenset()
