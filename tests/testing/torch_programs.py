"""Exported programs run over gloo: `python -P -m tests.testing.torch_programs RANK RANKS FOLDER`.

There is one process per device. The folder has a module and its whole arguments for each program. Every process leaves
there the bytes that it received, by program, as its calls of the library's collectives say, and the first the results.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

LIMIT_S = 240.0


def run_programs(
    folder: Path, jobs: Sequence[tuple[str, Sequence[Any]]], ranks: int
) -> tuple[list[list[Any]], list[float]]:
    """Run modules on whole arrays, one after another, in as many processes.

    Return their whole results, and the bytes that all processes received, by module.
    """
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
    received = [json.loads(Path(folder, f"received.{rank}").read_text()) for rank in range(ranks)]
    return results, [sum(each) for each in zip(*received, strict=True)]


def _run_rank(rank: int, ranks: int, folder: str) -> None:
    import torch
    import torch.distributed as dist

    from planner.export.torch_program.run_trace import RunCounter

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{Path(folder, 'store')}", rank=rank, world_size=ranks)
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
    Path(folder, f"received.{rank}").write_text(json.dumps(received))
    if rank == 0:
        Path(folder, "results.pickle").write_bytes(pickle.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    _run_rank(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
