"""SPMD programs run on all logical devices in one process.

Every device goes through the one list by itself; a collective is done when its whole group has arrived, a recv
when its message is there (`planner.run.mail`). When nobody can go on the program is stuck, and the report says who
waits for whom.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.errors import RunFailed
from planner.model.ops import OPS
from planner.model.program import Run
from planner.model.sharding import held_bounds
from planner.model.spmd import Call, Local, SpmdProgram
from planner.model.spmd.sized import sized
from planner.model.spmd.table import QUERIES
from planner.run.backend import DECLARED
from planner.run.calls import Reducers, query, receive, run_group, send, waits_for
from planner.run.local import run_op
from planner.run.mail import Mail
from planner.run.memory import Memory
from planner.run.tasks import Task, task
from planner.run.undefined import Held

Array = Any
_QUERIES = frozenset(row.name for row in QUERIES)
_MOVES_ELEMENTS = frozenset(row.name for row in OPS.values() if row.free) | {"concat", "identity"}
"""Local ops that put elements elsewhere and read none: an undefined element stays undefined."""


@dataclass(frozen=True)
class SpmdRun:
    """[output][device of its mesh]: what is held at the end; bytes received, [instructions, devices]."""

    outputs: list[list[Held]]
    received: NDArray[np.int64]


def run_spmd(
    program: SpmdProgram,
    arguments: Mapping[str, Sequence[Array | Held]],
    xp: Any = np,
    precision: str = DECLARED,
    reducers: Reducers = MappingProxyType({}),
) -> SpmdRun:
    """Run a program; `arguments` are the local tensors, one a device of the argument's mesh, row-major.

    Raises RunFailed for a read of an undefined element, messages that do not match, devices that wait for each
    other, shapes that are not as declared; InvalidMesh where a mesh size is unknown.
    """
    machine = _Machine(program, xp, precision, reducers)
    for name, value in program.arguments:
        machine.load(name, program.clusters[value.mesh].devices, arguments.get(name, ()))
    machine.run()
    outputs = [
        [machine.memory.read(name, device) for device in program.clusters[program.values[name].mesh].devices]
        for name in program.outputs
    ]
    return SpmdRun(outputs, machine.received)


class _Machine:
    def __init__(self, program: SpmdProgram, xp: Any, precision: str, reducers: Reducers) -> None:
        for mesh in program.meshes.values():
            _ = mesh.shape  # an unknown size is refused before anything runs
        devices = 1 + max(max(cluster.devices) for cluster in program.clusters.values())
        self.tasks = [task(program, done) for done in program.instructions]
        self.memory, self.mail, self.reducers = Memory(xp, precision, program.values, devices), Mail(), reducers
        self.at = [0] * devices
        self.received = np.zeros((len(self.tasks), devices), np.int64)
        self.dying = _last_reads(program)

    def load(self, name: str, devices: Sequence[int], arrays: Sequence[Array | Held]) -> None:
        if len(arrays) != len(devices):
            raise RunFailed("argument", where=f"%{name}", got=f"{len(arrays)} local tensors", wanted=len(devices))
        for device, array in zip(devices, arrays, strict=True):
            held = array if isinstance(array, Held) else Held(self.memory.xp.asarray(array))
            self.memory.keep(name, device, held, "arguments")

    def run(self) -> None:
        """Let every device go on as far as it can, until all are done."""
        while any(place < len(self.tasks) for place in self.at):
            if not any(self._go_on(device) for device in range(len(self.at))):
                raise self._stuck()
        self.mail.check_empty()

    def _go_on(self, device: int) -> bool:
        start = self.at[device]
        while self.at[device] < len(self.tasks) and self._step(device):
            pass
        return self.at[device] > start

    def _step(self, device: int) -> bool:
        """Do the device's next instruction; False where it has to wait."""
        place = self.at[device]
        now = self.tasks[place]
        members: Sequence[int] = (device,)
        if device not in now.path:
            self._skip(now, device)
        elif isinstance(now.done, Local):
            self._local(now, now.done, device)
        elif now.call.op in ("send", "recv"):
            if not self._mail(now, device, place):
                return False
        elif now.call.op == "cast" or now.call.op in _QUERIES:
            self._alone(now, device)
        else:
            members = now.groups[device]
            if any(self.at[member] != place for member in members):
                return False
            self.mail.meet(members)
            self.received[place, list(members)] += run_group(now, members, self.memory, self.reducers)
        for member in members:
            self.at[member] = place + 1
            for name in self.dying.get(place, ()):
                self.memory.drop(name, member)
        return True

    def _skip(self, now: Task, device: int) -> None:
        """Not on the device's path: what a send or recv would have made is undefined there."""
        if device in now.groups:
            like = self.memory.read(now.call.operands[0], device).array
            self.memory.keep(
                now.call.results[0], device, Held.nothing(self.memory.xp, like.shape, like.dtype), now.where
            )

    def _mail(self, now: Task, device: int, place: int) -> bool:
        if now.call.op == "send":
            send(now, device, self.memory, self.mail)
            return True
        count = receive(now, device, self.memory, self.mail)
        self.received[place, device] += count or 0
        return count is not None

    def _alone(self, now: Task, device: int) -> None:
        if now.call.op == "cast":
            self.memory.keep(now.call.results[0], device, self.memory.read(now.call.operands[0], device), now.where)
            return
        for name, answer in zip(now.call.results, query(now, device, self.memory), strict=True):
            self.memory.keep(name, device, Held(self.memory.xp.asarray(answer, "int64")), now.where)

    def _local(self, now: Task, done: Local, device: int) -> None:
        xp, place = self.memory.xp, now.positions[device]
        moves = done.op.op in _MOVES_ELEMENTS
        read = self.memory.read if moves else None
        held = [read(n, device) if read else Held(self.memory.defined(n, device, now.where)) for n in done.operands]
        arrays = [each.array for each in held]
        done = sized(done, [array.shape for array in arrays])
        _check_shapes(now, done, place, arrays)
        made = run_op(Run(done.op, done.option, (), ()), now.mesh, place, arrays, xp, self.memory.precision)
        masks: Sequence[Array | None] = [None] * len(made)
        if any(each.undefined is not None for each in held):
            marks = [each.mask(xp) for each in held]
            masks = run_op(Run(done.op, done.option, (), ()), now.mesh, place, marks, xp, self.memory.precision)
        for name, array, mask in zip(done.results, made, masks, strict=True):
            kind = self.memory.dtype(self.memory.values[name].type)
            self.memory.keep(name, device, Held.of(xp, array.astype(kind, copy=False), mask), now.where)

    def _stuck(self) -> RunFailed:
        """Who waits for whom; a recv is named first, since the others mostly wait for its device."""
        waiting = [(self.tasks[place], device) for device, place in enumerate(self.at) if place < len(self.tasks)]
        for now, device in waiting:
            if isinstance(now.done, Call) and now.call.op == "recv":
                return RunFailed(
                    f"device {device} waits for a message that is never sent",
                    where=now.where,
                    got=self.mail.for_device(device),
                    wanted=f"a message from {waits_for(now, device, self.memory)}",
                )
        now, device = waiting[0]
        return RunFailed(
            "devices wait for each other", where=now.where, got=f"device {device} waits", wanted="its group"
        )


def _check_shapes(now: Task, done: Local, place: int, arrays: Sequence[Array]) -> None:
    """What a device gives a local op must be its part of the operands, where their types do not say so."""
    rule = done.op.rule
    for position, array in enumerate(arrays):
        read = rule.read_sharding(position, done.option, now.mesh)
        low, high = held_bounds(read, rule.shapes[position], now.mesh)[place].T
        if array.shape != tuple((high - low).tolist()):
            wanted = (high - low).tolist()
            raise RunFailed(f"operand {position} of device {place}", where=now.where, got=array.shape, wanted=wanted)


def _last_reads(program: SpmdProgram) -> dict[int, list[str]]:
    """Names to forget after each instruction: those it makes or reads and nobody reads later."""
    last: dict[str, int] = {}
    for place, done in enumerate(program.instructions):
        last |= dict.fromkeys((*done.operands, *done.results), place)
    dying: dict[int, list[str]] = {}
    for name, place in last.items():
        if name not in program.outputs:
            dying.setdefault(place, []).append(name)
    return dying
