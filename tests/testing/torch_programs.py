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
MOVES = ("all_gather_into_tensor", "reduce_scatter_tensor", "all_reduce", "all_to_all_single")


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


def _received_bytes(op: str, given: Sequence[Any], rank: int) -> float:
    """Return the bytes that a call of a collective brings a process, by the ring's formulas."""
    import torch.distributed.distributed_c10d as c10d

    tensor, named = given[0], given[-1]
    group = c10d._resolve_process_group(named) if isinstance(named, str) else named
    members, size = group.size(), tensor.numel() * tensor.element_size()
    if op == "all_to_all_single":
        row = tensor.element_size() * (tensor.numel() // tensor.shape[0] if tensor.shape[0] else 0)
        row = row or tensor.element_size()
        arrives = [*given[1]]
        arrives.pop(c10d.get_group_rank(group, rank))
        return float(sum(arrives) * row)
    passes = {"all_gather_into_tensor": members, "reduce_scatter_tensor": 1, "all_reduce": 2}
    return float(size * passes[op] * (members - 1) / members)


def _run_rank(rank: int, ranks: int, folder: str) -> None:
    import torch
    import torch.distributed as dist
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
        total = 0.0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            op = func.__name__.split(".")[0]
            if func.namespace == "_c10d_functional" and op in MOVES:
                self.total += _received_bytes(op, args, rank)
            return func(*args, **(kwargs or {}))

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{Path(folder, 'store')}", rank=rank, world_size=ranks)
    found, received = [], []
    for number, (text, arrays) in enumerate(pickle.loads(Path(folder, "jobs.pickle").read_bytes())):
        module: dict[str, Any] = {}
        exec(compile(text, f"<program {number}>", "exec"), module)
        held = module["local"](*[torch.as_tensor(np.array(array)) for array in arrays])
        with Count() as counted:
            made = [module["waited"](each) for each in module["program"](*held)]
        received.append(counted.total)
        found.append([each.numpy() for each in module["whole"](*made)])
    Path(folder, f"received.{rank}").write_text(json.dumps(received))
    if rank == 0:
        Path(folder, "results.pickle").write_bytes(pickle.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    _run_rank(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
