"""How devices are spread over processes, and how arrays pass between the devices of a group.

A collective says what every member sends to every other; the communicator of its group delivers it and counts.
Members are numbered in group order. A process has the arrays of some devices (`here`): of all in one process, of one
under MPI and NCCL. Code above the communicator only iterates over `here`, so that it is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

Array = Any
Pieces = Sequence[Array | None]


class Communicator:
    """Exchanges arrays between members that are all in this process.

    `received` counts the elements that each member got from others.
    """

    def __init__(self, members: int) -> None:
        self.members = members
        self.here: Sequence[int] = range(members)
        self.received = [0] * members

    def exchange(self, sent: Sequence[Pieces]) -> list[list[Array]]:
        """Deliver what each member here sends to each member, `[member here][member]`, None for nothing.

        Return what each member here gets from each member.
        """
        arrived = [list(column) for column in zip(*sent, strict=True)]
        self._count_received(arrived)
        return arrived

    def _count_received(self, got: Sequence[Pieces]) -> None:
        for member, pieces in zip(self.here, got, strict=True):
            others = (piece for source, piece in enumerate(pieces) if source != member and piece is not None)
            self.received[member] += sum(int(piece.size) for piece in others)


class Transport(Protocol):
    """The devices of a program whose arrays are in this process, and communicators between devices."""

    here: Sequence[int]

    def communicator(self, devices: Sequence[int]) -> Communicator:
        """Return the communicator of a group with a member here. All its members ask for it, in the same order."""


class LocalTransport:
    """All devices as logical devices of this process."""

    def __init__(self, devices: int) -> None:
        self.here: Sequence[int] = range(devices)

    def communicator(self, devices: Sequence[int]) -> Communicator:
        return Communicator(len(devices))
