"""Writes documents to files: whole or not at all, and the same bytes for the same document."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.documents.canonical_json import digest_document
from planner.errors import InvalidDocument


def check_writable(path: Path) -> None:
    """Raise InvalidDocument where no file can be written; called before long work, so that its result is not lost."""
    if os.path.isdir(path):
        raise _write_error(path, "a folder")
    if not os.path.isdir(path.parent) or not os.access(path.parent, os.W_OK | os.X_OK):
        raise _write_error(path, "no such folder, or not writable")


def write_json(path: Path, document: Mapping[str, Any]) -> str:
    """Write a document (gzip where the name ends in .gz) by replacing the file, and return the document's digest.

    Raises InvalidDocument where the file cannot be written.
    """
    raw = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    _write_temporary(path, gzip.compress(raw, mtime=0) if path.suffix == ".gz" else raw)
    return digest_document(document)


def write_text(path: Path, text: str) -> None:
    """Write a text by replacing the file. Raises InvalidDocument where the file cannot be written."""
    _write_temporary(path, text.encode())


def _write_temporary(path: Path, content: bytes) -> None:
    try:
        _replace(path, content)
    except OSError as error:
        raise _write_error(path, error.strerror or str(error)) from None


def _write_error(path: Path, reason: str) -> InvalidDocument:
    return InvalidDocument("cannot be written", where=str(path), got=reason, wanted="a file in a writable folder")


def _replace(path: Path, content: bytes) -> None:
    """Write the content to a temporary file in the same folder, then rename it; with a new file's usual permissions."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".shardplan.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
