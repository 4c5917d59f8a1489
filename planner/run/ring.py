"""Runs an op whose blocks pass round a ring of n devices (`planner.ir.ring`), step by step on all devices of the ring.

Device i is given the blocks that device i - 1 had. So at step r it works on the block that began at device
(i - r) mod n, and after n steps every block has been at each device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial

from planner.errors import RunFailed
from planner.ops.op_def import Array, RingRound, Span, State
from planner.run.local_op import LocalRun
from planner.run.transport import Communicator

Timer = Callable[[int], AbstractContextManager[None]]


class RingMember:
    """A device of a ring: the blocks that it has, and what it keeps between steps.

    `received` and `buffers` are bytes at the declared element size: received in all, and the most that it held of
    blocks beside its operands and results. `results` are those of the op, when it has run.
    """

    def __init__(self, run: LocalRun, itemsizes: Sequence[int], place: int, devices: int) -> None:
        rule = run.done.op.rule
        if run.row.ring is None or rule.ring is None:
            where, got = f"node {run.done.op.id!r}", run.done.op.op
            raise RunFailed("op has no function for blocks that travel", where=where, got=got)
        self.run, self.place, self.devices, self.ring = run, place, devices, run.row.ring
        self.loop, (self.ins, self.outs) = rule.loops[rule.ring.travels], rule.travelling
        self.sizes = [*(itemsizes[k] for k in self.ins), *(run.done.op.results[k].itemsize for k in self.outs)]
        self.own: State = tuple(run.operands[k] for k in self.ins)
        self.moving, self.sums, self.state = self.own, State(), State()
        self.results: tuple[Array, ...] = ()
        self.received = self.buffers = 0

    def begin(self, each: RingRound) -> None:
        local = self.run.local
        self.moving, self.state = self.own, each.begin(local, self.run.operands, self.state)
        if each is self.ring.rounds[-1]:
            self.sums = tuple(local.xp.zeros(local.shapes[k], local.dtypes[k]) for k in self.outs)

    def step(self, each: RingRound, number: int) -> None:
        """Work on the block of a step."""
        block, length = (self.place - number) % self.devices, self.loop.size // self.devices
        span = Span(block * length, (block + 1) * length, self.loop.size)
        local = replace(self.run.local, spans={**self.run.local.spans, self.loop.name: span})
        held = dict(zip(self.ins, self.moving, strict=True))
        operands = [held.get(place, array) for place, array in enumerate(self.run.operands)]
        self.state, sums = each.step(local, operands, self.state, self.sums)
        kinds = [self.run.done.op.results[k] for k in self.outs]
        self.sums = tuple(self.run.round_value(array, kind) for array, kind in zip(sums, kinds, strict=False))

    def finish(self) -> None:
        self.results = self.run.round(self.ring.finish(self.run.local, self.run.operands, self.state, self.sums))

    def leaving(self, *, moves: bool) -> State:
        """Return the blocks that go to the next device: of results, and where they move on, of operands."""
        return (*self.moving, *self.sums) if moves else self.sums

    def arrive(self, blocks: State, *, moves: bool) -> None:
        """Take the blocks of the device before."""
        count = len(self.ins) if moves else 0
        itemsizes = self.sizes[len(self.ins) - count :]
        sizes = [int(array.size) * size for array, size in zip(blocks, itemsizes, strict=False)]
        self.received += sum(sizes)
        # A block of an operand that arrives is held beside the one in use, a block of a result beside its own.
        beside = 1 if self.moving is self.own else 2
        self.buffers = max(self.buffers, beside * sum(sizes[:count]) + sum(sizes[count:]))
        self.moving, self.sums = blocks[:count] if moves else self.moving, blocks[count:]


def run_ring(
    runs: Mapping[int, LocalRun], itemsizes: Sequence[int], *, wire: Communicator, timer: Timer
) -> list[RingMember]:
    """Run an op on the devices of a ring that are here, given by their places in it, and return them.

    `itemsizes` are the bytes of an element of each operand; `timer` takes the time of a device. Raises RunFailed where
    the op fails, or has no function for blocks.
    """
    members = [RingMember(run, itemsizes, place, wire.members) for place, run in runs.items()]

    def on_each(act: Callable[[RingMember], None]) -> None:
        for member in members:
            with timer(member.run.device), member.run.tell_failure():
                act(member)

    for each in members[0].ring.rounds:
        on_each(partial(RingMember.begin, each=each))
        for number in range(wire.members):
            on_each(partial(RingMember.step, each=each, number=number))
            _pass_on(members, wire, moves=number + 1 < wire.members)
    on_each(RingMember.finish)
    return members


def _pass_on(members: list[RingMember], wire: Communicator, *, moves: bool) -> None:
    """Send what every device has to the next one."""
    n = wire.members
    leaving = [member.leaving(moves=moves) for member in members]
    arrived = []
    for arrays in zip(*leaving, strict=True):
        sent = [[None] * n for _ in members]
        for pieces, member, array in zip(sent, members, arrays, strict=True):
            pieces[(member.place + 1) % n] = array
        got = wire.exchange(sent)
        arrived.append([pieces[(member.place - 1) % n] for pieces, member in zip(got, members, strict=True)])
    for member, blocks in zip(members, zip(*arrived, strict=True), strict=False):
        member.arrive(blocks, moves=moves)
