"""External programs that tests run."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest


def program(name: str) -> str:
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found
