"""`python -m planner.usecases.validate_gpu`: plan files are run and checked, and the result is written (with numpy)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from planner import pipeline
from planner.documents.json_writer import write_json
from planner.documents.plans import dump_plan
from planner.ir.mesh import Mesh
from planner.usecases import validate_gpu
from tests.testing.graphs import small_transformer
from tests.testing.hardware import EAGER


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    mesh = Mesh.parse("2x2")
    path = tmp_path / "plan.json.gz"
    write_json(path, dump_plan(pipeline.plan(small_transformer(mesh), mesh, EAGER)))
    return path


def test_a_plan_file_is_run_and_its_result_written(plan: Path, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    assert validate_gpu.main([str(plan), "--backend", "numpy", "-o", str(result)]) == 0
    written = json.loads(result.read_text())
    (row,) = written["plans"]
    assert (written["device"], row["plan"]) == ("numpy", "plan.json.gz")
    assert row["verdict"]["verdict"] == "equal"
    assert row["op_seconds"].keys() >= {"linear", "add"}
    assert row["pool_peak_bytes"] == [], "numpy has no pools"


@pytest.mark.gpu
def test_a_plan_file_is_run_on_the_gpu_if_there_is_one(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert validate_gpu.main([str(plan)]) == 0
    written = json.loads(capsys.readouterr().out)
    (row,) = written["plans"]
    assert written["device"] != "numpy"
    assert row["verdict"]["verdict"] == "equal"
    assert row["pool_peak_bytes"] == row["predicted_pool_peak_bytes"] != []


def test_a_missing_gpu_is_reported_before_anything_runs(plan: Path, tmp_path: Path) -> None:
    """On a machine with a GPU too: it is hidden."""
    result = tmp_path / "result.json"
    arguments = [sys.executable, "-m", "planner.usecases.validate_gpu", str(plan), "-o", str(result)]
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    ended = subprocess.run(arguments, capture_output=True, text=True, check=False, env=hidden)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert re.match(r"planner\.usecases\.validate_gpu: (cupy cannot be used|no GPU)", ended.stderr)
    assert not result.exists()


def test_a_result_file_that_cannot_be_written_is_reported_before_anything_runs(
    plan: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert validate_gpu.main([str(plan), "--backend", "numpy", "-o", str(tmp_path / "no" / "such")]) == 1
    assert "planner.usecases.validate_gpu: " in (said := capsys.readouterr().err)
    assert "no such folder" in said


ABSENT = (
    "ortools",
    "numba",
    "scipy",
    "typer",
    "rich",
    "fastapi",
    "sqlalchemy",
    "torch",
    "jax",
    "onnx",
    "mpi4py",
    "api",
)
"""What a machine that only runs plans does without."""


def test_a_plan_file_is_run_without_solver_service_and_command_line(plan: Path, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    run_main = "from planner.usecases.validate_gpu import main; sys.exit(main())"
    command = f"import sys; sys.modules |= dict.fromkeys({ABSENT!r}); {run_main}"
    arguments = [sys.executable, "-c", command, str(plan), "--backend", "numpy", "-o", str(result)]
    ended = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert json.loads(result.read_text())["plans"][0]["verdict"]["verdict"] == "equal"
