"""Exported stages run by torchrun over gloo: `torchrun ... -m tests.testing.torch_stages FOLDER`.

The folder has the module, whole arguments by name, and the data of each step. The first process leaves there the whole
results of every step.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LIMIT_S = 200.0


def run_stages(
    folder: Path, text: str, arrays: Mapping[str, Any], *, steps: Sequence[Mapping[str, Any]], processes: int
) -> list[dict[str, Any]]:
    """Run steps of a module, each with data of its own, in as many processes, and return their whole results."""
    Path(folder, "job.pickle").write_bytes(pickle.dumps((text, arrays, steps)))
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [sys.executable, "-P", *launch, "-m", "tests.testing.torch_stages", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise AssertionError(done.stderr)
    results: list[dict[str, Any]] = pickle.loads(Path(folder, "results.pickle").read_bytes())
    return results


def _run_process(folder: str) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    text, arrays, steps = pickle.loads(Path(folder, "job.pickle").read_bytes())
    module: dict[str, Any] = {}
    exec(compile(text, "<stages>", "exec"), module)
    held, found = module["local"](_tensors(arrays)), []
    for data in steps:
        given = module["local"](_tensors({**arrays, **data}))
        pairs = zip(held, given, strict=True)
        held = [{**old, **{name: new[name] for name in old if name in data}} for old, new in pairs]
        results = module["program"](held)
        found.append({name: tensor.numpy() for name, tensor in module["whole"](results).items()})
        held = module["advance"](held, results)
    if dist.get_rank() == 0:
        Path(folder, "results.pickle").write_bytes(pickle.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def _tensors(arrays: Mapping[str, Any]) -> dict[str, Any]:
    import torch

    return {name: torch.as_tensor(array) for name, array in arrays.items()}


if __name__ == "__main__":
    _run_process(sys.argv[1])
