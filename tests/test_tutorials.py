"""The tutorials cannot lie: their commands and Python run, in the order of the page, and print what it shows."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testing.command_line import shardplan
from tests.testing.shown_output import assert_shown, read_examples

ROOT = Path(__file__).parents[1]
TORCH, JAX = pytest.mark.frameworks("torch", "transformers"), pytest.mark.frameworks("jax")
PAGES = [pytest.param("torch", marks=TORCH), pytest.param("jax", marks=JAX), "capacity"]
PRINTED = "one  \n\ntwo 1e-06\nthree 9f6de597efd4\nfour\n"
# What a page may show of what is printed, and what it may not.
SHOWN = ["one\ntwo 1e-06\nthree aa53a5393df5\nfour\n", "...\ntwo 1e-06\n...\n", "one\n...\nfour\n"]
NOT_SHOWN = [
    "two 1e-06\n...\n",
    "...\ntwo 1e-07\n...\n",
    "one\n...\nthree\n",
    "...\nfour\n...\none\n...\n",
    "one\nfour\n",
]


@pytest.mark.parametrize("page", PAGES)
def test_what_a_tutorial_says_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = read_examples((ROOT / "docs" / "tutorials" / f"{page}.md").read_text())
    assert any(example.shown for example in examples)
    monkeypatch.chdir(tmp_path)
    for example in examples:
        run = _run_python if example.language == "python" else _run_commands
        printed = run(example.code)
        if example.shown:
            assert_shown(example.shown, printed)


def _run_python(block: str) -> str:
    """What it prints in a process of its own: a page may set what a framework reads once, when it is imported."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", block], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (block, done.stderr)
    return done.stdout


def _run_commands(block: str) -> str:
    """What shardplan prints."""
    printed = ""
    for line in block.splitlines():
        program, *words = shlex.split(line)
        if program == "shardplan":
            answer = shardplan(*words)
            assert answer.code == 0, (line, answer.err)
            printed += answer.out
        else:
            subprocess.run([program, *words], check=True)
    return printed


@pytest.mark.parametrize("shown", SHOWN)
def test_a_page_may_leave_lines_out_where_it_says_so(shown: str) -> None:
    assert_shown(shown, PRINTED)


@pytest.mark.parametrize("shown", NOT_SHOWN)
def test_a_page_that_shows_what_is_not_printed_is_seen(shown: str) -> None:
    with pytest.raises(AssertionError, match="the page shows"):
        assert_shown(shown, PRINTED)
