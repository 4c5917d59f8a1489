"""Processes of torch.distributed over gloo, one per device, which find each other through a file in a folder."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from subprocess import PIPE, Popen

from planner.errors import ShardplanError

LIMIT_S, PATIENCE_S = 240.0, 240.0


def run_ranks(module: str, ranks: int, *told: str, limit_s: float = LIMIT_S) -> list[str]:
    """Run `python -m module RANK TOLD...` for every rank, and return what each prints.

    Raises AssertionError with what they say where one of them fails.
    """
    started = [
        Popen([sys.executable, "-P", "-m", module, str(rank), *told], stdout=PIPE, stderr=PIPE, text=True)
        for rank in range(ranks)
    ]
    try:
        printed = [each.communicate(timeout=limit_s) for each in started]
    finally:
        for each in started:
            each.kill()
    if any(each.returncode for each in started):
        raise AssertionError("\n".join(said for _, said in printed))
    return [out for out, _ in printed]


@contextmanager
def join_gloo(folder: str | Path, rank: int, ranks: int, *, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Be a rank of the process group of a folder, on one thread; all ranks leave it together unless one fails."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    store, patience = f"file://{Path(folder, 'store').absolute()}", timedelta(seconds=patience_s)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks, timeout=patience)
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
