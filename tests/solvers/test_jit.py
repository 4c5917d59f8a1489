"""Kernels are cached where a cache can be written, and run where none can."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import solvers

PACKAGE = Path(solvers.__file__).parent
# A kernel of the solvers, imported and called.
CALL = """
import numpy as np
from solvers.jit import CACHES
from solvers.tree_lns.splitmix64 import random_uniform
drawn = random_uniform(np.zeros(1, np.uint64))
"""


def close(folder: Path) -> None:
    """Let no one write compiled code beside a module: a file has the place of its folder, which stops root too."""
    for place in [folder, *(path for path in folder.rglob("*") if path.is_dir())]:
        (place / "__pycache__").write_text("")


def call_kernel(folder: Path, temporary: Path) -> list[str]:
    """What a process prints that calls a kernel with a read-only installation and home."""
    closed = {"HOME": "/dev/null", "TMPDIR": str(temporary), "PYTHONPATH": str(folder)}
    inherited = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    words = [sys.executable, "-B", "-c", CALL + "print(0 <= drawn < 1, CACHES)"]
    done = subprocess.run(words, cwd=folder, env={**inherited, **closed}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture
def installation(tmp_path: Path) -> Path:
    folder = tmp_path / "installation"
    shutil.copytree(PACKAGE, folder / "solvers", ignore=shutil.ignore_patterns("__pycache__"))
    close(folder / "solvers")
    return folder


def test_a_read_only_installation_and_home_cache_in_a_private_temporary_folder(
    installation: Path, tmp_path: Path
) -> None:
    assert call_kernel(installation, tmp_path) == ["True", "True"]
    kept = tmp_path / f"shardplan-{os.getuid()}"
    assert kept.stat().st_mode & 0o777 == 0o700
    assert list(kept.rglob("*.nbc"))


def open_to_all(place: Path) -> None:
    place.mkdir()
    place.chmod(0o777)


def file(place: Path) -> None:
    place.write_text("")


def link(place: Path) -> None:
    elsewhere = place.with_name("elsewhere")
    elsewhere.mkdir(mode=0o700)
    place.symlink_to(elsewhere)


@pytest.mark.parametrize("occupy", [open_to_all, file, link])
def test_a_temporary_folder_that_others_may_have_made_is_not_trusted(
    occupy: Callable[[Path], None], installation: Path, tmp_path: Path
) -> None:
    occupy(tmp_path / f"shardplan-{os.getuid()}")
    assert call_kernel(installation, tmp_path) == ["True", "False"]
    assert not list(tmp_path.rglob("*.nbc"))


# Runs a statement, then prints how many functions it has compiled.
COUNT = """
import sys
from numba.core import event
compiled = []
class Listener(event.Listener):
    def on_start(self, event): compiled.append(event)
    def on_end(self, event): pass
event.register("numba:compile", Listener())
exec(sys.argv[1])
print(len(compiled))
"""
COMPILE = "from solvers.compile_kernels import compile_kernels; compile_kernels()"
PASS_MESSAGES = """
from solvers import compute_warm_start
from tests.testing.random_problems import tiny
compute_warm_start(tiny(0), 1e-3, 1.0)
"""
SOLVE = """
import numpy as np
from solvers import Edge, Node, Problem, solve
from solvers.iopddl import build_problem
from tests.testing.random_problems import contracting, public_document, tiny
draw, own = np.random.default_rng(0).integers, np.arange(6, dtype=np.int32)
nodes = [Node(str(i), draw(0, 1000, 6), draw(0, 100, 6), (i, i + 6)) for i in range(30)]
ends = [(i, j) for i in range(30) for j in (i + 1, i + 2, i + 3, i + 5) if j < 30]
searched = Problem(nodes, [Edge(i, j, own, own, draw(0, 1000, (6, 6))) for i, j in ends], 220)
for problem in (tiny(0), contracting(0), build_problem(public_document(0)), searched):
    solution = solve(problem, deterministic=True, time_limit=2)
assert "tree search" in {each.operator for each in solution.log}
"""
ENTRIES = """
import importlib, pkgutil, solvers
from numba.core.dispatcher import Dispatcher
from solvers.compile_kernels import compile_kernels
compile_kernels()
names = [module.name for module in pkgutil.walk_packages(solvers.__path__, "solvers.")]
kernels = {k for name in names for k in vars(importlib.import_module(name)).values() if isinstance(k, Dispatcher)}
called = {name for kernel in kernels for name in kernel.py_func.__code__.co_names}
print(*(k.__name__ for k in kernels if k.__name__ not in called and not k.overloads))
"""


def run_python(*words: str, cache: Path | None = None, folder: Path = PACKAGE.parent) -> str:
    """What a process prints that runs this code in a folder with the solver."""
    environment = dict(os.environ, PYTHONPATH=str(folder))
    if cache is not None:
        environment["NUMBA_CACHE_DIR"] = str(cache)
    words = (sys.executable, "-c", *words)
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    first, second = (int(run_python(COUNT, PASS_MESSAGES, cache=tmp_path)) for _ in range(2))
    assert first > 0
    assert second == 0


def test_a_kernel_is_compiled_again_where_another_file_has_changed(installation: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"

    def count() -> int:
        return int(run_python(COUNT, CALL, cache=cache, folder=installation))

    first, second = count(), count()
    with (installation / "solvers" / "trws.py").open("a") as source:
        source.write("# changed\n")
    assert (first > 0, second, count()) == (True, 0, first)


def test_the_set_up_calls_every_kernel_that_is_called_from_python() -> None:
    assert run_python(ENTRIES).split() == []


@pytest.mark.slow
def test_a_solve_compiles_nothing_after_the_set_up(tmp_path: Path) -> None:
    assert int(run_python(COUNT, COMPILE, cache=tmp_path)) > 0
    assert int(run_python(COUNT, SOLVE, cache=tmp_path)) == 0
