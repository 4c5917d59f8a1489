"""Find work that several devices repeat.

An op is replicated along the mesh axes over which none of its loops is split: all devices along them compute the same
(terms of a partial sum are different work). An op without arithmetic repeats no computation.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.ir.indexing import LoopKind
from planner.ir.mesh import Mesh
from planner.ir.program import OpCall, Program
from planner.ir.sharding import Axes, block_size
from planner.ops import OPS


@dataclass(frozen=True, slots=True)
class Redundancy:
    """An op that is computed `times` times along `axes`.

    `wasted_flops` is the part of a device's flops that is redundant.
    """

    op: str
    axes: Axes
    times: int
    wasted_flops: float


def find_redundancies(program: Program) -> list[Redundancy]:
    """Return the ops of a program whose work is repeated, in order. Ops without a row have no known work."""
    runs = [done for done in program.instructions if isinstance(done, OpCall)]
    redundancies = [_measure_redundancy(run, program.mesh) for run in runs]
    return [one for one in redundancies if one.times > 1 and one.wasted_flops > 0]


def _measure_redundancy(run: OpCall, mesh: Mesh) -> Redundancy:
    split = {axis for axes in run.option for axis in axes}
    axes = tuple(axis for axis, size in enumerate(mesh.shape) if size > 1 and axis not in split)
    times = mesh.group_size(axes)
    return Redundancy(run.op.id, axes, times, count_local_flops(run, mesh) * (1 - 1 / times))


def count_local_flops(run: OpCall, mesh: Mesh) -> float:
    """Count the floating-point operations of the device with the largest part of an op."""
    row = OPS.get(run.op.op)
    if row is None or row.is_view:
        return 0.0
    loops = zip(run.op.rule.loops, run.option, strict=True)
    sizes = {
        loop.name: block_size(loop.size, mesh.group_size(axes))
        for loop, axes in loops
        if loop.kind is not LoopKind.LINEAR
    }
    return row.count_flops(sizes, run.op.attrs)
