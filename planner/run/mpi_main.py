"""One rank of a run over MPI: `python -m planner.run.mpi_main TASK DONE` (see `planner.run.mpi`)."""

from __future__ import annotations

import os
import pickle
import sys
import threading
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from planner.errors import RunFailed, ShardplanError
from planner.run.backend import array_module, to_host
from planner.run.executor import Execution, run_program
from planner.run.inputs import random_inputs, random_later_data
from planner.run.mpi import MpiTransport, RankTask, world_communicator
from planner.run.nccl import NcclTransport


def main(task_file: str, done_file: str) -> None:
    """Run the device of this rank; the first rank writes what all hold and counted. A rank that fails aborts all."""
    communicator = world_communicator()
    # mpiexec passes its input to rank 0 alone.
    if communicator.Get_rank() == 0:
        threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        _run_rank(communicator, pickle.loads(Path(task_file).read_bytes()), Path(done_file))
    except BaseException as error:  # noqa: BLE001 (an exit would leave the others waiting)
        sys.stderr.write(f"rank {communicator.Get_rank()}: {error}\n")
        if not isinstance(error, ShardplanError):
            traceback.print_exc()
        sys.stderr.flush()
        communicator.Abort(1)


def _end_with_parent() -> None:
    """End this process when its parent closes our input: nobody waits for the result any more."""
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)


def _run_rank(communicator: Any, task: RankTask, done_file: Path) -> None:
    if communicator.Get_size() != (wanted := task.program.mesh.devices):
        raise RunFailed("ranks", got=communicator.Get_size(), wanted=f"{wanted}, one a device")
    xp: Any = np if task.backend == "mpi" else array_module("cupy")
    fabric = MpiTransport(communicator) if task.backend == "mpi" else NcclTransport(communicator, xp)
    arrays = random_inputs(task.program.graph, xp, task.precision, seed=task.seed)
    later = random_later_data(task.program.graph, xp, task.precision, seed=task.seed)
    with np.errstate(all="ignore"):
        mine = run_program(task.program, arrays, xp, precision=task.precision, fabric=fabric, later=later)
    outputs = [[to_host(xp, array) for array in held] for held in mine.outputs]
    gathered = communicator.gather(replace(mine, outputs=outputs))
    if gathered is not None:
        done_file.write_bytes(pickle.dumps(_gather_execution(gathered)))


def _gather_execution(ranks: Sequence[Execution]) -> Execution:
    """Combine the executions of all ranks, each of which has counted only its own device."""
    return Execution(
        [each.outputs[0] for each in ranks],
        np.sum([each.received for each in ranks], axis=0),
        np.max([each.peak for each in ranks], axis=0),
        np.sum([each.seconds for each in ranks], axis=0),
        [each.measured_peaks[0] for each in ranks],
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
