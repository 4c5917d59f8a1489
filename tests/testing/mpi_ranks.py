"""Ranks of a run over MPI: those that run, and one that a signal strikes once all have started MPI.

Before that the launcher is in talks with each rank, and one that dies then makes the launcher fail in its own words.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from planner.run.mpi import world_communicator


def find_ranks(folder: Path) -> list[int]:
    """Return the processes whose command line names a folder: mpiexec and its ranks, whoever their parent is now."""
    found: list[int] = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.fsencode(folder) in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


def strike_last_rank(number: int) -> int:
    world = world_communicator()
    world.Barrier()
    if world.Get_rank() == world.Get_size() - 1:
        os.kill(os.getpid(), number)
    return number


class FatalSeed(int):
    """A seed whose value is a signal, which the last rank sends itself when it is given its task."""

    def __reduce__(self) -> tuple[object, ...]:
        return strike_last_rank, (int(self),)
