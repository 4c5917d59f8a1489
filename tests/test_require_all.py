"""With REQUIRE_ALL=1 no test is skipped silently."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.testing import require_all
from tests.testing.command_line import ROOT

# What a file of tests does, the file, and the reason in the summary.
FILES = {
    "skips": ("def test_it(): pytest.skip('no oven')", "no oven"),
    "is_marked": ("@pytest.mark.skipif(True, reason='no oven')\ndef test_it(): pass", "no oven"),
    "imports": ("def test_it(): pytest.importorskip('no_oven')", "could not import 'no_oven'"),
    "imports_first": ("pytest.importorskip('no_oven')\ndef test_it(): pass", "could not import 'no_oven'"),
    "expects": ("@pytest.mark.xfail\ndef test_it(): assert 0", "expected to fail"),
    "gives_up": ("def test_it(): pytest.xfail('no oven')", "expected to fail"),
}
Completed = subprocess.CompletedProcess[str]
FINE = "def test_it(): print('started')"
# As in tests/conftest.py, but for what must be there.
CONFTEST = """
from tests.testing import require_all
require_all.missing = lambda: {missing}
def pytest_configure(config):
    config.pluginmanager.register(require_all)
"""


def run(folder: Path, files: dict[str, str], *options: str, missing: Sequence[str] = ()) -> Completed:
    """A run of pytest over files, in a folder of its own."""
    (folder / "conftest.py").write_text(CONFTEST.format(missing=list(missing)))
    (folder / "pytest.ini").write_text("[pytest]\n")
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(f"import pytest\n{text}\n")
    words = [sys.executable, "-m", "pytest", "-ra", "-p", "no:cacheprovider", *options, str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", "CI": "1"}
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_test_that_does_not_run_fails_with_its_reason(tmp_path: Path) -> None:
    """In a process of pytest-xdist too, which this run has."""
    texts = {name: text for name, (text, _) in FILES.items()}
    done = run(tmp_path, {**texts, "fine": FINE}, "-n", "1", "--continue-on-collection-errors")
    lines = done.stdout.splitlines()
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    assert "4 failed, 1 passed, 2 errors" in lines[-1]  # a mark is seen before the test, so it is an error
    for name, (_, reason) in FILES.items():
        (line,) = [line for line in lines if line.startswith(("FAILED", "ERROR")) and f"test_{name}.py" in line]
        assert require_all.VARIABLE in line
        assert reason in line


def test_no_test_starts_where_a_requirement_is_missing(tmp_path: Path) -> None:
    done = run(tmp_path, {"fine": FINE}, "-s", missing=("package oven", "program mixer"))
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "package oven, program mixer" in done.stderr
    assert "started" not in done.stdout


def test_missing_requirements_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(require_all, "PACKAGES", ("pytest", "no_oven", "no_oven.door"))
    monkeypatch.setattr(require_all, "PROGRAMS", ("no-mixer",))
    monkeypatch.setenv("PATH", "")
    assert require_all.missing()[:3] == ["package no_oven", "package no_oven.door", "program no-mixer"]
