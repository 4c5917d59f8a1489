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
# A kernel of the solvers, imported and called, and whether its code is cached.
CALL = """
import numpy as np
from solvers.jit import CACHES
from solvers.tree_lns.splitmix64 import random_uniform
print(0 <= random_uniform(np.zeros(1, np.uint64)) < 1, CACHES)
"""


def close(folder: Path) -> None:
    """Let no one write compiled code beside a module: a file has the place of its folder, which stops root too."""
    for place in [folder, *(path for path in folder.rglob("*") if path.is_dir())]:
        (place / "__pycache__").write_text("")


def call_kernel(folder: Path, temporary: Path) -> list[str]:
    """What a process prints that calls a kernel with a read-only installation and home."""
    closed = {"HOME": "/dev/null", "TMPDIR": str(temporary), "PYTHONPATH": str(folder)}
    inherited = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    words = [sys.executable, "-B", "-c", CALL]
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
