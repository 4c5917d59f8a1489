"""The README cannot lie: its figures are the committed result's, its commands and Python run."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.record import shown

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
FRAMEWORKS = ("torch", "jax", "stablehlo", "onnx")
COMMANDS = [
    shlex.split(line, comments=True)
    for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
    if line.startswith("shardplan")
]


@pytest.mark.parametrize("name", re.findall(r"<!-- (\w+) -->", README))
def test_every_table_is_the_committed_result(name: str) -> None:
    result = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())
    assert f"<!-- {name} -->\n{shown(result, import_module(f'benchmarks.{name}').table(result))}" in README


def test_every_command_runs_in_the_order_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for command in COMMANDS:
        if command[1] == "import" and command[2] in FRAMEWORKS:
            continue  # run by tests/frontends where the framework is installed
        done = subprocess.run(
            [sys.executable, "-m", "api", *command[1:]],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (command, done.stderr)


def test_the_python_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "verdict='equal'" in done.stdout


@pytest.mark.parametrize("target", re.findall(r"`(?:planner|solvers|tests|benchmarks)/[\w/.*]+`", README))
def test_every_path_named_exists(target: str) -> None:
    assert list(ROOT.glob(target.strip("`"))), target
