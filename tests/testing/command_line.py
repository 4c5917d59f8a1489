"""Runs the command line, in this process or in a child process whose time and memory are measured."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from api.cli.errors import run_reporting_errors
from api.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 2.0

# A small launcher between us and the command: a child's peak memory starts at its parent's.
LAUNCH = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[2:]).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
unit = 1 if sys.platform == "darwin" else 1024
print(used.ru_utime + used.ru_stime, used.ru_maxrss * unit, file=open(sys.argv[1], "w"))
sys.exit(code)
"""


@dataclass(frozen=True)
class Answer:
    """A command's exit code and output, its CPU seconds, and a child's peak memory in bytes."""

    code: int
    out: str
    err: str
    cpu_s: float
    peak_bytes: int = 0

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def shardplan(*arguments: object) -> Answer:
    """Run a command in this process."""
    out, err, start = io.StringIO(), io.StringIO(), time.process_time()
    words = ["shardplan", *map(str, arguments)]
    with patch.object(sys, "argv", words), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_reporting_errors(app)
    return Answer(code, out.getvalue(), err.getvalue(), time.process_time() - start)


def child(*arguments: object, hash_seed: int = 0, folder: Path = ROOT) -> Answer:
    """Run a command in a child process without a terminal."""
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory() as place:
        report = Path(place) / "used"
        words = [sys.executable, "-c", LAUNCH, report, sys.executable, "-m", "api", *arguments]
        ran = subprocess.run(
            list(map(str, words)), cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        cpu, peak = report.read_text().split()
    return Answer(ran.returncode, ran.stdout, ran.stderr, float(cpu), int(peak))


def refused(answer: Answer, words: str) -> None:
    """Assert that the command failed within SECONDS with a single line on stderr that contains these words."""
    assert answer.code == 1
    assert answer.out == ""
    assert answer.err.startswith("shardplan: ")
    assert answer.err.count("\n") == 1
    assert answer.err.endswith("\n")
    assert answer.err[:-1].isprintable()
    assert words in answer.err
    assert len(answer.err) < 1500
    assert answer.cpu_s < SECONDS
