"""Commands and Python of a documentation page run, in its order, and print what the page shows.

Blocks marked `sh` and `python` are run; `bash` and `py` blocks are only for the reader.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from api.cli.plan import INFEASIBLE
from tests.testing.command_line import shardplan
from tests.testing.shown_output import assert_shown, read_examples

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
NEEDS = {
    "tutorials/torch.md": pytest.mark.frameworks("torch", "transformers"),
    "tutorials/torch-training.md": pytest.mark.frameworks("torch"),
    "tutorials/jax.md": pytest.mark.frameworks("jax"),
    "tutorials/onnx.md": pytest.mark.frameworks("onnx"),
    "tutorials/service.md": pytest.mark.service,
}
QUICK = {"quickstart.md", "tutorials/torch.md", "tutorials/jax.md", "tutorials/capacity.md", "tutorials/onnx.md"}
ELSEWHERE = {"tutorials/ci.md": "tests/deploy/test_ci.py", "mesh-dialect.md": "tests/conformance/test_dialect_page.py"}
"""Pages with commands that end with codes of their own."""


def pages() -> Iterator[object]:
    """Every page that has something to run, the slow ones marked."""
    for path in sorted(DOCS.rglob("*.md")):
        page = str(path.relative_to(DOCS))
        if page not in ELSEWHERE and read_examples(path.read_text()):
            marks = [NEEDS[page]] if page in NEEDS else []
            yield pytest.param(page, marks=marks if page in QUICK else [*marks, pytest.mark.slow])


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


@pytest.mark.parametrize("page", list(pages()))
def test_the_commands_and_python_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = read_examples((DOCS / page).read_text())
    assert any(example.shown for example in examples) or not page.startswith("tutorials/")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with running() as children:
        for example in examples:
            is_python = example.language == "python"
            printed = _run_python(example.code) if is_python else _run_commands(example.code, children)
            if example.shown:
                assert_shown(example.shown, printed)


@contextmanager
def running() -> Iterator[list[subprocess.Popen[bytes]]]:
    """What a page starts with `&`, ended when the page ends."""
    children: list[subprocess.Popen[bytes]] = []
    try:
        yield children
    finally:
        for each in children:
            each.terminate()
            each.wait(60)


def _run_python(code: str) -> str:
    """What it prints, in a process of its own: a page may set what a framework reads once, when it is imported."""
    done = subprocess.run([sys.executable, "-c", code], env=_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, (code, done.stderr)
    return done.stdout


def _run_commands(block: str, children: list[subprocess.Popen[bytes]]) -> str:
    """What they print; our own command runs in this process, unless it is to run on."""
    printed = ""
    for line in block.splitlines():
        program, *words = shlex.split(line, comments=True) or [""]
        if words[-1:] == ["&"]:
            children.append(subprocess.Popen([sys.executable, "-m", "api", *words[:-1]], env=_environment()))
        elif program == "shardplan":
            answer = shardplan(*words)
            expected = INFEASIBLE if "\ninfeasible: " in answer.out else 0
            assert answer.code == expected, (line, answer.err)
            printed += answer.out
        elif program == "torchrun":
            command = [sys.executable, "-m", "torch.distributed.run", *words]
            printed += subprocess.run(command, env=_environment(), check=True, capture_output=True, text=True).stdout
        elif program:
            printed += subprocess.run([program, *words], check=True, capture_output=True, text=True).stdout
    return printed


def test_the_tutorial_of_training_shows_the_file_that_it_runs() -> None:
    assert (ROOT / "examples" / "train_torch.py").read_text() in (DOCS / "tutorials" / "torch-training.md").read_text()


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize("shown", SHOWN)
def test_a_page_may_omit_lines_that_it_marks(shown: str) -> None:
    assert_shown(shown, PRINTED)


@pytest.mark.parametrize("shown", NOT_SHOWN)
def test_a_page_that_shows_other_output_fails(shown: str) -> None:
    with pytest.raises(AssertionError, match="the page shows"):
        assert_shown(shown, PRINTED)
