"""Modules trained by their plans' programs over gloo.

There is one process per device. The folder has a list of trainings. Every process trains the planned module and the
unsharded one with torch's optimizers, saves a checkpoint on the way, and trains on from it in a module of other values.
"""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import planner.torch
from planner import Request
from planner.ir.mesh import Mesh
from planner.ir.rematerialization import CLONE_SUFFIX
from tests.testing.gloo import join_gloo, run_ranks
from tests.testing.torch_models import seeded

LIMIT_S = 1800.0
STEPS, SAVED = 5, 2
"""A checkpoint is saved after so many steps."""
# Adam divides a gradient of rounding errors alone, as that of a key's bias, by its own size: the losses do not feel it.
OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda weights: torch.optim.SGD(weights, lr=0.05, momentum=0.9),
    "adamw": lambda weights: torch.optim.AdamW(weights, lr=1e-3),
}


@dataclass(frozen=True)
class Training:
    """A model of `torch_models`, a mesh, a request, an optimizer, and whether torch.compile makes one graph."""

    model: str
    mesh: str
    request: Request
    optimizer: str = "sgd"
    is_compiled: bool = False


@dataclass(frozen=True)
class Trained:
    """What a process has seen: losses planned and unsharded, whether the resumed run is the same bit for bit, the
    largest difference of parameters and buffers, the share of their elements held here, ops that are recomputed, and
    the collectives that nobody waited for."""

    losses: list[float]
    unsharded: list[float]
    is_resumed: bool
    worst: float
    share: float
    recomputed: int
    unwaited: int
    cpu_s: float


def train_over_gloo(folder: Path, trainings: Sequence[Training]) -> list[list[Trained | str]]:
    """Return for each training what every process has seen, or its error; all meshes have as many devices."""
    Path(folder, "trainings.pickle").write_bytes(pickle.dumps(list(trainings)))
    ranks = Mesh.parse(trainings[0].mesh).devices
    found = run_ranks("tests.testing.torch_steps", ranks, str(ranks), str(folder), limit_s=LIMIT_S)
    seen = [[Trained(**each) if isinstance(each, dict) else each for each in rank] for rank in found]
    return [list(each) for each in zip(*seen, strict=True)]


def train(asked: Training, folder: Path) -> Trained:
    """Train, save and resume, planned and unsharded. Files go to the folder."""
    began = time.process_time()
    whole, example = seeded(asked.model, 1)
    make = OPTIMIZERS[asked.optimizer]
    batches = [tuple(_differ(each, number) for each in example) for number in range(asked.request.microbatches)]

    def add_losses(*_: torch.Tensor) -> torch.Tensor:
        """Return the sum of the losses of all micro-batches: its gradients are theirs, added up."""
        return torch.stack([whole(*batch) for batch in batches]).sum()

    unsharded = take_steps(add_losses, make(whole.parameters()), example, STEPS)
    module, _ = seeded(asked.model, 1 + dist.get_rank())  # the first rank's values count
    planned = planner.torch.parallelize(module, example, asked.mesh, train="adamw", request=asked.request)
    inputs = tuple(map(torch.stack, zip(*batches, strict=True))) if len(batches) > 1 else example
    optimizer = make(planned.parameters())
    # aot_eager traces forward and backward as inductor does, without a compiler of C++.
    called = torch.compile(planned, fullgraph=True, backend="aot_eager") if asked.is_compiled else planned
    losses = take_steps(called, optimizer, inputs, SAVED)
    model_state, state = get_state_dict(planned, optimizer)
    dcp.save({"model": model_state, "optimizer": state}, checkpoint_id=folder)
    losses += take_steps(called, optimizer, inputs, STEPS - SAVED)
    trained, wanted = planned.state_dict(), whole.state_dict()
    assert trained.keys() == wanted.keys()
    worst = max(float((trained[name].full_tensor() - wanted[name]).abs().max()) for name in wanted)
    again = _resume(planned, called, make, inputs=inputs, folder=folder)
    held = sum(each.to_local().numel() for each in trained.values())
    return Trained(
        losses,
        unsharded,
        is_resumed=again == losses[SAVED:],
        worst=worst,
        share=held / sum(each.numel() for each in trained.values()),
        recomputed=planned.planned.text.count(f".{CLONE_SUFFIX}'"),
        unwaited=torch._C._distributed_c10d._get_work_registry_size(),
        cpu_s=time.process_time() - began,
    )


def _differ(tensor: torch.Tensor, number: int) -> torch.Tensor:
    """Return the input of a micro-batch: numbers moved by a part of one, ids moved on."""
    return tensor + number / 8 if tensor.is_floating_point() else tensor.flatten().roll(number).reshape(tensor.shape)


def _resume(planned: Any, called: Any, make: Any, *, inputs: Any, folder: Path) -> list[float]:
    """Return the losses after the checkpoint, read into the module with other values and a new optimizer."""
    with torch.no_grad():
        for each in planned.state_dict().values():  # buffers that are not persistent are in no checkpoint
            each.fill_(0.5)
        planned.zero_grad()
    optimizer = make(planned.parameters())
    model_state, state = get_state_dict(planned, optimizer)
    dcp.load({"model": model_state, "optimizer": state}, checkpoint_id=folder)
    set_state_dict(planned, optimizer, model_state_dict=model_state, optim_state_dict=state)
    return take_steps(called, optimizer, inputs, STEPS - SAVED)


def take_steps(module: Any, optimizer: Any, inputs: Any, count: int) -> list[float]:
    """Return the losses of some steps of training."""
    losses = []
    for _ in range(count):
        optimizer.zero_grad()
        loss = module(*inputs)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def run_rank(rank: int, ranks: str, folder: str) -> list[dict[str, Any] | str]:
    with join_gloo(folder, rank, int(ranks)):
        return list(_train_all(rank, folder))


def _train_all(rank: int, folder: str) -> Iterator[dict[str, Any] | str]:
    for number, asked in enumerate(pickle.loads(Path(folder, "trainings.pickle").read_bytes())):
        found: dict[str, Any] | str
        try:
            found = asdict(train(asked, Path(folder, f"checkpoint.{number}")))
        except (ValueError, RuntimeError) as error:
            found = f"{type(error).__name__}: {error}"
        if rank == 0:
            sys.stderr.write(f"{asked} {found}\n")
        yield found
