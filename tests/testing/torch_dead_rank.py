"""A process that ends while its peer runs on.

There are two processes. Both run a forward pass and return its largest difference from the unsharded module's. Then the
second ends, and the first returns the error of its next pass.
"""

from __future__ import annotations

import torch

import planner.torch
from planner import Request
from planner.errors import RunFailed
from tests.testing.gloo import enter_gloo

PATIENCE_S = 60.0


def run_rank(rank: int, folder: str, mesh: str) -> list[float | str]:
    enter_gloo(folder, rank, 2, patience_s=PATIENCE_S)  # the process group is not left in order
    torch.manual_seed(0)
    module, x = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()), torch.randn(4, 8)
    wanted = module(x)
    request = Request(layout="fsdp", gap=0.05, deterministic=True)
    planned = planner.torch.parallelize(module, (x,), mesh, request=request)
    with torch.no_grad():
        error = float((planned(x).full_tensor() - wanted).abs().max())
        if rank == 1:
            return [error, ""]
        try:
            planned(x)
        except RunFailed as failure:
            return [error, str(failure)]
    return [error, "no error"]
