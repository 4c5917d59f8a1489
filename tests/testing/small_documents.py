"""A small graph document, and changed copies of documents."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

Document = dict[str, Any]
LEFT_OUT = "left out"
"""The value that removes a key."""


def typed(*shape: int, dtype: str = "f32") -> Document:
    return {"shape": list(shape), "dtype": dtype}


GRAPH: Document = {
    "format": "shardplan.graph",
    "version": 1,
    "name": "small",
    "inputs": [
        {"id": "x", "kind": "input", "name": "x", **typed(8, 16)},
        {"id": "w", "kind": "parameter", "name": "w", **typed(32, 16)},
    ],
    "nodes": [
        {"id": "a", "op": "linear", "inputs": ["x", "w"], "outputs": [typed(8, 32)]},
        {"id": "b", "op": "relu", "inputs": ["a"], "outputs": [typed(8, 32)]},
    ],
    "outputs": ["b"],
}

MESH: Document = {
    "format": "shardplan.mesh",
    "version": 1,
    "axes": [{"name": "dp", "size": 2}, {"name": "tp", "size": 4}],
}


def changed(document: Document, path: str, value: object) -> Document:
    """Return a copy with another value at a path such as `nodes.0.op`."""
    found = copy.deepcopy(document)
    at: Any = found
    *head, last = (int(part) if part.isdigit() else part for part in path.split("."))
    for part in head:
        at = at[part]
    if value is LEFT_OUT:
        del at[last]
    else:
        at[last] = value
    return found


def pins(*annotations: Document) -> Document:
    return {"format": "shardplan.pins", "version": 1, "annotations": list(annotations)}


def pin(value: str, split_axes: list[Any], **more: Any) -> Document:
    """Return an annotation document; `partial` goes into its sharding."""
    partial = {"partial": more.pop("partial")} if "partial" in more else {}
    return {"value": value, "sharding": {"split_axes": split_axes, **partial}, **more}


def written(path: Path, document: object) -> Path:
    """Write a document (or text, or bytes) to a file and return the path."""
    if isinstance(document, bytes):
        path.write_bytes(document)
    else:
        path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return path
