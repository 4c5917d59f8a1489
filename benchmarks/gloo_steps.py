"""Runs five training steps under DTensor over gloo: `python -m benchmarks.gloo_steps RANK FOLDER STEP...`.

There is one process per device. Every process builds the same step and the same initial state
(`benchmarks.training_parity`), finds the others through a file in the folder, and prints its losses.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from benchmarks.torch_steps import losses
from benchmarks.training_parity import STEPS, beginning, step
from planner.ir.mesh import Mesh

LIMIT_S = 300.0


def over_gloo(family: str, layout: str, mesh: str, layers: int) -> list[list[float]]:
    """Return the losses of every device."""
    with tempfile.TemporaryDirectory() as folder:
        told = [folder, family, layout, mesh, str(layers)]
        ranks = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.gloo_steps", str(rank), *told], stdout=subprocess.PIPE, text=True
            )
            for rank in range(Mesh.parse(mesh).devices)
        ]
        try:
            return [json.loads(rank.communicate(timeout=LIMIT_S)[0]) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()


def _rank(rank: int, folder: str, family: str, layout: str, mesh: str, layers: int) -> list[float]:
    torch.set_num_threads(1)
    program = step(family, layout, mesh, layers)
    store = f"file://{Path(folder, 'store')}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=program.mesh.devices)
    try:
        devices = init_device_mesh("cpu", program.mesh.shape)
        arrays = beginning(program.graph)
        return losses(program, arrays, STEPS, devices, lambda array: torch.from_numpy(np.array(array)))
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    number, place, name, chosen, axes, count = sys.argv[1:]
    sys.stdout.write(json.dumps(_rank(int(number), place, name, chosen, axes, int(count))))
