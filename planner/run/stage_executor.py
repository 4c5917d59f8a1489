"""Runs the tasks of one pipeline stage on its logical devices, several micro-batches in flight.

An executor of the stage's program holds the values of the micro-batch that runs. What a pass leaves for a later one
(`planner.ir.left_values`) is kept aside for each micro-batch in flight, and counted as held; what does not depend on
data stays until the last one has ended. Data and received values have one buffer, which the micro-batch that runs
fills, and what is sent stays until the next pass of its kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from planner.ir.left_values import find_dependent, find_first_reads, find_left_values
from planner.ir.program import Program, is_accumulation
from planner.ir.sharding import held_bounds
from planner.run.backend import run_dtype
from planner.run.executor import Executor
from planner.run.transport import LocalTransport

Array = Any
Shards = dict[int, Array]
"""The array of each device."""


class StageExecutor(Executor):
    """The devices of a stage. `arrays` are the whole inputs of the stage's program, of the first micro-batch.

    `on_instruction` is called before each argument is loaded and before each instruction runs.
    """

    def __init__(
        self,
        program: Program,
        arrays: Mapping[str, Array],
        xp: Any,
        precision: str,
        *,
        on_instruction: Callable[[], None] = lambda: None,
    ) -> None:
        later, transport = [dict(arrays)] * (program.graph.microbatches - 1), LocalTransport(program.mesh.devices)
        super().__init__(program, arrays, xp, precision, transport, later=later, on_argument=on_instruction)
        self.on_instruction = on_instruction
        forward, backward = program.pass_ends
        self.spans = {"forward": (0, forward), "backward": (forward, backward), "weight": (backward, program.loop_end)}
        listed = list(enumerate(program.instructions))
        self.last_read = {name: place for place, done in listed[: program.loop_end] for name in done.operands}
        self.dependent = find_dependent(program)
        first_read = find_first_reads(program)
        self.data = {name for name, _ in program.arguments if name in self.dependent}
        self.read_first = {
            kind: {name for name in self.data if start <= first_read.get(name, -1) < stop}
            for kind, (start, stop) in self.spans.items()
        }
        self.made_in = {
            kind: {name for _, done in listed[slice(*span)] if not is_accumulation(done) for name in done.results}
            for kind, span in self.spans.items()
        }
        for name in sorted(name for done in program.instructions if is_accumulation(done) for name in done.results):
            self._begin_sum(name)
        self.constants = {left.name for left in find_left_values(program)} - self.dependent
        self.aside: dict[int, dict[str, Shards]] = {}
        self.filled_by: dict[str, int | None] = dict.fromkeys(self.data)

    def run_pass(self, kind: str, number: int, given: Mapping[str, Shards]) -> None:
        """Run a pass of a micro-batch. `given`: the shards of the data and received values that are new to it."""
        self._drop_results(kind)
        for name, shards in given.items():
            self._fill(name, number, shards)
        self._restore(number)
        self.microbatch = number + 1  # sums begin with zeros
        start, stop = self.spans[kind]
        for place in range(start, stop):
            self._run_instruction(place)
        self._put_aside(number, stop)

    def run_update_until(self, values: Sequence[str]) -> int:
        """Run the update until it has computed outputs of the graph, and return the place of the next instruction."""
        for name in sorted(self.constants):
            if self.program.last_use[name] < self.program.loop_end:
                self._discard(name)
        names = {self.program.outputs[self.program.graph.outputs.index(value)] for value in values}
        listed = enumerate(self.program.instructions)
        stop = max((place + 1 for place, done in listed if not names.isdisjoint(done.results)), default=0)
        for place in range(self.program.loop_end, stop):
            self._run_instruction(place)
        return max(stop, self.program.loop_end)

    def run_update(self, start: int, given: Mapping[str, Shards]) -> None:
        """Run the rest of what follows the last micro-batch. `given`: the shards of values received for it."""
        for name, shards in given.items():
            self._drop(name)
            for device, array in shards.items():
                self._store(name, device, array)
        for place in range(start, len(self.program.instructions)):
            self._run_instruction(place)

    def shards_of(self, value: str, microbatch: int | None = None) -> Shards:
        """Return what the devices hold of an output of the graph: that of a micro-batch in flight, or the last."""
        name = self.program.outputs[self.program.graph.outputs.index(value)]
        aside = {} if microbatch is None else self.aside.get(microbatch, {})
        return aside[name] if name in aside else {device: held[name] for device, held in self.held.items()}

    def _begin_sum(self, name: str) -> None:
        value = self.program.values[name]
        bounds = held_bounds(value.sharding, value.type.shape, self.program.mesh)
        for device, size in enumerate((bounds[..., 1] - bounds[..., 0]).tolist()):
            self._store(name, device, self.xp.zeros(size, run_dtype(self.xp, value.type.dtype, self.precision)))

    def _run_instruction(self, place: int) -> None:
        self.on_instruction()
        done = self.program.instructions[place]
        if not is_accumulation(done):
            for name in done.results:
                self._discard(name)
        self.execute(place, done)
        kept = self.constants if place < self.program.loop_end else set()
        self.end_instruction(place, tuple(name for name in (*done.operands, *done.results) if name not in kept))

    def _drop_results(self, kind: str) -> None:
        """Drop what the last micro-batch's passes of this kind and later ones made, but for what all share."""
        kinds = list(self.spans)
        for name in set().union(*(self.made_in[each] for each in kinds[kinds.index(kind) :])):
            if name not in self.constants:
                self._discard(name)

    def _fill(self, name: str, number: int, shards: Shards) -> None:
        """Fill the buffer of an input, whose content is kept for a micro-batch in flight that still needs it."""
        before = self.filled_by[name]
        if before is None or name not in self.aside.get(before, {}):
            self._discard(name)
        for device, array in shards.items():
            self._store(name, device, array)
        self.filled_by[name] = number

    def _restore(self, number: int) -> None:
        """Take back what earlier passes of a micro-batch left."""
        for name, shards in self.aside.pop(number, {}).items():
            if name in self.data:
                if self.filled_by[name] == number:
                    continue
                before = self.filled_by[name]
                if before is None or name not in self.aside.get(before, {}):
                    self._discard(name)
                self.filled_by[name] = number
            else:
                self._discard(name)
            for device, array in shards.items():
                self.held[device][name] = array

    def _put_aside(self, number: int, stop: int) -> None:
        """Keep what later passes of a micro-batch read; buffers of inputs are left as they are, too."""
        kept: dict[str, Shards] = {}
        for name in sorted(self.dependent):
            is_left = self.last_read.get(name, -1) >= stop and name in next(iter(self.held.values()))
            if not is_left or (name in self.data and self.filled_by[name] != number):
                continue
            kept[name] = {device: held[name] for device, held in self.held.items()}
            if name not in self.data:
                for held in self.held.values():
                    del held[name]
        self.aside[number] = kept

    def _discard(self, name: str) -> None:
        if name in next(iter(self.held.values())):
            self._drop(name)
