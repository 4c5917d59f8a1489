"""A fresh machine: what it lacks is said in a line or two, and an interrupted set-up is done again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.fresh import counted
from tests.testing.command_line import ROOT
from tests.testing.small_checkout import CLOSED, Answer, SmallCheckout

CLOSING = [
    ("==== 12 passed in 3.21s ====", {"passed": 12}),
    ("= 1 failed, 12 passed, 3 skipped, 40 deselected, 2 errors in 303.21s (0:05:03) =",
     {"failed": 1, "passed": 12, "skipped": 3, "deselected": 40, "errors": 2}),
    ("ERROR: not found: tests/no.py", {}),
]  # fmt: skip
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14", "python3", "python")


@pytest.fixture
def checkout(tmp_path: Path) -> SmallCheckout:
    return SmallCheckout.made(tmp_path)


@pytest.mark.slow
def test_demo_and_tests_run_where_the_path_has_spaces_and_there_is_no_home_folder(checkout: SmallCheckout) -> None:
    """With make and without it: the page on installing gives the commands that make runs."""
    demo = checkout.run("make", "demo")
    assert (demo.code, demo.err) == (0, "")
    assert demo.out.endswith("demo ['demo']\n")
    tests = checkout.run("make", "test", "WORKERS=0", "ARGS=-k 'one or other'")
    assert (tests.code, tests.err) == (0, "")
    assert "'-k', 'one or other'" in tests.out
    assert checkout.run("make", "setup").err == ""
    assert checkout.run("python3.11", "deploy/set_up.py") == Answer(0, "", "")
    page = (ROOT / "docs" / "install.md").read_text()
    shown = [checkout.run("make", "-n", target).out.strip() for target in ("demo", "test")]
    assert all(f"`{command}`" in page for command in ("python3 deploy/set_up.py", *shown)), shown
    assert checkout.run(*shown[0].split()).out == "demo ['demo']\n"


@pytest.mark.slow
def test_without_a_network_two_lines_say_so_and_the_next_set_up_completes(checkout: SmallCheckout) -> None:
    failed = checkout.run("make", "setup", index=CLOSED)
    said = [line for line in failed.err.splitlines() if not line.startswith("make: ")]
    assert failed.code != 0
    assert len(said) == 2
    assert "no package index answers" in said[0]
    assert said[1].startswith("wanted: a package index")
    assert not checkout.ready.exists()
    assert checkout.run("make", "demo").code == 0


@pytest.mark.slow
def test_a_killed_set_up_is_begun_again_and_two_at_once_wait_for_each_other(checkout: SmallCheckout) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # an index that is asked and never answers
        process = checkout.start("make", "setup", index=f"http://127.0.0.1:{silent.getsockname()[1]}/simple")
        asked, _ = silent.accept()
        with asked:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert not checkout.ready.exists()
    both = [checkout.start("make", "demo") for _ in range(2)]
    outs = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert all(out.endswith("demo ['demo']\n") for out in outs)
    assert sum("making .venv" in out for out in outs) == 1


@pytest.mark.slow
def test_another_lock_makes_another_environment_and_another_project_is_installed_again(checkout: SmallCheckout) -> None:
    assert checkout.run("make", "setup").code == 0
    stamp = checkout.ready.read_text().split()
    with (checkout.folder / "pyproject.toml").open("a") as file:
        file.write('description = "other"\n')
    assert "making" not in checkout.run("make", "setup").out
    lock, project = checkout.ready.read_text().split()
    assert lock == stamp[0]
    assert project != stamp[1]
    (checkout.folder / ".venv" / "left over").touch()
    with (checkout.folder / "requirements.lock").open("a") as file:
        file.write("# another\n")
    assert "making .venv" in checkout.run("make", "setup").out
    assert not (checkout.folder / ".venv" / "left over").exists()


def test_an_environment_that_somebody_else_made_is_left_alone(checkout: SmallCheckout) -> None:
    (checkout.folder / ".venv").mkdir()
    theirs = checkout.folder / ".venv" / "pyvenv.cfg"
    theirs.write_text("theirs")
    failed = checkout.run("make", "setup")
    assert failed.code != 0
    assert "was made by something else\nwanted: it moved away" in failed.err
    assert theirs.read_text() == "theirs"


def test_pythons_that_are_all_too_old_are_reported(checkout: SmallCheckout) -> None:
    for name in PYTHONS:
        checkout.program(name, "exit 1")
    failed = checkout.run("make", "test")
    assert failed.code != 0
    assert failed.err.startswith("make setup: no Python >= 3.11 found")
    assert not (checkout.folder / ".venv").exists()


def test_an_old_python_that_runs_set_up_directly_says_so() -> None:
    old = "import runpy, sys; sys.version_info, sys.version = (3, 10, 4), '3.10.4 (main)'; runpy.run_path(sys.argv[1])"
    words = [sys.executable, "-c", old, str(ROOT / "deploy" / "set_up.py")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "set-up: this is Python 3.10.4; wanted: Python 3.11 or newer\n"


@pytest.mark.parametrize(("line", "numbers"), CLOSING)
def test_the_newcomers_benchmark_reads_the_closing_line_of_the_tests(line: str, numbers: dict[str, int]) -> None:
    assert counted(f"collected 9 items\n..... [100%]\n{line}\n") == numbers
