"""The JSON in what torch.export.save wrote, checked without torch.

It takes seconds to load torch. What is too large, no JSON, or could run as code is refused before.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from planner.errors import InvalidGraph
from planner.frontends.torch.untrusted_json import check_document

MAX_JSON_BYTES = 1 << 27
MAX_JSON_VALUES = 1 << 22
"""Some fifty thousand nodes. They are counted before they are parsed: a small archive may inflate to millions."""
MAX_TABLE_BYTES = 1 << 24
"""The table of an archive's weights has some 400 bytes for each."""
WANTED = "a file of torch.export.save (.pt2), or its models/model.json"


@dataclass(frozen=True, slots=True)
class SavedProgram:
    """The checked JSON of a program, and the file of every weight by the weight's name."""

    document: dict[str, Any]
    weight_files: Mapping[str, str]


def read_saved(data: bytes, name: str) -> SavedProgram:
    """Read an archive, or the JSON of its graph. Raises InvalidGraph."""
    with malformed_refused(name):
        text, files = _read_archive(data) if zipfile.is_zipfile(io.BytesIO(data)) else (data, {})
        if text.count(b",") + text.count(b"[") + text.count(b"{") > MAX_JSON_VALUES:
            raise ValueError(f"a graph of more than {MAX_JSON_VALUES} values")
        document = json.loads(text)
        if "graph_module" not in document:  # importing torch takes seconds, which text of another kind does not cost
            raise ValueError("JSON without a graph_module")
        check_document(document)
        return SavedProgram(document, files)


@contextmanager
def malformed_refused(name: str) -> Iterator[None]:
    """Turn every error inside the block into InvalidGraph: torch's reader raises any exception on malformed input."""
    try:
        yield
    except Exception as failure:
        got = f"{type(failure).__name__}: {failure}".splitlines()[0]
        raise InvalidGraph("not an exported program", where=name, got=got, wanted=WANTED) from failure


def _read_archive(data: bytes) -> tuple[bytes, dict[str, str]]:
    """Return the JSON, and the file of every weight by the weight's name."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        (graph,) = (entry for entry in archive.infolist() if entry.filename.endswith("models/model.json"))
        tables = [entry for entry in archive.infolist() if entry.filename.endswith("model_weights_config.json")]
        listed = json.loads(_read_entry(archive, tables[0], MAX_TABLE_BYTES))["config"] if tables else {}
        same = {name: entry["path_name"] for name, entry in listed.items() if _has_weights(entry)}
        return _read_entry(archive, graph, MAX_JSON_BYTES), same


def _read_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, max_bytes: int) -> bytes:
    """Return the content of a file. No more is inflated than the archive says, whatever its bytes would become."""
    if entry.file_size > max_bytes:
        raise ValueError(f"{entry.filename} of {entry.file_size} bytes, more than {max_bytes}")
    return archive.read(entry)


def _has_weights(entry: Mapping[str, Any]) -> bool:
    """Return whether a weight has a file of its own; tensors without storage share an empty one."""
    return bool(entry["tensor_meta"]["device"]["type"] != "meta")
