"""Time, received bytes and memory of a program.

The time is the sum over instructions by the cost model. Bytes and memory are counted by `planner.ir.accounting`, on the
device that receives or holds most.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.choose.cost import CostModel, price_key
from planner.ir.accounting import Accounting
from planner.ir.graph import OUTPUTS
from planner.ir.memory_kinds import count_live_by_kind
from planner.ir.program import Instruction, OpCall, Program, Reshard, ShardedValue

Integers = NDArray[np.int64]


def price_instruction(model: CostModel, done: Instruction, values: Mapping[str, ShardedValue]) -> int:
    """Return the time of an instruction in ps; `values` contains those it reads."""
    if isinstance(done, Reshard):
        source = values[done.operand]
        return model.move_ps(done.collective, source.sharding, source.type)
    return model.op_ps(done.op, tuple(values[name].type for name in done.operands), done.option)


@dataclass(frozen=True)
class Analysis:
    """Figures of a program on the hardware of a cost model."""

    program: Program
    model: CostModel

    @cached_property
    def times_ps(self) -> tuple[int, ...]:
        """Time of each instruction, in all of its trips. Equal ops and moves of repeated layers are priced once."""
        known: dict[object, int] = {}
        listed = zip(self.program.instructions, self.program.trips, strict=True)
        return tuple(trips * self._time_ps(done, known) for done, trips in listed)

    def _time_ps(self, done: Instruction, known: dict[object, int]) -> int:
        key: object
        if isinstance(done, Reshard):
            source = self.program.values[done.operand]
            key = done.collective, source.sharding, source.type
        else:
            types = tuple(self.program.values[name].type for name in done.operands)
            key = price_key(done.op), id(done.op.rule), done.op.results, types, done.option
        if key not in known:
            known[key] = self._find_price(done)
        return known[key]

    def _find_price(self, done: Instruction) -> int:
        """Return the time of an instruction; ops of equal work in other programs are priced once with a cost model."""
        if isinstance(done, Reshard):
            return price_instruction(self.model, done, self.program.values)
        types, rule = tuple(self.program.values[name].type for name in done.operands), done.op.rule
        key = price_key(done.op), rule.pattern, rule.shapes, done.op.results, types, done.op.accumulates, done.option
        if key not in self.model.priced:
            self.model.priced[key] = price_instruction(self.model, done, self.program.values)
        return self.model.priced[key]

    @property
    def step_ps(self) -> int:
        return sum(self.times_ps)

    @property
    def update_ps(self) -> int:
        """Part of the time of what runs once in a step of several micro-batches."""
        return sum(self.times_ps[self.program.loop_end :])

    @property
    def compute_ps(self) -> int:
        listed = zip(self.times_ps, self.program.instructions, strict=True)
        return sum(time for time, done in listed if isinstance(done, OpCall))

    @property
    def recompute_ps(self) -> int:
        """Part of the compute time that recomputation takes."""
        listed = zip(self.times_ps, self.program.instructions, strict=True)
        return sum(time for time, done in listed if isinstance(done, OpCall) and done.op.recompute_of is not None)

    @cached_property
    def accounting(self) -> Accounting:
        """Bytes received and live, by device class."""
        return Accounting(self.program)

    @property
    def received(self) -> Integers:
        """Bytes received in all trips, `[instructions, device classes]`."""
        return self.accounting.received

    @property
    def memory(self) -> Integers:
        """Bytes live while each instruction runs, and at the end, `[instructions + 1, device classes]`."""
        return self.accounting.live

    @property
    def collective_bytes(self) -> int:
        """Bytes that the device receives that receives most."""
        return int(self.received.sum(axis=0).max(initial=0))

    @property
    def peak_bytes(self) -> int:
        return int(self.memory.max())

    @cached_property
    def peak_instruction(self) -> int:
        """Number of the instruction during which the peak is first reached."""
        return int(self.memory.max(axis=1).argmax())

    def by_axis(self) -> Mapping[str, int]:
        """Return the bytes received along each set of mesh axes, on the device that receives most there."""
        totals: dict[str, Integers] = {}
        for received, done in zip(self.received, self.program.instructions, strict=True):
            if received.any():
                along = done.collective.axes if isinstance(done, Reshard) else done.op.rule.ring_axes(done.option)
                axes = ",".join(self.program.mesh.names[axis] for axis in along)
                totals[axes] = totals.get(axes, np.zeros_like(received)) + received
        return {axes: int(received.max()) for axes, received in totals.items()}

    @cached_property
    def peak_device(self) -> int:
        """Number of the first device that holds most at the peak."""
        return self.accounting.classes.first_device(int(self.memory[self.peak_instruction].argmax()))

    @property
    def peak_value(self) -> str:
        """The value that is computed when the peak is first reached; `return`: none, it is reached at the end."""
        done = self.program.instructions
        return done[self.peak_instruction].results[0] if self.peak_instruction < len(done) else OUTPUTS

    @cached_property
    def memory_by_kind(self) -> Mapping[str, Integers]:
        """Bytes live on the peak device by kind (`planner.ir.memory_kinds`), each `[instructions + 1]`."""
        return count_live_by_kind(self.accounting, self.peak_device)

    def peak_by_kind(self) -> Mapping[str, int]:
        """Return the bytes of each kind on the peak device at the peak."""
        sizes = {kind: int(live[self.peak_instruction]) for kind, live in self.memory_by_kind.items()}
        return {kind: size for kind, size in sizes.items() if size}
