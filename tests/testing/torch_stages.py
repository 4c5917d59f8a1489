"""Exported stages run over gloo, and as users start them: `torchrun ... -m tests.testing.torch_stages FOLDER`.

The folder has the module, whole arguments by name, and the data of each step. The first process leaves there the whole
results of every step.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.testing.gloo import join_gloo, run_ranks

LIMIT_S = 200.0


def run_stages(
    folder: Path,
    text: str,
    arrays: Mapping[str, Any],
    *,
    steps: Sequence[Mapping[str, Any]],
    processes: int,
    by_torchrun: bool = False,
) -> list[dict[str, Any]]:
    """Run steps of a module, each with data of its own, in as many processes, and return their whole results."""
    Path(folder, "job.pickle").write_bytes(pickle.dumps((text, arrays, steps)))
    if by_torchrun:
        launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
        command = [sys.executable, "-P", *launch, "-m", "tests.testing.torch_stages", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        if done.returncode:
            raise AssertionError(done.stderr)
    else:
        run_ranks("tests.testing.torch_stages", processes, str(folder), str(processes), limit_s=LIMIT_S)
    results: list[dict[str, Any]] = pickle.loads(Path(folder, "results.pickle").read_bytes())
    return results


def run_rank(rank: int, folder: str, ranks: str) -> None:
    with join_gloo(folder, rank, int(ranks)):
        _run_steps(folder)


def _run_steps(folder: str) -> None:
    import torch.distributed as dist

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


def _tensors(arrays: Mapping[str, Any]) -> dict[str, Any]:
    import torch

    return {name: torch.as_tensor(array) for name, array in arrays.items()}


if __name__ == "__main__":
    run_rank(int(os.environ["RANK"]), sys.argv[1], os.environ["WORLD_SIZE"])
