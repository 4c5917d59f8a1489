"""Writes a minimal wheel that pip can install. It imports nothing of ours, because the small checkout builds it."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path


def write(folder: Path, name: str, files: dict[str, str], entry_points: str = "") -> Path:
    """Write a wheel of version 1 and return its path."""
    about = f"{name}-1.dist-info"
    files = {
        **files,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": entry_points,
    }
    record = "".join(f"{file},sha256={_digest(text)},{len(text.encode())}\n" for file, text in files.items())
    wheel = folder / f"{name}-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file, text in (files | {f"{about}/RECORD": record + f"{about}/RECORD,,\n"}).items():
            archive.writestr(file, text)
    return wheel


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
