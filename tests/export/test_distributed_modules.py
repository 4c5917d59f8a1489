"""One call distributes a module as planned: its tensors become DTensors, and it computes what it computed before."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate

from planner.errors import InvalidMesh, InvalidRequest
from tests.testing.gloo_modules import planned_tagger, run_over_gloo, tagger
from tests.testing.torch_devices import eight_local_devices

pytestmark = pytest.mark.frameworks("torch")

NEAR = 1e-5
OTHERS = {"another shape": (4, 2), "fewer dims": (8,)}


def test_a_distributed_module_computes_the_same_with_one_process_per_device(tmp_path: Path) -> None:
    """Four processes, over gloo; only the first has the right values before."""
    answers = run_over_gloo(tmp_path, "dp=2,tp=2")
    assert len(answers) == 4
    for error, share in answers:
        assert error < NEAR
        assert share < 1


def test_parameters_buffers_inputs_and_optimizer_state_are_listed_apart() -> None:
    planned = planned_tagger("dp=2,tp=2")
    assert set(planned.parameters) == {
        "words.weight",
        *(f"{x}.{y}" for x in ("up", "down") for y in ("weight", "bias")),
    }
    assert set(planned.buffers) == {"positions"}
    assert set(planned.inputs) == {"ids"}
    assert not planned.optimizer_state


def test_tied_parameters_stay_tied_and_what_is_not_planned_is_replicated() -> None:
    planned = planned_tagger("dp=2,tp=4")
    module, _ = tagger(0)
    module.unused, module.up.bias.requires_grad = torch.nn.Linear(2, 2), False
    with eight_local_devices((2, 4)) as devices:
        planned.apply(module, devices)
        assert module.head.weight is module.words.weight
        assert module.unused.weight.placements == (Replicate(), Replicate())
        assert {n: p.placements for n, p in module.named_parameters() if n in planned.parameters} == planned.parameters
        assert module.positions.placements == planned.buffers["positions"]
        assert [n for n, p in module.named_parameters() if not p.requires_grad] == ["up.bias"]


def test_a_module_on_the_meta_device_is_distributed_before_it_has_storage() -> None:
    planned = planned_tagger("dp=2,tp=4")
    with torch.device("meta"):
        module, _ = tagger(0)
    with eight_local_devices((2, 4)) as devices:
        planned.apply(module, devices)
        assert all(isinstance(each, DTensor) and each.is_meta for each in module.parameters())
        module.to_empty(device="cpu")
        assert {n: p.placements for n, p in module.named_parameters()} == planned.parameters
        assert all(isinstance(each, DTensor) and not each.is_meta for each in module.parameters())


@pytest.mark.parametrize("shape", OTHERS.values(), ids=OTHERS)
def test_another_mesh_is_refused(shape: tuple[int, ...]) -> None:
    planned = planned_tagger("dp=2,tp=4")
    with eight_local_devices(shape) as devices, pytest.raises(InvalidMesh, match="that of the plan"):
        planned.apply(tagger(0)[0], devices)


def test_a_mesh_whose_ranks_torch_would_sort_is_refused_and_one_of_transposed_ranks_is_not() -> None:
    planned = planned_tagger("dp=2,tp=4")
    with eight_local_devices((2, 4)):
        with pytest.raises(InvalidMesh, match="ranks that ascend along every dim"):
            planned.apply(tagger(0)[0], DeviceMesh("cpu", torch.arange(8).flip(0).reshape(2, 4)))
        module, _ = tagger(0)
        planned.apply(module, DeviceMesh("cpu", torch.arange(8).reshape(4, 2).T))
        assert torch.equal(module.up.weight.full_tensor(), tagger(0)[0].up.weight)


def test_another_module_and_a_second_time_are_refused() -> None:
    planned = planned_tagger("dp=2,tp=4")
    module, _ = tagger(0)
    with eight_local_devices((2, 4)) as devices:
        with pytest.raises(InvalidRequest, match="wanted the planned module"):
            planned.apply(torch.nn.Linear(2, 2), devices)
        planned.apply(module, devices)
        with pytest.raises(InvalidRequest, match="not distributed yet"):
            planned.apply(module, devices)
