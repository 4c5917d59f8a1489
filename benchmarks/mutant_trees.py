"""Copies of the working tree in which faults are planted."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.source_faults import Fault

ROOT = Path(__file__).resolve().parents[1]
COMPILED = ("*.nbi", "*.nbc")
"""numba's cached code of a module, which is checked against that file's time but not against its callees'."""


def copy_compiled(source: Path, target: Path) -> None:
    for pattern in COMPILED:
        for path in (source / "solvers").rglob(pattern):
            place = target / path.relative_to(source)
            place.parent.mkdir(exist_ok=True)
            shutil.copy2(path, place)


@dataclass(frozen=True)
class Tree:
    """A copy of all files that git tracks or does not ignore, and of compiled code."""

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
        for each in self._callers(path):
            self._forget_compiled(each)

    def restore(self, fault: Fault) -> None:
        """Restore the file as it was, its time included."""
        path = self.root / fault.path
        shutil.copy2(ROOT / fault.path, path)
        if callers := self._callers(path):
            for each in callers:
                self._forget_compiled(each)
            copy_compiled(ROOT, self.root)

    def _callers(self, path: Path) -> list[Path]:
        """Return the compiled modules that may contain this one's code: itself, and importers of it or its package."""
        if b"njit" not in path.read_bytes():
            return []
        package = ".".join(path.relative_to(self.root).parent.parts)
        imports = re.compile(rf"from {package}\.{path.stem} import|from {package} import .*\b{path.stem}\b")
        known = [each for each in (self.root / "solvers").rglob("*.py") if "njit" in each.read_text()]
        return [each for each in known if each == path or imports.search(each.read_text())]

    def first_failure(self, code: int) -> str:
        """Return the test that failed or could not be imported, or the signal that ended the run."""
        output = (self.root / "output").read_text(errors="replace")
        if failed := re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.M):
            return failed[1]
        if code < 0:
            return f"signal {-code}"
        raise RuntimeError(f"pytest ended with {code} and no test failed:\n{output}")

    @staticmethod
    def _forget_compiled(path: Path) -> None:
        for pattern in COMPILED:
            for kept in (path.parent / "__pycache__").glob(f"{path.stem}.{pattern}"):
                kept.unlink()
