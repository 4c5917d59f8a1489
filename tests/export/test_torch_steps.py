"""A module trains by its plan's program with one process per device as it trains unsharded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

import planner.torch
from planner import Request
from planner.errors import InvalidMesh
from planner.export.torch_program.steps import write_step
from planner.ir.program import OpCall
from tests.testing.gloo_modules import run_module
from tests.testing.torch_steps import Trained, Training, train_over_gloo

pytestmark = pytest.mark.frameworks("torch")

NEAR = 1e-6
MESH = "dp=2,tp=2"
MICRO = Request(deterministic=True, gap=0.05, microbatches=3)


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
    tight = Training("gpt2", MESH, Request(225_000, recompute="auto", gap=0.05, time_limit_s=60), "adamw")
    *_, recomputed = _train(tmp_path, [zero, fsdp, tight])
    assert recomputed.recomputed > 0


def test_micro_batches_train_as_the_unsharded_module_with_gradients_added_up(tmp_path: Path) -> None:
    """Parameters that are gathered once in a step, and gradients that are reduced after the last micro-batch."""
    _train(tmp_path, [Training("gnn", MESH, replace(MICRO, layout="zero1"))])


@pytest.mark.slow
def test_micro_batches_train_under_every_plan_and_compiled(tmp_path: Path) -> None:
    tight = replace(MICRO, memory_limit_bytes=225_000, recompute="auto", time_limit_s=60, deterministic=False)
    requests = [replace(MICRO, layout="fsdp"), tight]
    trainings = [Training("gpt2", MESH, request, "adamw") for request in requests]
    compiled = Training("gnn", MESH, replace(MICRO, layout="zero1"), is_compiled=True)
    *_, recomputed, _ = _train(tmp_path, [*trainings, compiled])
    assert recomputed.recomputed > 0


@pytest.mark.slow
def test_torch_compile_makes_one_graph_that_trains_the_same(tmp_path: Path) -> None:
    """With batch normalisation's buffers, and exchanges of uneven blocks."""
    request = Request(layout="fsdp", deterministic=True, gap=0.05)
    _train(tmp_path, [Training("resnet", MESH, request, is_compiled=True)])


class Stack(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(512, 512, bias=False) for _ in range(6)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).square().mean()


def test_forward_ends_with_a_loss_that_is_moved_late_and_plain_sgd_has_gradients() -> None:
    """The fake process group moves nothing; a name that forward lacks would be an error."""
    request = Request(layout="fsdp", gap=0.05, deterministic=True)
    planned = planner.torch.plan(Stack(), (torch.zeros(64, 512),), "dp=4", train="sgd", master="none", request=request)
    assert planned.plan.analysis is not None
    program = planned.plan.analysis.program
    parameters = [entry.id for entry in program.graph.inputs if entry.kind == "parameter"]
    step = write_step(program, program.graph.outputs[:1], parameters)
    assert step.gradients.keys() == set(parameters)
    phases = [done.op.phase if isinstance(done, OpCall) else "" for done in program.instructions]
    made = [done.results for done in program.instructions]
    assert phases.index("backward") < made.index((program.outputs[0],)), "the loss is moved late"
    dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    try:
        module: dict[str, Any] = {}
        exec(compile(step.text, "<plan>", "exec"), module)
        local = [
            torch.zeros(tuple(stop - start for start, stop in held[0][2])) for held in module["ARGUMENTS"].values()
        ]
        loss, *_ = map(module["waited"], module["forward"](*local))
    finally:
        dist.destroy_process_group()
    assert loss.shape == ()


@pytest.mark.slow
def test_a_forward_pass_is_planned_alone_and_a_process_that_ended_is_an_error_that_names_the_op(tmp_path: Path) -> None:
    (error, message), (other, _) = run_module("tests.testing.torch_dead_rank", tmp_path, "dp=2")
    assert max(error, other) < NEAR
    assert "# 'linear': the forward program failed on rank 0 (got " in message


def test_processes_other_than_the_devices_are_refused() -> None:
    with pytest.raises(InvalidMesh, match="no process group"):
        planner.torch.parallelize(torch.nn.Linear(2, 2), (torch.zeros(2, 2),), "2")
