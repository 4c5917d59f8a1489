"""Messages between sends and recvs. A send never waits; a recv takes the oldest message that fits its source."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from planner.errors import RunFailed

Array = Any


@dataclass(frozen=True, slots=True)
class Message:
    """An array on its way from one device to another; `where` is the send."""

    source: int
    target: int
    array: Array
    where: str


class Mail:
    """Messages that were sent and not yet received, by target."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[Message]] = defaultdict(list)

    def post(self, message: Message) -> None:
        self._waiting[message.target].append(message)

    def take(self, target: int, source: int | None) -> Message | None:
        """The oldest message for a device, from `source` if given."""
        for place, message in enumerate(self._waiting[target]):
            if source in (None, message.source):
                return self._waiting[target].pop(place)
        return None

    def for_device(self, target: int) -> str:
        found = [f"from device {message.source} ({message.where})" for message in self._waiting[target]]
        return ", ".join(found) or "no message"

    def check_empty(self) -> None:
        """Raises RunFailed for a message that nobody has received."""
        for target, messages in self._waiting.items():
            for message in messages:
                raise RunFailed(
                    "message never received",
                    where=message.where,
                    got=f"sent by device {message.source}",
                    wanted=f"a recv on device {target}",
                )
