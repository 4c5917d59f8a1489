"""A module distributed by its plan over gloo.

There is one process per device. Every process plans the same module, finds the others through a file in the folder, and
returns the error of its result against the unsharded one, and the share of the parameters' elements that it holds.
"""

from __future__ import annotations

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
from tests.testing.gloo import join_gloo, run_ranks

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
    return run_module("tests.testing.gloo_modules", folder, mesh)


def run_module(module: str, folder: Path, mesh: str) -> list[tuple[Any, ...]]:
    """Return the answers of a module for each device of a mesh."""
    return [tuple(each) for each in run_ranks(module, Mesh.parse(mesh).devices, str(folder), mesh)]


def run_rank(rank: int, folder: str, mesh: str) -> tuple[float, float]:
    parsed = Mesh.parse(mesh)
    with join_gloo(folder, rank, parsed.devices):
        return compare_distributed(mesh, init_device_mesh("cpu", parsed.shape, mesh_dim_names=parsed.names))
