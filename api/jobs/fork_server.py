"""The process that all children are forks of: what takes seconds to load is loaded in it once.

Standard input is a Unix socket. A byte on it asks for a child, and brings four descriptors: of the child's standard
input, of what it answers on, of its standard error, and of a line of its own. The child leads a session. When its line
is shut, it is killed with its group, and how it ended is told on the line; it is a zombie until then, so that its
number is nobody else's. When the socket ends, all are killed.

A fork is safe here: there is no thread but OpenBLAS's, which ends its own before every fork (pthread_atfork). The
nursery keeps no end of a child's pipes, and a child nothing of its siblings', so each sees the other side's end.
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

NICE = 5
"""Whoever asks goes before what is solved."""
EXIT_CODE = struct.Struct("i")
"""How a child ended: its exit code, or the signal's number below 0."""

ChildMain = Callable[[IO[bytes], IO[bytes]], None]
"""What a child does, from what it reads to what it answers."""


def serve_forks(life: ChildMain) -> None:
    """Fork for whoever asks, until nobody can."""
    asked = socket.socket(fileno=os.dup(0))
    lines: dict[socket.socket, int] = {}
    gc.freeze()  # what is loaded is never looked through again, nor copied for that
    while True:
        ready, _, _ = select.select([asked, *lines], [], [])
        for each in ready:
            if each is not asked:
                _kill_child(each, lines.pop(each))
            elif not _fork_child(asked, lines, life):
                for line, child in lines.items():
                    _kill_child(line, child)
                return


def _fork_child(asked: socket.socket, lines: dict[socket.socket, int], life: ChildMain) -> bool:
    """Whether a child was asked for."""
    said, descriptors, _, _ = socket.recv_fds(asked, 1, 4)
    if not said:
        return False
    *ends, line = descriptors
    mine = socket.socket(fileno=line)
    child = os.fork()
    if child == 0:
        for each in (asked, mine, *lines):
            each.close()
        _run_child(life, *ends)
    lines[mine] = child
    for end in ends:
        os.close(end)
    return True


def _run_child(life: ChildMain, asks: int, answers: int, errors: int) -> NoReturn:
    """In the child. Whatever a library prints goes to standard error."""
    try:
        os.setsid()
        os.nice(NICE)
        for end, place in ((asks, 0), (errors, 1), (errors, 2)):
            os.dup2(end, place)
        os.close(asks)
        os.close(errors)
        with os.fdopen(0, "rb", closefd=False) as heard, os.fdopen(answers, "wb") as told:
            life(heard, told)
        os._exit(0)
    except BaseException:  # noqa: BLE001 - what the nursery would do next is not for its child
        traceback.print_exc()
        os._exit(1)


def _kill_child(line: socket.socket, child: int) -> None:
    for kill in (os.killpg, os.kill):  # it may not lead a group yet
        with suppress(ProcessLookupError):
            kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    with line, suppress(OSError):  # nobody waits for it
        line.send(EXIT_CODE.pack(os.waitstatus_to_exitcode(status)))
