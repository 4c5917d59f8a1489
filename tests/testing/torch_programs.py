"""Exported programs run over gloo.

There is one process per device. The folder has a module and its whole arguments for each program. Every process returns
the bytes that it received, by program, as its calls of the library's collectives say, and the first leaves the results.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.testing.gloo import join_gloo, run_ranks

LIMIT_S = 900.0
"""A machine with other work takes seconds per program."""


def run_programs(
    folder: Path, jobs: Sequence[tuple[str, Sequence[Any]]], ranks: int
) -> tuple[list[list[Any]], list[float]]:
    """Run modules on whole arrays, one after another, in as many processes.

    Return their whole results, and the bytes that all processes received, by module.
    """
    Path(folder, "jobs.pickle").write_bytes(pickle.dumps(jobs))
    received = run_ranks("tests.testing.torch_programs", ranks, str(ranks), str(folder), limit_s=LIMIT_S)
    results: list[list[Any]] = pickle.loads(Path(folder, "results.pickle").read_bytes())
    return results, [sum(each) for each in zip(*received, strict=True)]


def run_rank(rank: int, ranks: str, folder: str) -> list[float]:
    with join_gloo(folder, rank, int(ranks)):
        return _run_programs(rank, folder)


def _run_programs(rank: int, folder: str) -> list[float]:
    import torch
    import torch.distributed as dist

    from planner.export.torch_program.run_trace import RunCounter

    found, received = [], []
    for number, (text, arrays) in enumerate(pickle.loads(Path(folder, "jobs.pickle").read_bytes())):
        module: dict[str, Any] = {}
        exec(compile(text, f"<program {number}>", "exec"), module)
        held = module["local"](*[torch.as_tensor(np.array(array)) for array in arrays])
        with RunCounter(held) as counted:
            made = [module["waited"](each) for each in module["program"](*held)]
        received.append(sum(counted.received.values()))
        found.append([each.numpy() for each in module["whole"](*made)])
        for group in [module[name] for name in module if name.startswith("GROUP_")]:
            dist.destroy_process_group(group)  # each has threads of its own
    if rank == 0:
        Path(folder, "results.pickle").write_bytes(pickle.dumps(found))
    return received
