"""Messages between server and child process: a line of JSON, then as many bytes as it says."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import IO, Any

MAX_LINE = 1 << 16
MAX_PAYLOAD = 256 << 20


@dataclass(frozen=True, slots=True)
class IpcMessage:
    """A message; `head` is JSON, the payload arbitrary bytes."""

    head: dict[str, Any]
    payload: bytes = b""


def send_message(stream: IO[bytes], message: IpcMessage) -> None:
    """Write a whole message."""
    line = json.dumps({**message.head, "bytes": len(message.payload)}).encode() + b"\n"
    stream.write(line + message.payload)
    stream.flush()


def receive_message(stream: IO[bytes]) -> IpcMessage | None:
    """Return the next message, or None where the stream ends, even within a message. Raises ValueError for anything
    else.
    """
    line = stream.readline(MAX_LINE)
    if not line.endswith(b"\n"):
        return None
    head = json.loads(line)
    match head:
        case {"kind": str(), "bytes": int(size)} if 0 <= size <= MAX_PAYLOAD:
            payload = stream.read(size)
            del head["bytes"]
            return IpcMessage(head, payload) if len(payload) == size else None
    raise ValueError(f"not a message: {line[:80]!r}")
