"""A module from the meta device, over gloo.

Every process initializes its shards by a seed, trains, saves a checkpoint, and trains on from it under another plan on
another mesh. It returns what `MetaRun` says.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)

import planner.torch
from planner import Request
from planner.ir.mesh import Mesh
from tests.testing.gloo import find_error, join_gloo
from tests.testing.torch_steps import take_steps

SEED, STEPS = 3, 2


@dataclass(frozen=True)
class MetaRun:
    """Whether initial values are the unsharded module's, the share held here, losses in both plans and unsharded,
    whether a full checkpoint has its values in the shards, and the errors of a module that is not initialized and of a
    tensor that nothing sets."""

    is_same: bool
    share: float
    losses: list[float]
    unsharded: list[float]
    is_loaded: bool
    error: str
    unset: str


class Tagger(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Embeddings, batch normalisation with its buffers, and a bias of 5 that no axis divides."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(12, 8)
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 10), torch.nn.BatchNorm1d(10), torch.nn.Linear(10, 5))

    def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self.layers(self.words(ids)), labels)


def _seeded() -> Tagger:
    torch.manual_seed(SEED)
    return Tagger()


def _parallelize(mesh: str, layout: Any) -> planner.torch.PlannedModule:
    with torch.device("meta"):
        module, batch = Tagger(), (torch.zeros(8, dtype=torch.int64), torch.zeros(8, dtype=torch.int64))
    request = Request(layout=layout, gap=0.05, deterministic=True)
    return planner.torch.parallelize(module, batch, mesh, train="adamw", request=request)


def _make_optimizer(module: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)


def _is_same(module: Any, values: dict[str, torch.Tensor]) -> bool:
    held = module.state_dict()
    return held.keys() == values.keys() and all(torch.equal(held[name].full_tensor(), values[name]) for name in values)


def run(folder: Path, mesh: str) -> MetaRun:
    batch = torch.arange(8), torch.arange(8) % 5
    whole = _seeded()
    first = _parallelize(mesh, "fsdp")
    error, unset = find_error(lambda: first(*batch)), find_error(lambda: first.initialize(SEED, lambda owner: None))
    first.initialize(SEED)
    is_same = _is_same(first, whole.state_dict())
    held = sum(each.to_local().numel() for each in first.parameters())
    optimizer = _make_optimizer(whole)
    unsharded = take_steps(whole, optimizer, batch, 2 * STEPS)
    optimizer = _make_optimizer(first)
    losses = take_steps(first, optimizer, batch, STEPS)
    model_state, state = get_state_dict(first, optimizer)
    dcp.save({"model": model_state, "optimizer": state}, checkpoint_id=folder / "checkpoint")
    second = _parallelize("dp=2,tp=2", "fsdp+tp")
    second.to_empty(device="cpu")
    optimizer = _make_optimizer(second)
    model_state, state = get_state_dict(second, optimizer)
    dcp.load({"model": model_state, "optimizer": state}, checkpoint_id=folder / "checkpoint")
    set_state_dict(second, optimizer, model_state_dict=model_state, optim_state_dict=state)
    losses += take_steps(second, optimizer, batch, STEPS)
    given = _seeded().state_dict() if dist.get_rank() == 0 else {}  # torch writes to it
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(second, given, options=options)
    values = _seeded().state_dict()
    share = held / sum(each.numel() for each in first.parameters())
    return MetaRun(is_same, share, losses, unsharded, _is_same(second, values), error, unset)


def run_rank(rank: int, folder: str, mesh: str) -> list[Any]:
    with join_gloo(folder, rank, Mesh.parse(mesh).devices):
        return [asdict(run(Path(folder), mesh))]
