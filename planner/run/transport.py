"""How devices are spread over processes, and how arrays pass between those of a group: the one seam under collectives.

A collective says what every member sends to every other; the wire of its group brings it there and counts. Members are
numbered in group order. A process has the arrays of some devices (`here`): of all in one process, of one under MPI and
NCCL. Code above the wire goes over `here` alone, so that it is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

Array = Any
Pieces = Sequence[Array | None]


class Communicator:
    """Between members whose arrays are all in this process; `received`: elements that each got from others."""

    def __init__(self, members: int) -> None:
        self.members = members
        self.here: Sequence[int] = range(members)
        self.received = [0] * members

    def exchange(self, sent: Sequence[Pieces]) -> list[list[Array]]:
        """[member here][member]: what each sends to each, nothing where None -> what each gets from each."""
        got = [list(column) for column in zip(*sent, strict=True)]
        self._count_received(got)
        return got

    def _count_received(self, got: Sequence[Pieces]) -> None:
        for member, pieces in zip(self.here, got, strict=True):
            others = (piece for source, piece in enumerate(pieces) if source != member and piece is not None)
            self.received[member] += sum(int(piece.size) for piece in others)


class Transport(Protocol):
    """The devices of a program, those whose arrays are in this process, and the wires between them."""

    here: Sequence[int]

    def communicator(self, devices: Sequence[int]) -> Communicator:
        """Of a group, some member of which is here. All its members ask for it, in one order."""


class LocalTransport:
    """Every device is a logical one of this process."""

    def __init__(self, devices: int) -> None:
        self.here: Sequence[int] = range(devices)

    def communicator(self, devices: Sequence[int]) -> Communicator:
        return Communicator(len(devices))
