"""A process that has loaded everything a task needs and forks a child per task.

Standard input is a Unix socket. A byte on it requests a child and carries four descriptors: the child's standard input,
its output, its standard error, and a control socket. The child leads a process group. When its control socket is shut
down, the child is killed with its group, and its exit code is sent on the socket; until then it stays a zombie, so that
its process id is not reused. When the socket ends, all children are killed.

Forking is safe here: the only other threads are OpenBLAS's, which stop before every fork (pthread_atfork). The fork
server keeps no end of a child's pipes, and a child none of its siblings', so that each sees the other side close.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import struct
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import IO, NoReturn

EXIT_CODE = struct.Struct("i")
"""A child's exit code, or the negative number of the signal that killed it."""

ChildMain = Callable[[IO[bytes], IO[bytes]], None]
"""What a child does, from its input to its output."""


def serve_forks(child_main: ChildMain) -> None:
    """Fork a child per request until the socket ends."""
    control = socket.socket(fileno=os.dup(0))
    children: dict[socket.socket, int] = {}
    gc.freeze()  # the collector would touch, and so copy, every page that children share
    while True:
        ready, _, _ = select.select([control, *children], [], [])
        for ready_socket in ready:
            if ready_socket is not control:
                _kill_child(ready_socket, children.pop(ready_socket))
            elif not _fork_child(control, children, child_main):
                for child_socket, child in children.items():
                    _kill_child(child_socket, child)
                return


def _fork_child(control: socket.socket, children: dict[socket.socket, int], child_main: ChildMain) -> bool:
    """Fork a child and return True; return False where the socket has ended."""
    data, descriptors, _, _ = socket.recv_fds(control, 1, 4)
    if not data:
        return False
    *ends, descriptor = descriptors
    child_socket = socket.socket(fileno=descriptor)
    child = os.fork()
    if child == 0:
        for inherited in (control, child_socket, *children):
            inherited.close()
        _run_child(child_main, *ends)
    children[child_socket] = child
    for end in ends:
        os.close(end)
    return True


def _run_child(child_main: ChildMain, requests: int, answers: int, errors: int) -> NoReturn:
    """Run in the child. Output of libraries goes to standard error."""
    try:
        os.setpgid(0, 0)
        for descriptor, number in ((requests, 0), (errors, 1), (errors, 2)):
            os.dup2(descriptor, number)
        os.close(requests)
        os.close(errors)
        with os.fdopen(0, "rb", closefd=False) as input_stream, os.fdopen(answers, "wb") as output_stream:
            child_main(input_stream, output_stream)
        os._exit(0)
    except BaseException:  # noqa: BLE001 - the child must never return into the fork server's loop
        traceback.print_exc()
        os._exit(1)


def _kill_child(child_socket: socket.socket, child: int) -> None:
    for kill in (os.killpg, os.kill):  # a child that was just forked may not lead a group yet
        with suppress(ProcessLookupError):
            kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    with child_socket, suppress(OSError):  # the server may not wait for the exit code
        child_socket.send(EXIT_CODE.pack(os.waitstatus_to_exitcode(status)))
