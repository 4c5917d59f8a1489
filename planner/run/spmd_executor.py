"""Runs SPMD programs on all logical devices in one process.

Every device goes through the one list by itself. A collective runs when its whole group has arrived, a recv when its
message is there (`planner.run.mailbox`). When no device can go on the program is stuck, and the error says who waits
for whom.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.errors import RunFailed
from planner.ir.mesh import Mesh
from planner.ir.sharding import Shape, Sharding, held_bounds
from planner.ops import OPS
from planner.run.backend import DECLARED
from planner.run.local_op import run_op
from planner.run.mailbox import Mailbox
from planner.run.participants import Participants, find_participants
from planner.run.spmd_ops import Reducers, answer_query, describe_wait, receive, run_group, send
from planner.run.undef import PartialArray, check_defined
from planner.run.value_store import ValueStore
from planner.spmd import LocalOp, SpmdCall, SpmdProgram
from planner.spmd.op_table import QUERIES
from planner.spmd.runtime_shapes import bind_local_shapes

Array = Any
_QUERIES = frozenset(row.name for row in QUERIES)
_MOVES_ELEMENTS = frozenset(row.name for row in OPS.values() if row.is_view) | {"concat", "identity"}
"""Local ops that move elements without computing: an undefined element stays undefined."""


@dataclass(frozen=True)
class SpmdRun:
    """The outputs at the end, `[output][device of its mesh]`, and bytes received, `[instructions, devices]`."""

    outputs: list[list[PartialArray]]
    received: NDArray[np.int64]


def run_spmd(
    program: SpmdProgram,
    arguments: Mapping[str, Sequence[Array | PartialArray]],
    xp: Any = np,
    *,
    precision: str = DECLARED,
    reducers: Reducers = MappingProxyType({}),
) -> SpmdRun:
    """Run a program; `arguments` are the local tensors, one per device of the argument's mesh, row-major.

    Raises RunFailed for a read of an undefined element, messages that do not match, devices that wait for each other,
    and shapes that are not as declared; InvalidMesh where a mesh size is unknown.
    """
    executor = _SpmdExecutor(program, xp, precision, reducers)
    for name, value in program.arguments:
        executor.load(name, program.clusters[value.mesh].devices, arguments.get(name, ()))
    executor.run()
    outputs = [
        [executor.memory.read(name, device) for device in program.clusters[program.values[name].mesh].devices]
        for name in program.outputs
    ]
    return SpmdRun(outputs, executor.received)


class _SpmdExecutor:
    def __init__(self, program: SpmdProgram, xp: Any, precision: str, reducers: Reducers) -> None:
        for mesh in program.meshes.values():
            _ = mesh.shape  # an unknown size is refused before anything runs
        devices = 1 + max(max(cluster.devices) for cluster in program.clusters.values())
        self.tasks = [find_participants(program, done) for done in program.instructions]
        self.memory, self.mail, self.reducers = ValueStore(xp, precision, program.values, devices), Mailbox(), reducers
        self.at = [0] * devices
        self.received = np.zeros((len(self.tasks), devices), np.int64)
        self.dying = _last_reads(program)

    def load(self, name: str, devices: Sequence[int], arrays: Sequence[Array | PartialArray]) -> None:
        if len(arrays) != len(devices):
            raise RunFailed("argument", where=f"%{name}", got=f"{len(arrays)} local tensors", wanted=len(devices))
        for device, array in zip(devices, arrays, strict=True):
            held = array if isinstance(array, PartialArray) else PartialArray(self.memory.xp.asarray(array))
            self.memory.put(name, device, held, where="arguments")

    def run(self) -> None:
        """Let every device go on as far as it can, until all are done."""
        while any(place < len(self.tasks) for place in self.at):
            if not any(self._advance(device) for device in range(len(self.at))):
                raise self._deadlock_error()
        self.mail.check_empty()

    def _advance(self, device: int) -> bool:
        start = self.at[device]
        while self.at[device] < len(self.tasks) and self._run_next(device):
            pass
        return self.at[device] > start

    def _run_next(self, device: int) -> bool:
        """Run the device's next instruction. Return False where it has to wait."""
        place = self.at[device]
        participants = self.tasks[place]
        members: Sequence[int] = (device,)
        if device not in participants.path:
            self._skip(participants, device)
        elif isinstance(participants.instruction, LocalOp):
            self._run_local(participants, participants.instruction, device)
        elif participants.call.op in ("send", "recv"):
            if not self._send_or_receive(participants, device, place):
                return False
        elif participants.call.op == "cast" or participants.call.op in _QUERIES:
            self._run_query(participants, device)
        else:
            members = participants.groups[device]
            if any(self.at[member] != place for member in members):
                return False
            self.mail.sync(members)
            self.received[place, list(members)] += run_group(participants, members, self.memory, reducers=self.reducers)
        for member in members:
            self.at[member] = place + 1
            for name in self.dying.get(place, ()):
                self.memory.discard(name, member)
        return True

    def _skip(self, now: Participants, device: int) -> None:
        """Pass over an instruction that is not on the device's path. Its result is undefined there."""
        if device in now.groups:
            like = self.memory.read(now.call.operands[0], device).array
            self.memory.put(
                now.call.results[0],
                device,
                PartialArray.all_undefined(self.memory.xp, like.shape, like.dtype),
                where=now.where,
            )

    def _send_or_receive(self, now: Participants, device: int, place: int) -> bool:
        if now.call.op == "send":
            send(now, device, self.memory, mail=self.mail)
            return True
        count = receive(now, device, self.memory, mail=self.mail)
        self.received[place, device] += count or 0
        return count is not None

    def _run_query(self, now: Participants, device: int) -> None:
        if now.call.op == "cast":
            self.memory.put(
                now.call.results[0], device, self.memory.read(now.call.operands[0], device), where=now.where
            )
            return
        for name, answer in zip(now.call.results, answer_query(now, device, self.memory), strict=True):
            self.memory.put(name, device, PartialArray(self.memory.xp.asarray(answer, "int64")), where=now.where)

    def _run_local(self, now: Participants, done: LocalOp, device: int) -> None:
        xp, place = self.memory.xp, now.positions[device]
        held = [self.memory.read(name, device) for name in done.operands]
        arrays = [each.array for each in held]
        done = bind_local_shapes(done, [array.shape for array in arrays])
        _check_shapes(now, done, place, arrays=arrays)
        moves = done.op.op in _MOVES_ELEMENTS and not done.loop_partitions
        if not moves:
            self._check_operands(now, done, device, held=held)
        results = run_op(done, now.mesh, place, operands=arrays, xp=xp, precision=self.memory.precision)
        masks: Sequence[Array | None] = [None] * len(results)
        if moves and any(each.undefined is not None for each in held):
            marks = [each.mask(xp) for each in held]
            masks = run_op(done, now.mesh, place, operands=marks, xp=xp, precision=self.memory.precision)
        elif done.loop_partitions:
            layouts = [(done.result_sharding(n, now.mesh), kind.shape) for n, kind in enumerate(done.op.results)]
            masks = [_mark_outside(xp, *layout, now.mesh, place) for layout in layouts]
        for name, array, mask in zip(done.results, results, masks, strict=True):
            kind = self.memory.dtype(self.memory.values[name].type)
            self.memory.put(name, device, PartialArray.of(xp, array.astype(kind, copy=False), mask), where=now.where)

    def _check_operands(self, now: Participants, done: LocalOp, device: int, *, held: Sequence[PartialArray]) -> None:
        """Raise RunFailed where an op reads an undefined element. What lies beyond the tensor's ends it does not."""
        for position, (name, each) in enumerate(zip(done.operands, held, strict=True)):
            if each.undefined is not None:
                layout, shape = done.operand_sharding(position, now.mesh), done.op.rule.shapes[position]
                outside = _mark_outside(self.memory.xp, layout, shape, now.mesh, now.positions[device])
                inside = PartialArray.of(self.memory.xp, each.array, each.undefined & ~outside)
                check_defined(inside, name, device, where=now.where)

    def _deadlock_error(self) -> RunFailed:
        """Return an error that says who waits for whom.

        A recv is named first, because the others mostly wait for its device.
        """
        waiting = [(self.tasks[place], device) for device, place in enumerate(self.at) if place < len(self.tasks)]
        for now, device in waiting:
            if isinstance(now.instruction, SpmdCall) and now.call.op == "recv":
                return RunFailed(
                    f"device {device} waits for a message that is never sent",
                    where=now.where,
                    got=self.mail.describe_pending(device),
                    wanted=f"a message from {describe_wait(now, device, self.memory)}",
                )
        now, device = waiting[0]
        return RunFailed(
            "devices wait for each other", where=now.where, got=f"device {device} waits", wanted="its group"
        )


