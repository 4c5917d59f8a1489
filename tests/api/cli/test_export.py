"""`export` in every format, and `validate` with one process per device."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from planner.export.formats import FORMATS
from tests.testing.command_line import refused, shardplan
from tests.testing.export_formats import WORDS
from tests.testing.small_documents import changed, written
from tests.testing.transformer import transformer


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plans")
    graph = written(folder / "graph.json", transformer(1, d=64, ff=128, heads=4, batch=8, seq=16))
    assert shardplan("plan", graph, "--mesh", "2x2", "-o", folder / "plan.json").code == 0
    return folder / "plan.json"


@pytest.mark.parametrize(("name", "words"), WORDS)
def test_a_plan_is_exported_to_a_file_or_printed(name: str, words: str, plan: Path, tmp_path: Path) -> None:
    extra = FORMATS[name].extra
    if extra is not None and find_spec(extra) is None:
        refused(shardplan("export", plan, "--format", name), f"shardplan[{extra}]")
        return
    text = shardplan("export", plan, "--format", name).out
    assert words in text
    assert shardplan("export", plan, "--format", name, "-o", tmp_path / "made").out == ""
    assert (tmp_path / "made").read_text() == text


def test_every_format_is_among_the_cases() -> None:
    assert [name for name, _ in WORDS] == list(FORMATS)


def test_a_program_that_cannot_be_exported_is_refused(plan: Path, tmp_path: Path) -> None:
    refused(shardplan("export", plan, "--format", "gspmd"), "format (got gspmd; wanted one of mesh, shard, sdy")
    refused(shardplan("export", plan, "--format", "mesh", "-o", tmp_path / "no" / "such"), "no such folder")


# what of a plan was changed, into what; what is said
TAMPERED = [
    ("version", 3, "version: value does not fit (got 3; wanted 2)"),
    ("mesh.axes.0.size", 4, "id: digest mismatch: mesh, hardware, request or versions are not those"),
    ("request.gap", 0.5, "id: digest mismatch"),
    ("hardware.memory_bytes", 1, "id: digest mismatch"),
    ("id", "0" * 64, "id: digest mismatch"),
    ("graph.document.name", "another", "graph: digest mismatch: the graph is not the one that was planned"),
]


@pytest.mark.parametrize(("path", "value", "words"), TAMPERED)
def test_a_tampered_plan_is_neither_run_nor_exported(path: str, value: object, words: str, plan: Path) -> None:
    file = written(plan.parent / "tampered.json", changed(json.loads(plan.read_text()), path, value))
    refused(shardplan("validate", file), words)
    refused(shardplan("export", file, "--format", "mesh"), words)


@pytest.mark.skipif(find_spec("mpi4py") is None, reason="mpi4py is not installed (extra mpi)")
def test_a_plan_is_validated_with_one_process_per_device(plan: Path) -> None:
    found = shardplan("validate", plan, "--backend", "mpi", "--json").json
    assert (found["verdict"], found["backend"], found["devices"]) == ("equal", "mpi", 4)
    assert found["counted_bytes"] == found["predicted_bytes"]
    assert found["difference"] is None


def test_a_missing_mpi_is_reported(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.run.mpi.find_spec", lambda package: None)
    refused(shardplan("validate", plan, "--backend", "mpi"), "MPI cannot be used")
