"""A module distributed by its plan over gloo: `python -m tests.testing.gloo_modules RANK FOLDER MESH`.

There is one process per device. Every process plans the same module, finds the others through a file in the folder, and
prints the error of its result against the unsharded one, and the share of the parameters' elements that it holds.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import distribute_tensor

import planner.torch
from planner import Request
from planner.ir.mesh import Mesh

LIMIT_S = 240.0
BATCH, TOKENS, WIDTH, WORDS = 8, 4, 16, 64


class Tagger(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
    """An embedding, tied with the last product, a buffer of positions and a feed-forward block."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, WIDTH)
        self.register_buffer("positions", torch.linspace(-1, 1, TOKENS * WIDTH).reshape(TOKENS, WIDTH))
        self.up = torch.nn.Linear(WIDTH, 4 * WIDTH)
        self.down = torch.nn.Linear(4 * WIDTH, WIDTH)
        self.head = torch.nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) + self.positions
        return self.head(x + self.down(torch.nn.functional.gelu(self.up(x))))


def tagger(seed: int) -> tuple[Tagger, torch.Tensor]:
    """Return the module with random parameters, and ids."""
    torch.manual_seed(seed)
    return Tagger(), torch.arange(BATCH * TOKENS).reshape(BATCH, TOKENS) % WORDS


@cache
def planned_tagger(mesh: str) -> planner.torch.TorchPlan:
    """Plan the module under a limit that no replicated layout meets."""
    module, ids = tagger(0)
    size = sum(4 * each.numel() for each in module.parameters())
    return planner.torch.plan(module, (ids,), mesh, request=Request(size, deterministic=True, gap=0.01))


def compare_distributed(mesh: str, devices: Any) -> tuple[float, float]:
    """Return the largest error of the distributed module's result, and the share of its elements held here."""
    planned = planned_tagger(mesh)
    module, ids = tagger(0)
    wanted = module(ids)
    if dist.get_rank():
        module, _ = tagger(1)  # the first rank's values count
    planned.apply(module, devices)
    placed = distribute_tensor(ids, devices, planned.inputs["ids"])
    with torch.no_grad():
        got = module(placed).full_tensor()
    held = sum(each.to_local().numel() for each in module.parameters())
    return float((got - wanted).abs().max()), held / sum(each.numel() for each in module.parameters())


def run_over_gloo(folder: Path, mesh: str) -> list[tuple[float, float]]:
    """Return the answers of all devices of a mesh."""
    return run_ranks("tests.testing.gloo_modules", folder, mesh)


def run_ranks(module: str, folder: Path, mesh: str) -> list[tuple[Any, ...]]:
    """Return the answers that a module prints for each device of a mesh."""
    command = [sys.executable, "-P", "-m", module]
    ranks = [
        subprocess.Popen([*command, str(rank), str(folder), mesh], stdout=subprocess.PIPE, text=True)
        for rank in range(Mesh.parse(mesh).devices)
    ]
    try:
        return [tuple(json.loads(rank.communicate(timeout=LIMIT_S)[0])) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()


def _rank(rank: int, folder: str, mesh: str) -> tuple[float, float]:
    torch.set_num_threads(1)
    parsed = Mesh.parse(mesh)
    dist.init_process_group("gloo", init_method=f"file://{Path(folder, 'store')}", rank=rank, world_size=parsed.devices)
    try:
        return compare_distributed(mesh, init_device_mesh("cpu", parsed.shape, mesh_dim_names=parsed.names))
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_rank(int(sys.argv[1]), *sys.argv[2:])))