def _check_shapes(now: Participants, done: LocalOp, place: int, *, arrays: Sequence[Array]) -> None:
    """Raise RunFailed unless a device's arrays are its parts of the operands; types need not tell their sizes."""
    rule = done.op.rule
    for position, array in enumerate(arrays):
        read = done.operand_sharding(position, now.mesh)
        low, high = held_bounds(read, rule.shapes[position], now.mesh)[place].T
        if array.shape != tuple((high - low).tolist()):
            wanted = (high - low).tolist()
            raise RunFailed(f"operand {position} of device {place}", where=now.where, got=array.shape, wanted=wanted)


def _mark_outside(xp: Any, sharding: Sharding, shape: Shape, mesh: Mesh, place: int) -> Array:
    """Mark the elements of a device's shard that lie beyond the tensor's ends, in its halos."""
    bounds = held_bounds(sharding, shape, mesh)[place]
    outside = xp.zeros(tuple((bounds[:, 1] - bounds[:, 0]).tolist()), bool)
    for dim, ((start, stop), size) in enumerate(zip(bounds.tolist(), shape, strict=True)):
        index = xp.arange(start, stop)
        beyond = (index < 0) | (index >= size)
        outside = outside | beyond.reshape(-1, *(1,) * (len(shape) - 1 - dim))
    return outside


def _last_reads(program: SpmdProgram) -> dict[int, list[str]]:
    """Return the names to discard after each instruction: those it makes or reads and nobody reads later."""
    last: dict[str, int] = {}
    for place, done in enumerate(program.instructions):
        last |= dict.fromkeys((*done.operands, *done.results), place)
    dying: dict[int, list[str]] = {}
    for name, place in last.items():
        if name not in program.outputs:
            dying.setdefault(place, []).append(name)
    return dying
