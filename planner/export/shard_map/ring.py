"""Ops whose blocks pass round a ring of devices, as loops with lax.ppermute (`planner.ir.ring`).

A round of n steps is a `lax.scan` over the first n - 1, and one more step, of which XLA drops what nobody reads: that
operands move once more. Carried from step to step are the op's state, and the blocks of operands and results that a
device has. At step r these are the blocks that began r devices earlier on the ring.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from planner.export.shard_map.tracer import TracedArray, TracedBound, TracePage, UndecidedBranch, UntraceableOperation
from planner.ir.indexing import Loop
from planner.ir.mesh import Mesh
from planner.ir.program import OpCall
from planner.ops import OpContext, Span
from planner.ops.op_def import RingRound

Arrays = Sequence[TracedArray]


class RingWriter:
    """Writes the rounds of one op on a page; `on_page` gives what a device knows of the op, recorded on a page."""

    def __init__(self, run: OpCall, mesh: Mesh, page: TracePage, on_page: Callable[[TracePage], OpContext]) -> None:
        rule = run.op.rule
        if rule.ring is None:
            raise UntraceableOperation("it has no blocks that travel")
        self.page, self.on_page, self.loop = page, on_page, rule.loops[rule.ring.travels]
        self.ins, self.outs = rule.travelling
        axes = rule.ring_axes(run.option)
        self.axes = tuple(mesh.names[axis] for axis in axes)
        # lax.ppermute numbers the devices of several axes in the order of the mesh, lax.axis_index in that of its axes.
        self.sorted_axes = tuple(mesh.names[axis] for axis in sorted(axes))
        numbers = np.arange(mesh.group_size(axes)).reshape([mesh.shape[axis] for axis in sorted(axes)])
        self.ring = numbers.transpose([sorted(axes).index(axis) for axis in axes]).reshape(-1).tolist()
        self.devices = len(self.ring)

    def results(self, arrays: Arrays, rounds: Sequence[RingRound]) -> tuple[Arrays, Arrays]:
        """Write all rounds on a device's operands, and return the state and the sums at their end."""
        state: Arrays = ()
        sums: Arrays = ()
        for number, each in enumerate(rounds, 1):
            local, is_last = self.on_page(self.page), number == len(rounds)
            state = each.begin(local, arrays, tuple(state))
            zeros = [local.xp.zeros(local.shapes[k], local.dtypes[k]) for k in self.outs if is_last]
            moving = [arrays[k] for k in self.ins]
            state, sums = self._round(f"round_{number}", each, arrays, state=state, moving=moving, sums=zeros)
        return state, sums

    def _round(
        self, name: str, each: RingRound, arrays: Arrays, *, state: Arrays, moving: Arrays, sums: Arrays
    ) -> tuple[Arrays, Arrays]:
        carried = [*state, *moving, *sums]
        body = self._step(each, arrays, carried, count=len(state))
        names = ", ".join(f"c{k}" for k in range(len(carried)))
        lines = [f"def {name}(carried, number):", f"    {names}, = carried", *(f"    {line}" for line in body)]
        self.page.lines.append("\n    ".join(lines))
        before = ", ".join(each.text for each in carried)
        steps = f"lax.scan({name}, ({before},), jnp.arange({self.devices - 1}))[0]"
        last = self.page.line(f"{name}({steps}, {self.devices - 1})[0]", lambda *arrays: arrays, *carried)
        return last[: len(state)], last[len(state) + len(moving) :]

    def _step(self, each: RingRound, arrays: Arrays, carried: Arrays, *, count: int) -> list[str]:
        """Return the lines of one step; its number and what is carried are its arguments."""
        page = TracePage(prefix="w")
        here = [TracedArray(page, f"c{k}", array.kind) for k, array in enumerate(carried)]
        state, moving, sums = here[:count], here[count : count + len(self.ins)], here[count + len(self.ins) :]
        operands = [TracedArray(page, array.text, array.kind) for array in arrays]
        for place, block in zip(self.ins, moving, strict=True):
            operands[place] = block
        local = self.on_page(page)
        local = replace(local, spans={**local.spans, self.loop.name: self._block(page, self.loop)})
        try:
            state_after, sums_after = each.step(local, operands, tuple(state), tuple(sums))
        except UndecidedBranch as question:
            raise UntraceableOperation(f"a step depends on {question.text}") from question
        for array, before in zip((*state_after, *sums_after), (*state, *sums), strict=True):
            if (array.shape, array.dtype) != (before.shape, before.dtype):
                raise UntraceableOperation(f"a step makes {array.shape} of {before.shape}")
        hops = list(zip(self.ring, [*self.ring[1:], self.ring[0]], strict=True))
        sent = [f"lax.ppermute({array.text}, {self.sorted_axes!r}, {hops!r})" for array in (*moving, *sums_after)]
        made = ", ".join([*(array.text for array in state_after), *sent])
        return [*page.lines, f"return ({made},), None"]

    def _block(self, page: TracePage, loop: Loop) -> Any:
        """Return the span of the block that a device has at a step."""
        length = loop.size // self.devices
        start: Any = TracedBound(page, f"((lax.axis_index({self.axes!r}) - number) % {self.devices} * {length})")
        return Span(start, start + length, loop.size)
