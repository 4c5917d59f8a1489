"""Documents to files: whole or not at all, and the same bytes for the same document."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.documents.ids import digest


def write_json(path: Path, document: Mapping[str, Any]) -> str:
    """Write a document (gzip when the name ends in .gz) by replacing the file; returns the document's digest."""
    raw = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    packed = gzip.compress(raw, mtime=0) if path.suffix == ".gz" else raw
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(packed)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
    return digest(document)
