"""Five training steps under JAX and DTensor from our exports have the losses of the unsharded steps.

One small step runs here; all families are in `benchmarks.training_parity`.
"""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")

from benchmarks.gloo_steps import over_gloo
from benchmarks.jax_steps import under_jax
from benchmarks.torch_steps import under_dtensor
from benchmarks.training_parity import STEPS, beginning, largest_error, shard_map_job, step, whole
from planner.ir.program import Program

pytestmark = pytest.mark.frameworks("torch")

NEAR = 1e-4


@pytest.fixture(scope="module")
def program() -> Program:
    return step("gpt2", "Megatron tensor parallel", "tp=2", layers=1)


@pytest.mark.frameworks("jax")
def test_jax_trains_as_the_graph_does(program: Program) -> None:
    arrays = beginning(program.graph)
    wanted = whole(program.graph, arrays)
    assert wanted == sorted(wanted, reverse=True), "it learns"
    (losses,) = under_jax([shard_map_job(program, arrays)])
    assert largest_error(losses, wanted) < NEAR


def test_torch_trains_with_one_process_per_device() -> None:
    """Four processes, over gloo."""
    asked = "gpt2", "DPxTP", "2x2", 1
    program = step(*asked)
    wanted = whole(program.graph, beginning(program.graph))
    for found in (devices := over_gloo(*asked)):
        assert largest_error(found, wanted) < NEAR
    assert len(devices) == 4


def test_torch_trains_with_parameters_in_uneven_blocks() -> None:
    program = step("gpt2", "FSDP", "3", layers=1)
    arrays = beginning(program.graph)
    held = [(program.values[name].sharding.split_axes, program.values[name].type.shape) for name in arrays]
    assert any(axes and size % 3 for split, shape in held for axes, size in zip(split, shape, strict=True))
    assert largest_error(under_dtensor(program, arrays, STEPS), whole(program.graph, arrays)) < NEAR


def test_torch_trains_as_the_graph_does(program: Program) -> None:
    arrays = beginning(program.graph)
    assert largest_error(under_dtensor(program, arrays, STEPS), whole(program.graph, arrays)) < NEAR
