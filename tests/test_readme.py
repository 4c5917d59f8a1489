"""The README cannot lie: its figures are the committed result's, its commands and Python run."""

from __future__ import annotations

import json
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.record import shown
from tests.testing.command_line import shardplan

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


def test_every_command_runs_in_the_order_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    for _, *words in COMMANDS:
        if words[0] == "import" and words[1] in FRAMEWORKS:
            continue  # run by tests/frontends where the framework is installed
        answer = shardplan(*words)
        assert answer.code == 0, (words, answer.err)


def test_the_python_runs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    monkeypatch.chdir(ROOT)
    exec(code, {"__name__": "__main__"})
    assert "verdict='equal'" in capsys.readouterr().out


@pytest.mark.parametrize("target", re.findall(r"`(?:planner|solvers|tests|benchmarks)/[\w/.*]+`", README))
def test_every_path_named_exists(target: str) -> None:
    assert list(ROOT.glob(target.strip("`"))), target
