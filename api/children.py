"""Child processes, in which all long or dangerous work is done: each does one piece and is gone.

One is kept in reserve, its imports behind it, so that work begins at once. Each leads a process group of its own and
is killed with it.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any, Literal

from api.messages import Message, receive, send

COMMAND = (sys.executable, "-m", "api.work")
TICK_S = 0.1
NICE = 5
"""Whoever asks goes before what is solved."""
GOES_ON = "begun", "incumbent"
"""What is said on the way."""
MEMORY_SIGNS = "std::bad_alloc", "MemoryError", "Cannot allocate memory", "out of memory"
SIGNALS = {
    signal.SIGXCPU: "used up its processor time",
    signal.SIGALRM: "gave no answer in time",
    signal.SIGKILL: "was killed, as a system does when its memory runs out",
}


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a piece of work may use; no memory limit where it is 0."""

    wall_s: float
    cpu_s: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Ended:
    """How a piece of work ended: result, refused (the ask is at fault), failed (`head["cause"]`), stopped by us, or
    killed by another, which says nothing of the work."""

    kind: Literal["result", "refused", "failed", "stopped", "killed"]
    head: dict[str, Any]
    payload: bytes = b""


class Child:
    """A process that waits for its work."""

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by end()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, start_new_session=True
        )
        with suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, self.process.pid, NICE)
        self.threads: list[threading.Thread] = []
        self.has_begun = False
        self.messages: queue.SimpleQueue[Message | None] = queue.SimpleQueue()

    @property
    def waits(self) -> bool:
        return self.process.poll() is None

    def do(
        self,
        kind: str,
        ask: bytes,
        allowed: Allowed,
        goes_on: Callable[[], bool] = lambda: True,
        on_progress: Callable[[dict[str, Any]], None] = lambda told: None,
    ) -> Ended:
        """Do one piece of work; `goes_on` is asked at every tick. The process has ended when this returns."""
        limits = {"wall_s": allowed.wall_s, "cpu_s": allowed.cpu_s, "memory_bytes": allowed.memory_bytes}
        self._begin(threading.Thread(target=self._feed, args=(Message({"kind": kind, **limits}, ask),), daemon=True))
        self._begin(threading.Thread(target=self._listen, daemon=True))
        until = time.monotonic() + allowed.wall_s
        try:
            while time.monotonic() < until:
                if not goes_on():
                    return Ended("stopped", {})
                try:
                    told = self.messages.get(timeout=TICK_S)
                except queue.Empty:
                    continue
                if told is None:
                    return self._dead(allowed)
                said = told.head.pop("kind")
                if said not in GOES_ON:
                    return Ended(said, told.head, told.payload)
                self.has_begun = True
                if said == "incumbent":
                    on_progress(told.head)
            return Ended("failed", {"cause": f"gave no answer within {allowed.wall_s:g} s"})
        finally:
            self.end()

    def end(self) -> None:
        """Kill the process and all its kind."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for thread in self.threads:
            thread.join(1.0)
        for pipe in (self.process.stdin, self.process.stdout, self.errors):
            with suppress(OSError):  # what was left to write
                if pipe is not None:
                    pipe.close()

    def _begin(self, thread: threading.Thread) -> None:
        self.threads.append(thread)
        thread.start()

    def _feed(self, message: Message) -> None:
        assert self.process.stdin is not None
        with suppress(OSError):  # the process has died
            send(self.process.stdin, message)  # and left open: its end is the server's

    def _listen(self) -> None:
        assert self.process.stdout is not None
        while True:
            told = receive(self.process.stdout)
            goes_on = told is not None and told.head["kind"] in GOES_ON  # looked at before another has it
            self.messages.put(told)
            if not goes_on:
                return

    def _dead(self, allowed: Allowed) -> Ended:
        """Of a process that went without a word."""
        try:
            code = self.process.wait(1.0)
        except subprocess.TimeoutExpired:
            return Ended("failed", {"cause": "said something that is no answer"})
        return Ended("killed" if code == -signal.SIGKILL else "failed", {"cause": self._cause(code, allowed)})

    def _cause(self, code: int, allowed: Allowed) -> str:
        self.errors.seek(0)
        said = self.errors.read()[-4096:].decode(errors="replace")
        if any(sign in said for sign in MEMORY_SIGNS):
            return f"out of memory (limit {allowed.memory_bytes} bytes)"
        if code < 0:
            number = signal.Signals(-code)
            return f"{SIGNALS.get(number, 'crashed')} ({number.name})"
        last = said.strip().splitlines()[-1:] or ["without a word"]
        return f"ended with code {code}: {last[0][:300]}"


class Children:
    """Makes child processes, one ahead."""

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        self.command = command
        self._lock = threading.Lock()
        self._spare: Child | None = None
        self._closed = False

    def prepare(self) -> None:
        """Have one in reserve."""
        with self._lock:
            if not self._closed and self._spare is None:
                self._spare = Child(self.command)

    def take(self) -> Child:
        """One that waits for work; the next is made ready beside it."""
        with self._lock:
            spare, self._spare = self._spare, None
        self.prepare()
        if spare is not None and not spare.waits:
            spare.end()
            spare = None
        return spare or Child(self.command)

    def do(self, kind: str, ask: bytes, allowed: Allowed, *more: Callable[..., Any]) -> Ended:
        """A piece of work; in a new process where the one in reserve was killed before it began."""
        child = self.take()
        ended = child.do(kind, ask, allowed, *more)
        if ended.kind != "killed" or child.has_begun:
            return ended
        return Child(self.command).do(kind, ask, allowed, *more)

    def close(self) -> None:
        """End the one in reserve; those at work belong to who took them."""
        with self._lock:
            spare, self._spare, self._closed = self._spare, None, True
        if spare is not None:
            spare.end()
