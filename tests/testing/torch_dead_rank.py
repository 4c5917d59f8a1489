"""A process that ends while its peer runs on: `python -P -m tests.testing.torch_dead_rank RANK FOLDER MESH`.

There are two processes. Both run a forward pass and print its largest difference from the unsharded module's. Then the
second ends, and the first prints the error of its next pass.
"""

from __future__ import annotations

import json
import os
import sys

import torch

import planner.torch
from planner import Request
from planner.errors import RunFailed
from tests.testing.gloo import join_gloo

PATIENCE_S = 60.0


def _run_rank(rank: int, mesh: str) -> list[float | str]:
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


if __name__ == "__main__":
    with join_gloo(sys.argv[2], int(sys.argv[1]), 2, patience_s=PATIENCE_S):
        sys.stdout.write(json.dumps(_run_rank(int(sys.argv[1]), sys.argv[3])))
        sys.stdout.flush()
        os._exit(0)  # the process group is not left in order
