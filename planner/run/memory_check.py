"""Whether a run has room, known before anything runs.

The inputs of the graph are held whole, and as shards by the devices of this machine, as long as a run lasts: that is
the least it takes. What else it takes shows while it runs.
"""

from __future__ import annotations

from math import prod
from typing import Any

from planner.errors import RunFailed
from planner.ir.accounting import count_value_bytes
from planner.ir.program import Program
from planner.run.backend import device_memory, run_dtype


def check_memory(program: Program, xp: Any, precision: str) -> None:
    """Raises RunFailed where the memory of the GPU, or of this machine, is smaller than what a run takes at least."""
    needed, there = min_required_bytes(program, xp, precision), device_memory(xp)
    if needed > there:
        got, wanted = f"{there / 2**30:.1f} GiB", f"{needed / 2**30:.1f} GiB at least, or smaller sizes (--shrink auto)"
        raise RunFailed("too little memory to run the program", where="all devices together", got=got, wanted=wanted)


def min_required_bytes(program: Program, xp: Any, precision: str) -> int:
    """What inputs take, whole and on every device, in the dtypes of the run."""
    total = 0
    for entry in program.graph.inputs:
        width = int(run_dtype(xp, entry.type.dtype, precision).itemsize)
        held = int(count_value_bytes(program, entry.id).sum()) // entry.type.itemsize
        total += (prod(entry.type.shape) + held) * width
    return total
