"""Checks before a run whether memory suffices.

The inputs of the graph are held whole, and as shards by the devices of this machine, during the whole run. That is the
least that a run needs; what else it needs shows while it runs.
"""

from __future__ import annotations

from math import prod
from typing import Any

from planner.errors import RunFailed
from planner.ir.accounting import count_value_bytes
from planner.ir.program import Program
from planner.run.backend import device_memory, run_dtype


def check_memory(program: Program, xp: Any, precision: str) -> None:
    """Raise RunFailed where the memory of the GPU, or of this machine, is smaller than the least that a run needs."""
    needed, available = min_required_bytes(program, xp, precision), device_memory(xp)
    if needed > available:
        got, wanted = (
            f"{available / 2**30:.1f} GiB",
            f"{needed / 2**30:.1f} GiB at least, or smaller sizes (--shrink auto)",
        )
        raise RunFailed("too little memory to run the program", where="all devices together", got=got, wanted=wanted)


def min_required_bytes(program: Program, xp: Any, precision: str) -> int:
    """Return the bytes of the inputs, whole and on every device, in the dtypes of the run."""
    total = 0
    for entry in program.graph.inputs:
        width = int(run_dtype(xp, entry.type.dtype, precision).itemsize)
        held = int(count_value_bytes(program, entry.id).sum()) // entry.type.itemsize
        total += (prod(entry.type.shape) + held) * width
    return total
