"""The tutorials cannot lie: their commands and Python run, in the order of the page."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testing.command_line import shardplan

ROOT = Path(__file__).parents[1]
TORCH, JAX = pytest.mark.frameworks("torch", "transformers"), pytest.mark.frameworks("jax")
PAGES = [pytest.param("torch", marks=TORCH), pytest.param("jax", marks=JAX), "capacity"]


@pytest.mark.parametrize("page", PAGES)
def test_what_a_tutorial_says_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs" / "tutorials" / f"{page}.md").read_text()
    found = re.findall(r"```(sh|python)\n(.*?)```", text, re.DOTALL)
    assert found
    monkeypatch.chdir(tmp_path)
    for language, block in found:
        if language == "python":
            _run_python(block)
        else:
            _run_commands(block)


def _run_python(block: str) -> None:
    """In a process of its own: a page may set what a framework reads once, when it is imported."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", block], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (block, done.stderr)


def _run_commands(block: str) -> None:
    for line in block.splitlines():
        program, *words = shlex.split(line)
        if program == "shardplan":
            answer = shardplan(*words)
            assert answer.code == 0, (line, answer.err)
        else:
            subprocess.run([program, *words], check=True)
