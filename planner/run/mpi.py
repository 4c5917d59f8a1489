"""Runs a program with a process per device, over MPI (mpi4py), so that what crosses between devices is really sent.

`run_over_mpi` starts mpiexec with as many ranks as the mesh has devices; rank d is device d. Every rank draws the same
inputs from the seed, takes its shards and runs the program; the first rank gathers what all hold and counted. A group
of devices is a sub-communicator, created at its first use: all its members meet it in the program's order, so all
create it at once. Where ranks die or hang, the run ends within its limit, and the error has their output.
"""

from __future__ import annotations

import copyreg
import io
import os
import pickle
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from subprocess import PIPE
from types import MappingProxyType
from typing import Any

import numpy as np

from planner.errors import RunFailed
from planner.ir.program import Program
from planner.run.backend import to_host
from planner.run.executor import Execution
from planner.run.transport import Array, Communicator, Pieces

LIMIT_S, POLL_S = 600.0, 0.05
READ_BYTES = 1 << 16
"""Bytes read of the output of failed ranks."""


@dataclass(frozen=True, slots=True)
class RankTask:
    """The task that every rank is given."""

    program: Program
    precision: str
    seed: int
    backend: str = "mpi"


class MpiCommunicator(Communicator):
    """Exchanges arrays between the ranks of a communicator, one member each. Arrays on a GPU pass through the host."""

    def __init__(self, communicator: Any, xp: Any = np) -> None:
        super().__init__(communicator.Get_size())
        self.mpi_communicator, self.xp = communicator, xp
        self.here = (communicator.Get_rank(),)

    def exchange(self, sent: Sequence[Pieces]) -> list[list[Array]]:
        (mine,) = sent
        (me,) = self.here
        staged = [None if i == me or piece is None else self._to_host(piece) for i, piece in enumerate(mine)]
        arrived = self.mpi_communicator.alltoall(staged)
        got = [mine[me] if i == me else None if p is None else self.xp.asarray(p) for i, p in enumerate(arrived)]
        self._count_received([got])
        return [got]

    def _to_host(self, piece: Array) -> Any:
        return np.ascontiguousarray(to_host(self.xp, piece))


class MpiTransport:
    """The device of this rank, and a communicator for every group it is in."""

    def __init__(self, world: Any, xp: Any = np) -> None:
        self.world, self.xp = world, xp
        self.here: Sequence[int] = (world.Get_rank(),)
        self.communicators: dict[tuple[int, ...], Any] = {tuple(range(world.Get_size())): world}

    def mpi_communicator(self, devices: Sequence[int]) -> Any:
        """Return the communicator of a group of this rank; all members ask for their groups in the same order."""
        group = tuple(devices)
        if group not in self.communicators:
            self.communicators[group] = self.world.Create_group(self.world.group.Incl(group))
        return self.communicators[group]

    def communicator(self, devices: Sequence[int]) -> Communicator:
        return MpiCommunicator(self.mpi_communicator(devices), self.xp)


def check_mpi() -> str:
    """Return the path of mpiexec, preferably the one beside this interpreter. Raises RunFailed where MPI cannot be
    used.
    """
    if find_spec("mpi4py") is None:
        raise RunFailed("MPI cannot be used", got="no package mpi4py", wanted="shardplan[mpi]")
    beside = os.pathsep.join((sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)))
    mpiexec = shutil.which("mpiexec", path=beside)
    if mpiexec is None:
        raise RunFailed("MPI cannot be used", got="no mpiexec", wanted="shardplan[mpi], or an MPI on PATH")
    return mpiexec


def run_over_mpi(
    program: Program,
    precision: str,
    seed: int,
    *,
    backend: str = "mpi",
    limit_s: float = LIMIT_S,
    on_wait: Callable[[], None] = lambda: None,
) -> Execution:
    """Run a program, one process per device (backend nccl: each on its own GPU), and return numpy arrays.

    on_wait  called again and again while the ranks run; what it raises ends them

    Raises RunFailed, with the output of the ranks, where one fails or time is up.
    """
    launcher = check_mpi()
    with tempfile.TemporaryDirectory(prefix="shardplan-") as folder:
        task, done = Path(folder, "task"), Path(folder, "done")
        task.write_bytes(pickle_task(RankTask(program, precision, seed, backend)))
        ranks = [sys.executable, "-m", "planner.run.mpi_main", str(task), str(done)]
        _launch([launcher, "-n", str(program.mesh.devices), *ranks], limit_s, on_wait)
        if not done.is_file():
            raise RunFailed("a run over MPI left no result", got="nothing", wanted="what the first rank gathers")
        execution: Execution = pickle.loads(done.read_bytes())
        return execution


def _launch(command: Sequence[str], limit_s: float, on_wait: Callable[[], None]) -> None:
    """Run a command in a process group of its own, so that no rank outlives it.

    The first rank watches its standard input, which closes when this process ends.
    """
    # One thread a rank: there are as many ranks as devices, not as cores.
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    with tempfile.TemporaryFile() as output:
        run = subprocess.Popen(command, stdin=PIPE, stdout=output, stderr=output, env=env, start_new_session=True)
        try:
            code = _wait(run, limit_s, on_wait)
        finally:
            summary = _summarize_output(
                os.pread(output.fileno(), READ_BYTES, 0).decode(errors="replace")
            )  # before the ranks write about being terminated
            _terminate(run)
            assert run.stdin is not None
            run.stdin.close()
    if code != 0:
        what = "a run over MPI took too long" if code is None else "a run over MPI failed"
        where = f"mpiexec -n {command[2]}"
        raise RunFailed(what, where=where, got=summary or "no output", wanted=f"all ranks to end within {limit_s:g} s")


def _wait(run: subprocess.Popen[bytes], limit_s: float, on_wait: Callable[[], None]) -> int | None:
    """Return the exit code of a process, or None where it does not end within the limit."""
    ends_s = time.monotonic() + limit_s
    while (left_s := ends_s - time.monotonic()) > 0:
        on_wait()
        with suppress(subprocess.TimeoutExpired):
            return run.wait(min(left_s, POLL_S))
    return None


def _summarize_output(output: str) -> str:
    """Return what ranks wrote, the reasons of failures first, without the frame that mpiexec draws."""
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith("=")]
    return "; ".join(sorted(lines, key=lambda line: not line.startswith("rank ")))


def _terminate(run: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(run.pid, number)
            run.wait(2)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def pickle_task(task: RankTask) -> bytes:
    """Pickle a task for our own ranks. Documents from outside are never unpickled."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, protocol=5)
    pickler.dispatch_table = copyreg.dispatch_table | {MappingProxyType: lambda held: (_freeze_mapping, (dict(held),))}
    pickler.dump(task)
    return buffer.getvalue()


def _freeze_mapping(entries: dict[str, Any]) -> MappingProxyType[str, Any]:
    return MappingProxyType(entries)


def world_communicator() -> Any:
    """Return MPI's communicator of all ranks."""
    return import_module("mpi4py.MPI").COMM_WORLD
