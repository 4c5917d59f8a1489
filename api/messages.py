"""How server and child process talk: a line of JSON, then as many bytes as it says."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import IO, Any

MAX_LINE = 1 << 16
MAX_PAYLOAD = 256 << 20


@dataclass(frozen=True, slots=True)
class Message:
    """`head` is JSON; the payload is anything."""

    head: dict[str, Any]
    payload: bytes = b""


def send(stream: IO[bytes], message: Message) -> None:
    """Write a message whole."""
    line = json.dumps({**message.head, "bytes": len(message.payload)}).encode() + b"\n"
    stream.write(line + message.payload)
    stream.flush()


def receive(stream: IO[bytes]) -> Message | None:
    """The next message; None where the stream ends, also within one, or holds something else."""
    try:
        head = json.loads(stream.readline(MAX_LINE))
        size = head.pop("bytes")
        payload = stream.read(size) if 0 <= size <= MAX_PAYLOAD else b""
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return Message(head, payload) if len(payload) == size else None
