"""The tutorials cannot lie: their commands and Python run, in the order of the page."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Page, and the package it needs.
PAGES = [("torch", "transformers"), ("jax", "jax"), ("capacity", "numpy")]


@pytest.mark.parametrize(("page", "package"), PAGES)
def test_what_a_tutorial_says_runs(page: str, package: str, tmp_path: Path) -> None:
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    text = (ROOT / "docs" / "tutorials" / f"{page}.md").read_text()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    found = re.findall(r"```(sh|python)\n(.*?)```", text, re.DOTALL)
    assert found
    for language, block in found:
        listed = [block] if language == "python" else block.splitlines()
        for line in listed:
            words = [sys.executable, "-c", line] if language == "python" else shlex.split(line)
            if words[0] == "shardplan":
                words = [sys.executable, "-m", "api", *words[1:]]
            done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, (line, done.stderr)
