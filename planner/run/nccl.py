"""Runs a process per GPU over NCCL (cupy.cuda.nccl); MPI starts the ranks and lets them meet.

Every group of devices has a communicator, created at its first use: the group's first rank draws its id and MPI
broadcasts it. NCCL must know what it receives, so shapes and dtypes are sent ahead over MPI. Then all pieces are sent
and received as bytes in one NCCL group, on the current stream. NCCL refuses two ranks on one GPU.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib import import_module
from math import prod
from typing import Any

from planner.errors import RunFailed
from planner.run.mpi import MpiCommunicator, MpiTransport
from planner.run.transport import Array, Communicator, Pieces


class NcclCommunicator(MpiCommunicator):
    """Exchanges arrays between the GPUs of a communicator's ranks."""

    def __init__(self, communicator: Any, nccl: Any, xp: Any) -> None:
        super().__init__(communicator, xp)
        self.nccl, self.cuda = nccl, nccl_binding()

    def exchange(self, sent: Sequence[Pieces]) -> list[list[Array]]:
        (mine,), (me,) = sent, self.here
        held = [None if piece is None else self.xp.ascontiguousarray(piece) for piece in mine]
        kinds = self.mpi_communicator.alltoall(
            [None if each is None else (each.shape, each.dtype.str) for each in held]
        )
        arrived = [None if kind is None else self.xp.empty(*kind) for kind in kinds]
        arrived[me] = held[me]
        stream, cuda = self.xp.cuda.get_current_stream(), self.cuda
        cuda.groupStart()
        for other in range(self.members):
            for move, array in ((self.nccl.send, held[other]), (self.nccl.recv, arrived[other])):
                if other != me and array is not None and prod(array.shape):
                    move(array.data.ptr, array.nbytes, cuda.NCCL_INT8, other, stream.ptr)
        cuda.groupEnd()
        stream.synchronize()  # what was sent may be dropped now
        self._count_received([arrived])
        return [arrived]


class NcclTransport(MpiTransport):
    """The GPU of this rank, and communicators of MPI and NCCL for every group it is in."""

    def __init__(self, world: Any, xp: Any) -> None:
        super().__init__(world, xp)
        check_gpus(xp, world.Get_size())
        xp.cuda.Device(world.Get_rank()).use()
        self.nccl: dict[tuple[int, ...], Any] = {}

    def communicator(self, devices: Sequence[int]) -> Communicator:
        communicator, group = self.mpi_communicator(devices), tuple(devices)
        if group not in self.nccl:
            cuda, rank = nccl_binding(), communicator.Get_rank()
            drawn = communicator.bcast(cuda.get_unique_id() if rank == 0 else None)
            self.nccl[group] = cuda.NcclCommunicator(len(group), drawn, rank)
        return NcclCommunicator(communicator, self.nccl[group], self.xp)


def nccl_binding() -> Any:
    """Return cupy's binding of NCCL, which `import cupy` leaves out. Raises RunFailed where there is no NCCL."""
    with warnings.catch_warnings():  # cupy says in several lines how to install it
        warnings.simplefilter("ignore")
        binding = import_module("cupy.cuda.nccl")
    if not binding.available:
        raise RunFailed("no NCCL", where="backend nccl", wanted="shardplan[cuda12] or [cuda13]")
    return binding


def check_gpus(xp: Any, devices: int) -> None:
    """Raise RunFailed where there is no NCCL, or fewer GPUs than devices."""
    nccl_binding()
    if (count := int(xp.cuda.runtime.getDeviceCount())) < devices:
        wanted = f"{devices}, or --backend mpi"
        raise RunFailed("fewer GPUs than devices", where="backend nccl", got=count, wanted=wanted)
