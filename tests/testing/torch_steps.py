"""A module trained by its plan's program over gloo: `python -P -m tests.testing.torch_steps RANK FOLDER MESH`.

Every process prints the losses of some steps, those of the unsharded module, and the largest difference of parameters.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import planner.torch
from planner import Request
from planner.ir.mesh import Mesh
from tests.testing.gloo_modules import WORDS, Tagger, run_ranks, tagger

STEPS = 3


class Loss(Tagger):
    """The tagger, trained to name every word by itself; batch normalisation keeps its statistics in buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(WORDS)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        made = self.norm(super().forward(ids).reshape(-1, WORDS))
        return torch.nn.functional.cross_entropy(made, ids.reshape(-1))


def train(mesh: str) -> tuple[list[float], list[float], float]:
    """Return losses of the planned and of the unsharded module, and the largest difference of their state after."""
    ids = tagger(0)[1]
    torch.manual_seed(0)
    module, whole = Loss(), Loss()
    whole.load_state_dict(module.state_dict())
    request = Request(24_000, deterministic=True, gap=0.01)
    planned = planner.torch.parallelize(module, (ids,), mesh, train="adamw", request=request)
    losses = [_step(each, ids) for each in (planned, whole)]
    state, wanted = planned.state_dict(), whole.state_dict()
    assert state.keys() == wanted.keys()
    worst = max(float((state[name].full_tensor() - wanted[name]).abs().max()) for name in wanted)
    return losses[0], losses[1], worst


def _step(module: torch.nn.Module, ids: torch.Tensor) -> list[float]:
    # Not Adam: what batch normalisation takes away has a gradient of rounding errors alone, whose sign it follows.
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = module(ids)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().item())
    return losses


def run_over_gloo(folder: Path, mesh: str) -> list[tuple[list[float], list[float], float]]:
    """Return the answers of all devices of a mesh."""
    return run_ranks("tests.testing.torch_steps", folder, mesh)


def _rank(rank: int, folder: str, mesh: str) -> tuple[list[float], list[float], float]:
    torch.set_num_threads(1)
    devices = Mesh.parse(mesh).devices
    dist.init_process_group("gloo", init_method=f"file://{Path(folder, 'store')}", rank=rank, world_size=devices)
    try:
        return train(mesh)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_rank(int(sys.argv[1]), *sys.argv[2:])))
