"""What a program moves and holds, device by device, before it is run.

Bytes: what every device receives in every collective, uneven blocks included. Memory: every value has its own
buffer, live from the instruction that makes it through the last that reads it, arguments and outputs throughout.
The executor counts both while it runs; they must agree to the byte.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.ir.collectives import count_received_elements
from planner.ir.graph import TensorType
from planner.ir.mesh import Mesh
from planner.ir.program import Program, Reshard
from planner.ir.sharding import Sharding, shard_shapes

Integers = NDArray[np.int64]


def count_received_bytes(program: Program) -> Integers:
    """[instructions, devices]: bytes every device receives in every instruction."""
    received = np.zeros((len(program.instructions), program.mesh.devices), np.int64)
    for place, done in enumerate(program.instructions):
        if isinstance(done, Reshard):
            held = program.values[done.operand]
            elements = count_received_elements(done.collective, held.sharding, held.type.shape, mesh=program.mesh)
            received[place] = elements * held.type.itemsize
    return received


def count_live_bytes(program: Program) -> Integers:
    """[instructions + 1, devices]: bytes every device holds while an instruction runs, and at the end."""
    count = len(program.instructions)
    change = np.zeros((count + 2, program.mesh.devices), np.int64)
    made = {name: 0 for name, _ in program.arguments}
    made |= {name: place for place, done in enumerate(program.instructions) for name in done.results}
    for name, start in made.items():
        size = count_value_bytes(program, name)
        change[start] += size
        change[program.last_use[name] + 1] -= size
    return np.cumsum(change, axis=0)[: count + 1]


def count_value_bytes(program: Program, name: str) -> Integers:
    """[devices]: bytes of every device's shard of a value."""
    held = program.values[name]
    return count_held_bytes(held.sharding, held.type, program.mesh)


def count_held_bytes(sharding: Sharding, kind: TensorType, mesh: Mesh) -> Integers:
    """[devices]: bytes of every device's shard of a tensor, halos included."""
    size: Integers = shard_shapes(sharding, kind.shape, mesh).prod(axis=1) * kind.itemsize
    return size
