"""Runs five training steps under DTensor over gloo.

There is one process per device. Every process builds the same step and the same initial state
(`benchmarks.training_parity`), finds the others through a file in the folder, and returns its losses.
"""

from __future__ import annotations

import tempfile

import numpy as np
import torch
from torch.distributed.device_mesh import init_device_mesh

from benchmarks.torch_steps import losses
from benchmarks.training_parity import STEPS, beginning, step
from planner.ir.mesh import Mesh
from tests.testing.gloo import join_gloo, run_ranks

LIMIT_S = 300.0


def over_gloo(family: str, layout: str, mesh: str, layers: int) -> list[list[float]]:
    """Return the losses of every device."""
    with tempfile.TemporaryDirectory() as folder:
        told = [folder, family, layout, mesh, str(layers)]
        return run_ranks("benchmarks.gloo_steps", Mesh.parse(mesh).devices, *told, limit_s=LIMIT_S)


def run_rank(rank: int, folder: str, family: str, layout: str, mesh: str, layers: str) -> list[float]:
    program = step(family, layout, mesh, int(layers))
    with join_gloo(folder, rank, program.mesh.devices):
        devices = init_device_mesh("cpu", program.mesh.shape)
        arrays = beginning(program.graph)
        return losses(program, arrays, STEPS, devices, lambda array: torch.from_numpy(np.array(array)))
