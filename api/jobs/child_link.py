"""A child's side of its pipes: it sends messages at any time, and receives those that follow its task.

When the process that started the child is gone, its messages end, and the child ends with its process group.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
from typing import IO, Any

from api.jobs.ipc import IpcMessage, receive_message, send_message


class ParentLink:
    """The process that a task is done for."""

    def __init__(self, requests: IO[bytes], answers: IO[bytes]) -> None:
        self._requests, self._answers = requests, answers
        self._received: queue.SimpleQueue[IpcMessage] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._receive_messages, daemon=True)

    def start_receiving(self) -> None:
        self._reader.start()

    def await_end(self) -> None:
        """Wait to be killed with the process group, so that processes which the task left running end too."""
        self._reader.join()

    def send(self, message: IpcMessage) -> None:
        send_message(self._answers, message)

    def report(self, fields: dict[str, Any]) -> None:
        """Report progress."""
        self.send(IpcMessage({"kind": "incumbent", **fields}))

    def ask(self, head: dict[str, Any], payload: bytes) -> None:
        """Request a plan; its result is received as a message with the plan's id."""
        self.send(IpcMessage({"kind": "ask", **head}, payload))

    def receive(self, timeout_s: float | None) -> IpcMessage | None:
        """Return the next message, or None where none comes in time."""
        try:
            return self._received.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def _receive_messages(self) -> None:
        while (message := receive_message(self._requests)) is not None:
            self._received.put(message)
        os.killpg(0, signal.SIGKILL)
