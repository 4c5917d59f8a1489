"""The first steps on a fresh machine, timed: a new clone, `make setup`, `make demo`, `make test`. The demo runs twice:
as the set-up leaves the solver, compiled, and with an empty cache, as `pip install` leaves it.

The last commit is cloned into a temporary folder whose path has a space; pip and numba start with empty caches, and the
environment is built from the lock file only. There is a row per command with wall seconds, the target on two cores and
the exit code, then the number of tests. The script exits with 1 where a command failed, which is recorded too.

    python -m benchmarks.fresh [--tests '-k reshard']
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.record import write

ROOT = Path(__file__).resolve().parents[1]
CLOSING = re.compile(r"=* ?(\d+ [a-z]+(, )?)+ in .*")
INHERITED = ("PATH", "HOME", "LANG", "USER", "TMPDIR")
"""The environment variables that are kept, besides those that configure pip's index."""


class Command(NamedTuple):
    words: tuple[str, ...]
    aim_s: float


COMMANDS = (
    Command(("make", "setup"), 180),
    Command(("make", "demo"), 20),
    Command(("env", "NUMBA_CACHE_DIR=build/numba", "make", "demo"), 25),
    Command(("make", "test"), 360),
)


def main() -> int:
    reader = argparse.ArgumentParser(description="Time the newcomer's way.")
    reader.add_argument("--tests", default="", metavar="ARGS", help="more words to pytest: a selection, to try this")
    result = measure(reader.parse_args().tests)
    write("fresh", result)
    return int(any(row["exit_code"] for row in result["rows"]))


def measure(tests: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder, "shard plan")
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        environment = {name: value for name, value in os.environ.items() if name in INHERITED or _is_of_pip(name)}
        environment |= {"PIP_CACHE_DIR": str(Path(folder, "pip")), "ARGS": tests}
        rows, said = [], ""
        for command in COMMANDS:
            row, said = _timed(command, clone, environment)
            rows.append(row)
            if row["exit_code"]:
                break
    return {"selection": tests, "rows": rows, "tests": counted(said)}


def _is_of_pip(name: str) -> bool:
    return name.startswith("PIP_")


def _timed(command: Command, folder: Path, environment: dict[str, str]) -> tuple[dict[str, Any], str]:
    start = time.perf_counter()
    done = subprocess.run(command.words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    wall_s = round(time.perf_counter() - start, 1)
    if done.returncode:
        sys.stderr.write(done.stdout[-4000:] + done.stderr[-4000:])
    row = {"command": " ".join(command.words), "wall_s": wall_s, "aim_s": command.aim_s, "exit_code": done.returncode}
    return row, done.stdout


def counted(said: str) -> dict[str, int]:
    """Return the numbers of tests passed, failed, skipped and deselected from pytest's last line."""
    lines = [line for line in said.splitlines() if CLOSING.fullmatch(line)]
    return {what: int(number) for number, what in re.findall(r"(\d+) ([a-z]+)", "".join(lines[-1:]).split(" in ")[0])}


def table(result: dict[str, Any]) -> str:
    """Return the rows as a Markdown table."""
    lines = ["| command | seconds | target |", "|---|---|---|"]
    lines += [f"| `{row['command']}` | {row['wall_s']:.0f} | {row['aim_s']:.0f} |" for row in result["rows"]]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
