"""Child processes, in which all long or dangerous work is done; each does one task and ends.

They are forks of one process that has loaded what they need (api/jobs/fork_server.py). It is started on first use, and
again where it was killed; running children go on. Each child leads a process group and is killed with it. None has a
session of its own: Linux may share the processor among sessions first, and would ignore NICE between them.
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
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import IO, Any, Literal

from api.jobs.fork_server import EXIT_CODE
from api.jobs.ipc import IpcMessage, receive_message, send_message

COMMAND = (sys.executable, "-m", "api.jobs.child_main")
NICE = 5
"""The fork server and its children yield the processor to the server, which starts and answers meanwhile."""
TICK_S = 0.1
PROGRESS_KINDS = "begun", "incumbent", "ask"
"""Kinds of messages that come before the result."""
MEMORY_SIGNS = "std::bad_alloc", "MemoryError", "Cannot allocate memory", "out of memory"
TaskEnd = Literal["result", "refused", "exceeded", "failed", "stopped", "killed"]
SIGNAL_CAUSES: dict[signal.Signals, tuple[TaskEnd, str]] = {
    signal.SIGXCPU: ("exceeded", "used up its processor time"),
    signal.SIGALRM: ("exceeded", "gave no answer in time"),
    signal.SIGKILL: ("killed", "was killed, as a system does when its memory runs out"),
}


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """What a task may use; no memory limit where it is 0."""

    wall_s: float
    cpu_s: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class TaskResult:
    """How a task ended.

    `result`; `refused`: the task is invalid; `exceeded`: it needs more than its limits; `failed`, with
    `head["error"]`; `stopped` by the caller; or `killed` by something else, which says nothing about the task.
    """

    kind: TaskEnd
    head: dict[str, Any]
    payload: bytes = b""


class ForkServer:
    """The process that forks children."""

    def __init__(self, command: Sequence[str]) -> None:
        self.control_socket, server_end = socket.socketpair()
        with server_end:
            self.process = subprocess.Popen(
                command, stdin=server_end.fileno(), stdout=subprocess.DEVNULL, process_group=0
            )
        os.setpriority(os.PRIO_PROCESS, self.process.pid, os.getpriority(os.PRIO_PROCESS, 0) + NICE)

    def fork_child(self, ends: Sequence[int]) -> bool:
        """Request a child with these ends of its pipes. Return False where the fork server is gone."""
        try:
            socket.send_fds(self.control_socket, [b"."], ends)
        except OSError:
            return False
        return True

    def end(self) -> None:
        """Kill the fork server; its children end when their pipes close."""
        self.process.kill()
        self.process.wait()
        self.control_socket.close()


def _open_pipe() -> tuple[IO[bytes], IO[bytes]]:
    """Return the ends of a new pipe, to read from and to write to."""
    reader, writer = os.pipe()
    return os.fdopen(reader, "rb"), os.fdopen(writer, "wb")


class WorkerProcess:
    """A child process for one task."""

    def __init__(self, fork_child: Callable[[Sequence[int]], None]) -> None:
        # Closed where one of them, or the child, cannot be had.
        with ExitStack() as own_ends, ExitStack() as child_ends:
            self.errors: IO[bytes] = own_ends.enter_context(tempfile.TemporaryFile())
            self.control_socket, child_socket = socket.socketpair()
            own_ends.enter_context(self.control_socket)
            child_ends.enter_context(child_socket)
            task_input, self.requests = _open_pipe()
            child_ends.enter_context(task_input)
            own_ends.enter_context(self.requests)
            self.responses, answer_output = _open_pipe()
            own_ends.enter_context(self.responses)
            child_ends.enter_context(answer_output)
            fork_child([end.fileno() for end in (task_input, answer_output, self.errors, child_socket)])
            own_ends.pop_all()
        self.threads: list[threading.Thread] = []
        self.has_begun = False
        self.messages: queue.SimpleQueue[IpcMessage | None] = queue.SimpleQueue()
        self.outgoing: queue.SimpleQueue[IpcMessage | None] = queue.SimpleQueue()

    def run(
        self,
        kind: str,
        task: bytes,
        limits: ResourceLimits,
        should_continue: Callable[[], bool] = lambda: True,
        on_message: Callable[[IpcMessage], None] = lambda message: None,
        next_messages: Callable[[], Iterable[IpcMessage]] = tuple,
    ) -> TaskResult:
        """Do one task. The process has ended when this returns.

        At every tick `should_continue` is called, and what `next_messages` returns is sent to the process. `on_message`
        is called with its progress, and with what it asks for.
        """
        # Threads, because a pipe blocks: a child that neither reads nor writes must not hold up the caller's ticks.
        head = {"wall_s": limits.wall_s, "cpu_s": limits.cpu_s, "memory_bytes": limits.memory_bytes}
        self.outgoing.put(IpcMessage({"kind": kind, **head}, task))
        self._start_thread(threading.Thread(target=self._send_messages, daemon=True))
        self._start_thread(threading.Thread(target=self._receive_messages, daemon=True))
        deadline = time.monotonic() + limits.wall_s
        try:
            while time.monotonic() < deadline:
                if not should_continue():
                    return TaskResult("stopped", {})
                for answer in next_messages():
                    self.outgoing.put(answer)
                try:
                    message = self.messages.get(timeout=TICK_S)
                except queue.Empty:
                    continue
                if message is None:
                    return self._died(limits)
                self.has_begun = True
                if message.head["kind"] not in PROGRESS_KINDS:
                    kind_of_result = message.head.pop("kind")
                    return TaskResult(kind_of_result, message.head, message.payload)
                on_message(message)
            return TaskResult("exceeded", {"error": f"gave no answer within {limits.wall_s:g} s"})
        finally:
            self.end()

    def end(self) -> None:
        """Kill the process with its group, and close all pipes."""
        self._kill_group()
        self.outgoing.put(None)
        with suppress(OSError):  # buffered input that the process no longer reads
            self.requests.close()  # a process whose fork server is gone ends when its input does
        for thread in self.threads:
            thread.join(1.0)
        for end in (self.control_socket, self.responses, self.errors):
            end.close()

    def _kill_group(self) -> int | None:
        """Have the process killed with its group.

        Return its exit code, or the negative number of the signal; None where the fork server is gone.
        """
        with suppress(OSError):
            self.control_socket.shutdown(socket.SHUT_WR)
            if code := self.control_socket.recv(EXIT_CODE.size):
                return int(*EXIT_CODE.unpack(code))
        return None

    def _start_thread(self, thread: threading.Thread) -> None:
        self.threads.append(thread)
        thread.start()

    def _send_messages(self) -> None:
        with suppress(OSError, ValueError):  # the process has died, or the pipe is closed
            while (message := self.outgoing.get()) is not None:
                send_message(self.requests, message)  # left open: its end tells the child that the server is gone

    def _receive_messages(self) -> None:
        while True:
            try:
                message = receive_message(self.responses)
            except ValueError:
                message = IpcMessage({"kind": "failed", "error": "sent an invalid message"})
            # Read before the queue's other end pops `kind`.
            has_more = message is not None and message.head["kind"] in PROGRESS_KINDS
            self.messages.put(message)
            if not has_more:
                return

    def _died(self, limits: ResourceLimits) -> TaskResult:
        """Return the result of a process that ended without one."""
        code = self._kill_group()
        if code is None:
            return TaskResult("killed", {"error": "was lost with its fork server"})
        self.errors.seek(0)
        errors = self.errors.read()[-4096:].decode(errors="replace")
        if any(sign in errors for sign in MEMORY_SIGNS):
            return TaskResult("exceeded", {"error": f"out of memory (limit {limits.memory_bytes} bytes)"})
        if code >= 0:
            last = errors.strip().splitlines()[-1:] or ["no output"]
            return TaskResult("failed", {"error": f"ended with code {code}: {last[0][:300]}"})
        number = signal.Signals(-code)
        kind, cause = SIGNAL_CAUSES.get(number, ("failed", "crashed"))
        return TaskResult(kind, {"error": f"{cause} ({number.name})"})


class WorkerProcesses:
    """Runs tasks in children of one fork server, which is replaced where it was killed."""

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        self.command = command
        self._lock = threading.Lock()
        self._fork_server: ForkServer | None = None

    def prepare(self) -> None:
        """Start the fork server, so that it loads what children need."""
        with self._lock:
            if self._fork_server is None:
                self._restart()

    def run(self, kind: str, task: bytes, limits: ResourceLimits, *more: Callable[..., Any]) -> TaskResult:
        """Run a task; once more where the process was killed before it began."""
        child = WorkerProcess(self._fork_child)
        result = child.run(kind, task, limits, *more)
        if result.kind != "killed" or child.has_begun:
            return result
        return WorkerProcess(self._fork_child).run(kind, task, limits, *more)

    def close(self) -> None:
        """End the fork server; running children belong to their callers."""
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
