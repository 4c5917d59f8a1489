"""Exported programs run over gloo: `python -P -m tests.testing.torch_programs RANK RANKS FOLDER`.

There is one process per device. The folder has a module and its whole arguments for each program; the first process
leaves the whole results there, and every process the bytes that it received, by program.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

LIMIT_S = 240.0


def run_programs(folder: Path, jobs: Sequence[tuple[str, Sequence[Any]]], ranks: int) -> list[list[Any]]:
    """Run modules on whole arrays, one after another, in as many processes; return their whole results."""
    Path(folder, "jobs.pickle").write_bytes(pickle.dumps(jobs))
    command = [sys.executable, "-P", "-m", "tests.testing.torch_programs"]
    started = [
        subprocess.Popen([*command, str(rank), str(ranks), str(folder)], stderr=subprocess.PIPE, text=True)
        for rank in range(ranks)
    ]
    try:
        said = [each.communicate(timeout=LIMIT_S)[1] for each in started]
    finally:
        for each in started:
            each.kill()
    if any(each.returncode for each in started):
        raise AssertionError("\n".join(said))
    results: list[list[Any]] = pickle.loads(Path(folder, "results.pickle").read_bytes())
    return results


def _run_rank(rank: int, ranks: int, folder: str) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{Path(folder, 'store')}", rank=rank, world_size=ranks)
    found = []
    for number, (text, arrays) in enumerate(pickle.loads(Path(folder, "jobs.pickle").read_bytes())):
        module: dict[str, Any] = {}
        exec(compile(text, f"<program {number}>", "exec"), module)
        held = module["local"](*[torch.as_tensor(np.array(array)) for array in arrays])
        found.append([each.numpy() for each in module["whole"](*module["program"](*held))])
    if rank == 0:
        Path(folder, "results.pickle").write_bytes(pickle.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    _run_rank(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
