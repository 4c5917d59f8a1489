"""What a program costs, moves and holds, read off the program itself.

Time is the sum over instructions (cost model); bytes and memory are those of `planner.ir.accounting`, of the
device that receives or holds most.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.choose.cost import CostModel
from planner.ir.accounting import Accounting
from planner.ir.graph import OUTPUTS
from planner.ir.memory_kinds import count_live_by_kind
from planner.ir.program import Instruction, OpCall, Program, Reshard, ShardedValue

Integers = NDArray[np.int64]


def price_instruction(model: CostModel, done: Instruction, values: Mapping[str, ShardedValue]) -> int:
    """Time of an instruction; `values` are those it reads."""
    if isinstance(done, Reshard):
        source = values[done.operand]
        return model.move_ps(done.collective, source.sharding, source.type)
    return model.op_ps(done.op, tuple(values[name].type for name in done.operands), done.option)


@dataclass(frozen=True)
class Analysis:
    """The numbers of a program on the cost model's hardware."""

    program: Program
    model: CostModel

    @cached_property
    def times_ps(self) -> tuple[int, ...]:
        """Time of every instruction."""
        return tuple(price_instruction(self.model, done, self.program.values) for done in self.program.instructions)

    @property
    def step_ps(self) -> int:
        return sum(self.times_ps)

    @property
    def compute_ps(self) -> int:
        listed = zip(self.times_ps, self.program.instructions, strict=True)
        return sum(time for time, done in listed if isinstance(done, OpCall))

    @property
    def recompute_ps(self) -> int:
        """Of the compute time, that of ops which are done again."""
        listed = zip(self.times_ps, self.program.instructions, strict=True)
        return sum(time for time, done in listed if isinstance(done, OpCall) and done.op.recompute_of is not None)

    @cached_property
    def accounting(self) -> Accounting:
        """Bytes received and live, by class of devices."""
        return Accounting(self.program)

    @property
    def received(self) -> Integers:
        """[instructions, classes of devices]: bytes received."""
        return self.accounting.received

    @property
    def memory(self) -> Integers:
        """[instructions + 1, classes of devices]: bytes live while an instruction runs, and at the end."""
        return self.accounting.live

    @property
    def collective_bytes(self) -> int:
        """Bytes received in all by the device that receives most."""
        return int(self.received.sum(axis=0).max(initial=0))

    @property
    def peak_bytes(self) -> int:
        return int(self.memory.max())

    @property
    def peak_instruction(self) -> int:
        """The instruction during which the peak is first reached."""
        return int(self.memory.max(axis=1).argmax())

    def by_axis(self) -> Mapping[str, int]:
        """Bytes received along each set of mesh axes, by the device that receives most there."""
        found: dict[str, Integers] = {}
        for received, done in zip(self.received, self.program.instructions, strict=True):
            if isinstance(done, Reshard) and received.any():
                axes = ",".join(self.program.mesh.names[axis] for axis in done.collective.axes)
                found[axes] = found.get(axes, np.zeros_like(received)) + received
        return {axes: int(received.max()) for axes, received in found.items()}

    @property
    def peak_device(self) -> int:
        """The device that reaches the peak first."""
        return self.accounting.classes.first_device(int(self.memory[self.peak_instruction].argmax()))

    @property
    def peak_value(self) -> str:
        """What is made while the peak is first reached; `return`: nothing, it is the end."""
        done = self.program.instructions
        return done[self.peak_instruction].results[0] if self.peak_instruction < len(done) else OUTPUTS

    @cached_property
    def memory_by_kind(self) -> Mapping[str, Integers]:
        """[instructions + 1] of every kind (`planner.ir.memory_kinds`): bytes live on the busiest device."""
        return count_live_by_kind(self.accounting, self.peak_device)

    def peak_by_kind(self) -> Mapping[str, int]:
        """Bytes of every kind at the peak, on the busiest device."""
        found = {kind: int(live[self.peak_instruction]) for kind, live in self.memory_by_kind.items()}
        return {kind: size for kind, size in found.items() if size}
