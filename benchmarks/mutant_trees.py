"""Copies of the working tree into which faults are planted."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.source_faults import Fault

ROOT = Path(__file__).resolve().parents[1]
COMPILED = ("*.nbi", "*.nbc")
"""What numba keeps of a compiled module: it looks at that file's time, not at those of the files that it calls."""


def copy_compiled(source: Path, target: Path) -> None:
    for pattern in COMPILED:
        for path in (source / "solvers").rglob(pattern):
            place = target / path.relative_to(source)
            place.parent.mkdir(exist_ok=True)
            shutil.copy2(path, place)


@dataclass(frozen=True)
class Tree:
    """A copy of all files that git knows or would take, and of compiled code."""

    root: Path

    @classmethod
    def copy(cls, root: Path) -> Tree:
        listed = subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, text=True)
        for name in listed.splitlines():
            if (ROOT / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, root / name)
        copy_compiled(ROOT, root)
        return cls(root)

    def plant(self, fault: Fault) -> None:
        path = self.root / fault.path
        path.write_bytes(fault.plant(path.read_bytes()))
        if b"njit" in path.read_bytes():
            self._forget_compiled()

    def restore(self, fault: Fault) -> None:
        """As it was, file times included."""
        compiled = b"njit" in (self.root / fault.path).read_bytes()
        shutil.copy2(ROOT / fault.path, self.root / fault.path)
        if compiled:
            self._forget_compiled()
            copy_compiled(ROOT, self.root)

    def first_failure(self, code: int) -> str:
        """The test that failed or could not be imported, or the signal that ended all."""
        output = (self.root / "output").read_text(errors="replace")
        if failed := re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.M):
            return failed[1]
        if code < 0:
            return f"signal {-code}"
        raise RuntimeError(f"pytest ended with {code} and no test failed:\n{output}")

    def _forget_compiled(self) -> None:
        for pattern in COMPILED:
            for path in (self.root / "solvers").rglob(pattern):
                path.unlink()
