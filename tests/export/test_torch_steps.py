"""A module trains by its plan's program with one process per device as it trains unsharded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")

import torch

import planner.torch
from planner import Request
from planner.errors import InvalidMesh
from tests.testing.torch_steps import Trained, Training, train_over_gloo

pytestmark = pytest.mark.frameworks("torch")

NEAR = 1e-6
MESH = "dp=2,tp=2"


def _train(folder: Path, trainings: list[Training]) -> list[Trained]:
    """Return what the processes have seen, checked: losses of the unsharded module, bit for bit after a checkpoint."""
    answers = train_over_gloo(folder, trainings)
    for asked, ranks in zip(trainings, answers, strict=True):
        assert len(ranks) == 4
        for rank in ranks:
            assert isinstance(rank, Trained), rank
            assert rank.losses == pytest.approx(rank.unsharded, rel=NEAR)
            assert rank.losses[-1] < rank.losses[0]
            # Adam follows the sign of gradients that are rounding errors alone.
            assert rank.worst < 10 * NEAR or asked.optimizer == "adamw"
            assert rank.is_resumed
            assert rank.unwaited == 0
            assert rank.share < 1
    return [ranks[0] for ranks in answers if isinstance(ranks[0], Trained)]


def test_a_module_trains_resumes_and_holds_its_shards_as_the_unsharded_one(tmp_path: Path) -> None:
    """Four processes; biases of 10 and 4 elements over all axes, whose uneven blocks are those of joined axes."""
    graph = Training("gnn", MESH, Request(layout="fsdp", deterministic=True, gap=0.05))
    _train(tmp_path, [graph])


@pytest.mark.slow
def test_standard_layouts_and_recomputation_train_as_the_unsharded_module(tmp_path: Path) -> None:
    """In ZeRO-1 parameters are held as they are updated, and gathered by forward; images are arguments `*inputs`."""
    request = Request(layout="zero1", deterministic=True, gap=0.05)
    zero, fsdp = Training("unet", MESH, request), Training("resnet", MESH, replace(request, layout="fsdp"), "adamw")
    tight = Training("gpt2", MESH, Request(526_136, recompute="auto", gap=0.05, time_limit_s=60), "adamw")
    *_, recomputed = _train(tmp_path, [zero, fsdp, tight])
    assert recomputed.recomputed > 0


def test_processes_other_than_the_devices_are_refused() -> None:
    with pytest.raises(InvalidMesh, match="no process group"):
        planner.torch.parallelize(torch.nn.Linear(2, 2), (torch.zeros(2, 2),), "2")
