"""Child processes, in which all long or dangerous work is done: each does one piece and is gone.

They are forks of one process that has loaded what they need (api/jobs/fork_server.py), which is started at the first
need, and again where it was killed: who is at work then works on. Each leads a process group of its own and is killed
with it.
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any, Literal

from api.jobs.fork_server import EXIT_CODE
from api.jobs.ipc import IpcMessage, receive_message, send_message

COMMAND = (sys.executable, "-m", "api.jobs.child_main")
TICK_S = 0.1
PROGRESS_KINDS = "begun", "incumbent"
"""What is said on the way."""
MEMORY_SIGNS = "std::bad_alloc", "MemoryError", "Cannot allocate memory", "out of memory"
SIGNAL_CAUSES = {
    signal.SIGXCPU: "used up its processor time",
    signal.SIGALRM: "gave no answer in time",
    signal.SIGKILL: "was killed, as a system does when its memory runs out",
}


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """What a piece of work may use; no memory limit where it is 0."""

    wall_s: float
    cpu_s: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class TaskResult:
    """How a piece of work ended: result, refused (the ask is at fault), failed (`head["error"]`), stopped by us, or
    killed by another, which says nothing of the work."""

    kind: Literal["result", "refused", "failed", "stopped", "killed"]
    head: dict[str, Any]
    payload: bytes = b""


class ForkServer:
    """The process that bears children."""

    def __init__(self, command: Sequence[str]) -> None:
        self.control_socket, far = socket.socketpair()
        with far:
            self.process = subprocess.Popen(
                command, stdin=far.fileno(), stdout=subprocess.DEVNULL, start_new_session=True
            )

    def fork_child(self, ends: Sequence[int]) -> bool:
        """Ask for a child with these ends of its pipes; False where there is nobody to ask."""
        try:
            socket.send_fds(self.control_socket, [b"."], ends)
        except OSError:
            return False
        return True

    def end(self) -> None:
        """Kill it; what it bore ends when its own pipes do."""
        self.process.kill()
        self.process.wait()
        self.control_socket.close()


class WorkerProcess:
    """A process that waits for its work, or that is to be born."""

    def __init__(self, bear: Callable[[Sequence[int]], None]) -> None:
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by end()
        self.control_socket, far = socket.socketpair()
        asks, mine = os.pipe()
        told, answers = os.pipe()
        self.requests, self.responses = os.fdopen(mine, "wb"), os.fdopen(told, "rb")
        bear((asks, answers, self.errors.fileno(), far.fileno()))
        far.close()
        os.close(asks)
        os.close(answers)
        self.threads: list[threading.Thread] = []
        self.has_begun = False
        self.messages: queue.SimpleQueue[IpcMessage | None] = queue.SimpleQueue()

    def run(
        self,
        kind: str,
        ask: bytes,
        allowed: ResourceLimits,
        goes_on: Callable[[], bool] = lambda: True,
        on_progress: Callable[[dict[str, Any]], None] = lambda told: None,
    ) -> TaskResult:
        """Do one piece of work; `goes_on` is asked at every tick. The process has ended when this returns."""
        limits = {"wall_s": allowed.wall_s, "cpu_s": allowed.cpu_s, "memory_bytes": allowed.memory_bytes}
        self._start_thread(
            threading.Thread(target=self._send_task, args=(IpcMessage({"kind": kind, **limits}, ask),), daemon=True)
        )
        self._start_thread(threading.Thread(target=self._receive_messages, daemon=True))
        until = time.monotonic() + allowed.wall_s
        try:
            while time.monotonic() < until:
                if not goes_on():
                    return TaskResult("stopped", {})
                try:
                    told = self.messages.get(timeout=TICK_S)
                except queue.Empty:
                    continue
                if told is None:
                    return self._died(allowed)
                said = told.head.pop("kind")
                if said not in PROGRESS_KINDS:
                    return TaskResult(said, told.head, told.payload)
                self.has_begun = True
                if said == "incumbent":
                    on_progress(told.head)
            return TaskResult("failed", {"error": f"gave no answer within {allowed.wall_s:g} s"})
        finally:
            self.end()

    def end(self) -> None:
        """Kill the process and all its kind."""
        self._kill_group()
        with suppress(OSError):  # what was left to write
            self.requests.close()  # also a process that its nursery can no longer kill hears of this
        for thread in self.threads:
            thread.join(1.0)
        for end in (self.control_socket, self.responses, self.errors):
            end.close()

    def _kill_group(self) -> int | None:
        """Have it killed, with its group: its exit code, or the signal's number below 0; None if nobody can tell."""
        with suppress(OSError):
            self.control_socket.shutdown(socket.SHUT_WR)
            if code := self.control_socket.recv(EXIT_CODE.size):
                return int(*EXIT_CODE.unpack(code))
        return None

    def _start_thread(self, thread: threading.Thread) -> None:
        self.threads.append(thread)
        thread.start()

    def _send_task(self, message: IpcMessage) -> None:
        with suppress(OSError):  # the process has died
            send_message(self.requests, message)  # and left open: its end is the server's

    def _receive_messages(self) -> None:
        while True:
            try:
                told = receive_message(self.responses)
            except ValueError:
                told = IpcMessage({"kind": "failed", "error": "said something that is no answer"})
            goes_on = told is not None and told.head["kind"] in PROGRESS_KINDS  # looked at before another has it
            self.messages.put(told)
            if not goes_on:
                return

    def _died(self, allowed: ResourceLimits) -> TaskResult:
        """Of a process that went without a word."""
        code = self._kill_group()
        if code is None:
            return TaskResult("killed", {"error": "was lost with its nursery"})
        return TaskResult(
            "killed" if code == -signal.SIGKILL else "failed", {"error": self._describe_exit(code, allowed)}
        )

    def _describe_exit(self, code: int, allowed: ResourceLimits) -> str:
        self.errors.seek(0)
        said = self.errors.read()[-4096:].decode(errors="replace")
        if any(sign in said for sign in MEMORY_SIGNS):
            return f"out of memory (limit {allowed.memory_bytes} bytes)"
        if code < 0:
            number = signal.Signals(-code)
            return f"{SIGNAL_CAUSES.get(number, 'crashed')} ({number.name})"
        last = said.strip().splitlines()[-1:] or ["without a word"]
        return f"ended with code {code}: {last[0][:300]}"


class WorkerProcesses:
    """Has children borne by one nursery, which is replaced where it was killed."""

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        self.command = command
        self._lock = threading.Lock()
        self._fork_server: ForkServer | None = None

    def prepare(self) -> None:
        """Have the nursery load what children need."""
        with self._lock:
            if self._fork_server is None:
                self._restart()

    def run(self, kind: str, ask: bytes, allowed: ResourceLimits, *more: Callable[..., Any]) -> TaskResult:
        """A piece of work; once more where the process was killed before it began."""
        child = WorkerProcess(self._fork_child)
        ended = child.run(kind, ask, allowed, *more)
        if ended.kind != "killed" or child.has_begun:
            return ended
        return WorkerProcess(self._fork_child).run(kind, ask, allowed, *more)

    def close(self) -> None:
        """End the nursery; children at work belong to who asked for them."""
        with self._lock:
            if self._fork_server is not None:
                self._fork_server.end()
            self._fork_server = None

    def _fork_child(self, ends: Sequence[int]) -> None:
        with self._lock:
            while self._fork_server is None or not self._fork_server.fork_child(ends):
                self._restart()

    def _restart(self) -> None:
        if self._fork_server is not None:
            self._fork_server.end()
        self._fork_server = ForkServer(self.command)
