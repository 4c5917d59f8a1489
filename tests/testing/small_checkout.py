"""A checkout so small that its set-up takes seconds and no network.

It has our Makefile and deploy/set_up.py, packages of a few lines in place of ours, and a lock of one wheel, which
stands for pytest and prints its arguments.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.testing import small_wheel
from tests.testing.command_line import ROOT

NOBODY_S_HOME = "/dev/null"
"""No user can create a folder in it."""
CLOSED = "http://127.0.0.1:9/simple"
"""An address at which no package index answers."""

PROJECT = (
    '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n[project]\nname = "shardplan"\n'
)
PROGRAM = 'import sys\ndef main() -> None:\n    print("demo", sys.argv[1:])\n'
PYTEST = 'import sys\nprint("tests", sys.argv[1:])\n'
BACKEND = """
import pathlib
from small_wheel import write
def build_editable(folder, config_settings=None, metadata_directory=None):
    files = {"shardplan.pth": str(pathlib.Path.cwd()) + "\\n"}
    return write(pathlib.Path(folder), "shardplan", files, "[console_scripts]\\nshardplan = program:main\\n").name
"""


@dataclass(frozen=True)
class SmallCheckout:
    folder: Path
    programs: Path
    wheels: Path

    @classmethod
    def made(cls, place: Path) -> SmallCheckout:
        """Create a checkout in a folder whose path has spaces."""
        found = cls(place / "a b" / "shard plan", place / "programs", place / "wheels")
        for folder in (found.folder / "deploy", found.folder / "solvers", found.programs, found.wheels):
            folder.mkdir(parents=True)
        for file in ("Makefile", "deploy/set_up.py"):
            shutil.copy(ROOT / file, found.folder / file)
        shutil.copy(small_wheel.__file__, found.folder)
        files = {"pyproject.toml": PROJECT, "program.py": PROGRAM, "backend.py": BACKEND}
        for file, text in {**files, "solvers/compile_kernels.py": ""}.items():
            (found.folder / file).write_text(text)
        digest = hashlib.sha256(
            small_wheel.write(found.wheels, "pytest", {"pytest.py": PYTEST}).read_bytes()
        ).hexdigest()
        (found.folder / "requirements.lock").write_text(f"pytest==1 --hash=sha256:{digest}\n")
        real = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
        found.program("python3.11", f'exec "{real}" "$@"')
        return found

    def program(self, name: str, text: str) -> None:
        """Add a program that comes first in the path."""
        file = self.programs / name
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)

    @property
    def ready(self) -> Path:
        return self.folder / ".venv" / ".ready"

    def start(self, *words: str, index: str | None = None) -> subprocess.Popen[str]:
        """Start a command for a user without a home; without `index` it finds the wheels locally."""
        found = {"PIP_INDEX_URL": index} if index else {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels)}
        environment = {"PATH": f"{self.programs}:/usr/local/bin:/usr/bin:/bin", "HOME": NOBODY_S_HOME, **found}
        environment |= {"PIP_CONFIG_FILE": "/dev/null", "PIP_RETRIES": "1"}
        return subprocess.Popen(
            words,
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *words: str, index: str | None = None) -> Answer:
        process = self.start(*words, index=index)
        out, err = process.communicate()
        return Answer(process.returncode, out, err)


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str
