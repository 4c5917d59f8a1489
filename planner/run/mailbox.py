"""Messages between sends and recvs, and detection of races between them.

A send never waits; a recv takes the oldest message that fits its source. The devices have no common clock, so which of
two senders a recv from any source hears first is not determined by the program: only one sender may be possible. Every
device numbers its recvs from any source and knows how many of theirs other devices have done (a vector clock: Mattern,
"Virtual Time and Global States of Distributed Systems", 1989). A collective tells its members what any of them knows,
a message tells its receiver what its sender knew. Two messages race for such a recv when both are under way to it, and
when the sender of the later one did not know that the recv was done.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from planner.errors import RunFailed

Array = Any
Clock = Mapping[int, int]
"""The number of recvs from any source that each device is known to have done."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceMessage:
    """An array on its way from one device to another; `where` is the send."""

    source: int
    target: int
    array: Array
    where: str


class _SentMessage(NamedTuple):
    message: DeviceMessage
    clock: Clock


class _ReceivedMessage(NamedTuple):
    message: DeviceMessage
    where: str


class Mailbox:
    """Messages that were sent and not yet received, by target, and what every device knows of the others."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[_SentMessage]] = defaultdict(list)
        self._from_any: dict[int, list[_ReceivedMessage]] = defaultdict(list)
        self._known: dict[int, Clock] = defaultdict(dict)

    def sync(self, members: Sequence[int]) -> None:
        """Merge the clocks of all members of a collective, which have arrived."""
        clock = _merge_clocks([self._known[member] for member in members])
        self._known.update(dict.fromkeys(members, clock))

    def send(self, message: DeviceMessage) -> None:
        """Put a message under way.

        Raises RunFailed where a finished recv from any source could also have taken this message.
        """
        clock = self._known[message.source]
        # The sender knows of the first recvs from any source; any later one could have taken this message instead.
        for received in self._from_any[message.target][clock.get(message.target, 0) :]:
            if received.message.source != message.source:
                raise _race_error(received.where, received.message, message)
        self._waiting[message.target].append(_SentMessage(message, clock))

    def receive(self, target: int, source: int | None, where: str) -> DeviceMessage | None:
        """Take the oldest message for a device, from `source` if given; None where there is none.

        Raises RunFailed where another sender's message could have been taken.
        """
        fitting = [sent for sent in self._waiting[target] if source in (None, sent.message.source)]
        if not fitting:
            return None
        message, clock = fitting[0]
        if other := next((each.message for each in fitting if each.message.source != message.source), None):
            raise _race_error(where, message, other)
        self._waiting[target].remove(fitting[0])
        self._known[target] = _merge_clocks([self._known[target], clock])
        if source is None:
            self._from_any[target].append(_ReceivedMessage(message, where))
            self._known[target] = {**self._known[target], target: len(self._from_any[target])}
        return message

    def describe_pending(self, target: int) -> str:
        senders = [f"from {_sender(sent.message)}" for sent in self._waiting[target]]
        return ", ".join(senders) or "no message"

    def check_empty(self) -> None:
        """Raise RunFailed for a message that nobody has received."""
        for target, waiting in self._waiting.items():
            for message, _ in waiting:
                raise RunFailed(
                    "message never received",
                    where=message.where,
                    got=f"sent by device {message.source}",
                    wanted=f"a recv on device {target}",
                )


def _merge_clocks(clocks: Sequence[Clock]) -> Clock:
    devices = {device for clock in clocks for device in clock}
    return {device: max(clock.get(device, 0) for clock in clocks) for device in devices}


def _sender(message: DeviceMessage) -> str:
    return f"device {message.source} ({message.where})"


def _race_error(where: str, one: DeviceMessage, other: DeviceMessage) -> RunFailed:
    senders = sorted((one, other), key=lambda each: each.source)
    return RunFailed(
        f"a recv from any source on device {one.target} may take either of two messages",
        where=where,
        got=" and ".join(map(_sender, senders)),
        wanted="one sender, or a source",
    )
