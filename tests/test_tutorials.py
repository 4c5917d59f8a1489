"""The tutorials cannot lie: their commands and Python run, in the order of the page, and print what it shows."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.testing.shown_output import assert_shown, read_examples

ROOT = Path(__file__).parents[1]
# Page, and the package it needs.
PAGES = [("torch", "transformers"), ("jax", "jax"), ("capacity", "numpy")]
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


@pytest.mark.parametrize(("page", "package"), PAGES)
def test_what_a_tutorial_says_runs(page: str, package: str, tmp_path: Path) -> None:
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    text = (ROOT / "docs" / "tutorials" / f"{page}.md").read_text()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    examples = read_examples(text)
    assert any(example.shown for example in examples)
    for example in examples:
        printed = ""
        for line in [example.code] if example.language == "python" else example.code.splitlines():
            words = [sys.executable, "-c", line] if example.language == "python" else shlex.split(line)
            if words[0] == "shardplan":
                words = [sys.executable, "-m", "api", *words[1:]]
            done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, (line, done.stderr)
            printed += done.stdout
        if example.shown:
            assert_shown(example.shown, printed)


@pytest.mark.parametrize("shown", SHOWN)
def test_a_page_may_leave_lines_out_where_it_says_so(shown: str) -> None:
    assert_shown(shown, PRINTED)


@pytest.mark.parametrize("shown", NOT_SHOWN)
def test_a_page_that_shows_what_is_not_printed_is_seen(shown: str) -> None:
    with pytest.raises(AssertionError, match="the page shows"):
        assert_shown(shown, PRINTED)
