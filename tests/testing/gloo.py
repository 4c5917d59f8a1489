"""Processes of torch.distributed over gloo, one per device, which find each other through a file in a folder.

`python -P -m tests.testing.gloo MODULE RANKS TOLD...` calls `run_rank(RANK, TOLD...)` of a module in a process for each
rank. The processes are forks of one that has imported the module: reading torch takes seconds, and is done once.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from planner.errors import ShardplanError

LIMIT_S, PATIENCE_S = 240.0, 240.0


def run_ranks(module: str, ranks: int, *told: str, limit_s: float = LIMIT_S) -> list[Any]:
    """Return what `run_rank(rank, *told)` of a module returns in the process of every rank, as JSON has it.

    Raises AssertionError with what they say where one of them fails.
    """
    words = [sys.executable, "-P", "-m", "tests.testing.gloo", module, str(ranks), *told]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as started:
        try:
            out, said = started.communicate(timeout=limit_s)
        except BaseException:
            os.killpg(started.pid, signal.SIGKILL)
            raise
    if started.returncode:
        raise AssertionError(said)
    answers: list[Any] = json.loads(out)
    return answers


def enter_gloo(folder: str | Path, rank: int, ranks: int, *, patience_s: float = PATIENCE_S) -> None:
    """Be a rank of the process group of a folder, on one thread."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    store, patience = f"file://{Path(folder, 'store').absolute()}", timedelta(seconds=patience_s)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks, timeout=patience)


@contextmanager
def join_gloo(folder: str | Path, rank: int, ranks: int) -> Iterator[None]:
    """Be a rank of the process group of a folder, which all ranks leave together unless one fails."""
    import torch.distributed as dist

    enter_gloo(folder, rank, ranks)
    try:
        yield
        dist.barrier()
    finally:
        dist.destroy_process_group()


def find_error(call: Callable[[], object]) -> str:
    """Return the message of the designed error that a call raises, or "no error"."""
    try:
        call()
    except ShardplanError as error:
        return str(error)
    return "no error"


def _fork_ranks(module: str, count: str, *told: str) -> None:
    """Print the answers of all ranks, or end all of them with the first that ends without an answer."""
    import torch._dynamo  # functional collectives import it, and 800 modules with it
    import torch.distributed._functional_collectives  # noqa: F401

    run_rank, context = import_module(module).run_rank, multiprocessing.get_context("fork")
    ranks: dict[Connection, int] = {}
    for rank in range(int(count)):
        receiver, sender = context.Pipe(duplex=False)
        context.Process(target=_run_rank, args=(sender, run_rank, rank, told)).start()
        sender.close()  # what is read ends with the rank
        ranks[receiver] = rank
    answers: dict[int, Any] = {}
    while len(answers) < len(ranks):
        for ready in wait([each for each, rank in ranks.items() if rank not in answers]):
            assert isinstance(ready, Connection)
            try:
                answers[ranks[ready]] = ready.recv()
            except EOFError:  # it has said why
                os.killpg(0, signal.SIGKILL)
    sys.stdout.write(json.dumps([answers[rank] for rank in range(len(ranks))]))


def _run_rank(sender: Connection, run_rank: Callable[..., Any], rank: int, told: tuple[str, ...]) -> None:
    sender.send(run_rank(rank, *told))


if __name__ == "__main__":
    _fork_ranks(*sys.argv[1:])
