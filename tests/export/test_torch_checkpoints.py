"""`migrate --checkpoint` writes a checkpoint anew in another plan's shards, bit for bit, or says what is wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.state_dict import get_state_dict

import planner.torch
from planner import Request
from planner.documents.plans import dump_plan, read_plan
from planner.documents.programs import load_program
from planner.errors import ShardplanError
from planner.export.torch_program.checkpoints import convert_checkpoint
from planner.judge.standard_layouts import LayoutName
from tests.testing.command_line import refused, shardplan

pytestmark = [pytest.mark.frameworks("torch"), pytest.mark.filterwarnings("ignore:.*uneven parts are others")]
PLANS: dict[str, tuple[str, LayoutName]] = {"old": ("dp=2", "zero1"), "new": ("dp=2,tp=2", "fsdp")}


class Stack(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Two layers with batch normalisation between them; 5 elements, which no axis divides."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, width), torch.nn.BatchNorm1d(width))
        self.last = torch.nn.Linear(width, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.layers(x)).square().mean()


def _state(width: int = 8) -> dict[str, Any]:
    """Return the state of a module and of its optimizer after a step."""
    torch.manual_seed(0)
    module = Stack(width)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, amsgrad=True)
    module(torch.randn(4, 8)).backward()
    optimizer.step()
    model, state = get_state_dict(module, optimizer)
    return {"model": model, "optimizer": state, "epoch": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two plans of the module, and a checkpoint of it."""
    found = tmp_path_factory.mktemp("checkpoints")
    for name, (mesh, layout) in PLANS.items():
        request = Request(layout=layout, deterministic=True, gap=0.05)
        planned = planner.torch.plan(Stack(), (torch.zeros(4, 8),), mesh, train="adamw", master="none", request=request)
        (found / f"{name}.json").write_text(json.dumps(dump_plan(planned.plan)))
    dcp.save(_state(), checkpoint_id=found / "checkpoint", no_dist=True)
    return found


def _load(path: Path) -> dict[str, Any]:
    zeros: dict[str, Any] = torch.utils._pytree.tree_map(
        lambda each: torch.zeros_like(each) if torch.is_tensor(each) else 0, _state()
    )
    dcp.load(zeros, checkpoint_id=path, no_dist=True)
    return zeros


def test_a_converted_checkpoint_has_the_same_bits_in_the_new_plans_shards(folder: Path, tmp_path: Path) -> None:
    plans = [folder / f"{name}.json" for name in PLANS]
    target = tmp_path / "converted"
    said = shardplan(
        "migrate", *plans, "--no-verify", "--checkpoint", folder / "checkpoint", "--output", target, "--json"
    ).json["checkpoint"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["converted"]
    found, wanted = torch.utils._pytree.tree_leaves(_load(target)), torch.utils._pytree.tree_leaves(_state())
    for got, want in zip(found, wanted, strict=True):
        assert torch.equal(got, want) if torch.is_tensor(want) else got == want
    assert said["max_device_bytes"] < said["total_bytes"] / 2
    entries = FileSystemReader(target).read_metadata()
    program = load_program(read_plan(folder / "new.json"))
    weight = entries.state_dict_metadata["model.layers.0.weight"]
    average = entries.state_dict_metadata["optimizer.state.layers.0.weight.exp_avg"]
    most = entries.state_dict_metadata["optimizer.state.layers.0.weight.max_exp_avg_sq"]
    assert len(weight.chunks) == len(most.chunks) == program.mesh.devices
    assert {tuple(each.offsets) for each in weight.chunks} == {tuple(each.offsets) for each in average.chunks}
    assert {each.relative_path for each in entries.storage_data.values()} == {f"__{n}_0.distcp" for n in range(4)}
    # And back: the pieces of shards are joined.
    back = tmp_path / "back"
    convert_checkpoint(target, back, load_program(read_plan(folder / "old.json")))
    for got, want in zip(torch.utils._pytree.tree_leaves(_load(back)), wanted, strict=True):
        assert torch.equal(got, want) if torch.is_tensor(want) else got == want


def _rename(state: dict[str, Any]) -> None:
    state["model"]["last.gain"] = state["model"].pop("last.bias")


def _drop(state: dict[str, Any]) -> None:
    del state["model"]["last.bias"]


def _narrow(state: dict[str, Any]) -> None:
    state["model"]["last.bias"] = state["model"]["last.bias"].half()


FAULTS = [
    (_rename, "checkpoint of another model (got model.last.gain;"),
    (_drop, "checkpoint without a parameter (got nothing; wanted last.bias)"),
    (_narrow, "checkpoint of another model (got (torch.float16, (5,)); wanted (torch.float32, (5,)))"),
]


@pytest.mark.parametrize(("change", "message"), FAULTS)
def test_a_checkpoint_of_another_model_is_refused(
    change: Callable[[dict[str, Any]], None], message: str, folder: Path, tmp_path: Path
) -> None:
    state = _state()
    change(state)
    dcp.save(state, checkpoint_id=tmp_path / "other", no_dist=True)
    with pytest.raises(ShardplanError) as error:
        convert_checkpoint(tmp_path / "other", tmp_path / "converted", load_program(read_plan(folder / "new.json")))
    assert message in str(error.value)
    assert [each.name for each in tmp_path.iterdir()] == ["other"]


def test_nothing_is_written_where_the_checkpoint_is_damaged_the_target_exists_or_the_disk_is_full(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = [folder / f"{name}.json" for name in PLANS]
    migrate = ["migrate", *plans, "--no-verify", "--checkpoint"]
    damaged, target = tmp_path / "damaged", tmp_path / "converted"
    refused(shardplan(*migrate, damaged, "--output", target), "checkpoint (got no file .metadata;")
    damaged.mkdir()
    for path in (folder / "checkpoint").iterdir():
        (damaged / path.name).write_bytes(path.read_bytes()[: None if path.name == ".metadata" else 64])
    refused(shardplan(*migrate, damaged, "--output", target), "checkpoint (got EOFError in ")
    (damaged / "__0_0.distcp").unlink()
    refused(shardplan(*migrate, damaged, "--output", target), "checkpoint (got no file __0_0.distcp")
    (damaged / ".metadata").write_bytes(b"no pickle")
    refused(shardplan(*migrate, damaged, "--output", target), "checkpoint (got UnpicklingError")
    refused(shardplan(*migrate, folder / "checkpoint"), "wanted both --checkpoint and --output")
    refused(shardplan(*migrate, folder / "checkpoint", "--output", damaged), "(got it exists; wanted a new folder)")
    refused(
        shardplan(*migrate, folder / "checkpoint", "--output", tmp_path / "no" / "where"),
        "(got no folder; wanted a folder)",
    )
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 100}))
    refused(shardplan(*migrate, folder / "checkpoint", "--output", target), "not enough disk space (got 100 B;")
    assert [each.name for each in tmp_path.iterdir()] == ["damaged"]
