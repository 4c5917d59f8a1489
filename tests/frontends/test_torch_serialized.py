"""Programs that torch.export.save wrote, and the placements of a module in one call."""

from __future__ import annotations

import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from planner.errors import InvalidGraph
from planner.frontends.torch import build_graph_document, import_torch
from tests.testing.torch_modules import Linked

torch = pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")
one_line = import_module("planner.torch")

pytestmark = pytest.mark.frameworks("torch")

FOREIGN = [("no.pt2", b"PK\x03\x04 cut off"), ("no.json", b"{}"), ("no.json", b"[1, 2"), ("no.json", b"")]


def saved(path: Path, module: Any) -> Any:
    program = torch.export.export(module, (torch.zeros(2, 4),), strict=False)
    torch.export.save(program, path)
    return program


def test_a_saved_program_is_what_was_exported_with_its_tied_weights(tmp_path: Path) -> None:
    program = saved(tmp_path / "linked.pt2", Linked())
    assert import_torch(str(tmp_path / "linked.pt2")) == build_graph_document(program, "linked")


def test_a_program_saved_in_training_mode_keeps_its_writes(tmp_path: Path) -> None:
    norm = torch.nn.BatchNorm1d(4)
    norm.register_buffer("unsaved", torch.ones(4), persistent=False)
    norm.register_forward_pre_hook(lambda module, given: (given[0] * module.unsaved,))
    program = saved(tmp_path / "norm.pt2", torch.nn.Sequential(norm, torch.nn.Dropout(0.5)))
    document = import_torch(str(tmp_path / "norm.pt2"))
    assert document == build_graph_document(program, "norm")
    assert sum("next" in entry for entry in document["inputs"]) == 3


def test_the_json_of_a_saved_program_suffices(tmp_path: Path) -> None:
    program = saved(tmp_path / "linear.pt2", torch.nn.Linear(4, 4))
    with zipfile.ZipFile(tmp_path / "linear.pt2") as archive:
        (name,) = (each for each in archive.namelist() if each.endswith("models/model.json"))
        (tmp_path / "linear.json").write_bytes(archive.read(name))
    assert import_torch(str(tmp_path / "linear.json")) == build_graph_document(program, "linear")


@pytest.mark.parametrize(("name", "content"), FOREIGN)
def test_a_foreign_or_cut_file_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidGraph, match=r"not an exported program .*wanted a file of torch\.export\.save"):
        import_torch(str(tmp_path / name))


def test_a_module_is_planned_in_one_line() -> None:
    with torch.device("meta"):
        planned = one_line.plan(torch.nn.Linear(64, 64), (torch.zeros(4096, 64),), "dp=2,tp=4")
    assert set(planned.parameters) == {"weight", "bias"}
    assert {len(each) for each in (*planned.parameters.values(), *planned.inputs.values(), *planned.results)} == {2}
