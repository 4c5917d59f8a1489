"""Keys and query parameters that once had another name: the old one is refused by a message that says the new one.

Plan documents of version 1 are read all the same: their keys are renamed first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

RENAMED_KEYS: Mapping[tuple[str, ...], str] = {
    ("cost", "dearest"): "top_collectives",
    ("cost", "overlap", "floor_s"): "lower_bound_s",
    ("solver", "folding", "of"): "total_variables",
    ("verdict", "difference", "done"): "operation",
    ("hardware", "hour"): "price_per_device_hour",
    ("candidates", "why"): "skip_reason",
    ("candidates", "by"): "dominated_by",
    ("candidates", "floor_s"): "initial_bound_s",
    ("candidates", "floor_bytes"): "initial_bound_bytes",
    ("acknowledged",): "waiver",
    ("beside",): "compare_to",
    ("check",): "verify",
}
"""The new name by the path to the old one; positions in lists are left out of a path."""


def find_new_key(path: Sequence[int | str]) -> str | None:
    """Return the new name of the key that a path leads to, or None. A document may be part of a larger one."""
    names = tuple(part for part in path if isinstance(part, str))
    suffixes = (names[start:] for start in range(len(names)))
    return next((RENAMED_KEYS[suffix] for suffix in suffixes if suffix in RENAMED_KEYS), None)


def upgrade_plan(raw: Any) -> Any:
    """Return a plan document of version 1 as one of version 2, without the digest of its old text; others as given."""
    if not isinstance(raw, dict) or type(raw.get("version")) is not int or raw["version"] != 1:
        return raw
    upgraded = {key: value for key, value in raw.items() if key != "digest"} | {"version": 2}
    for path, new_name in RENAMED_KEYS.items():
        upgraded = _rename_key(upgraded, path, new_name)
    return upgraded


def _rename_key(document: Any, path: Sequence[str], new_name: str) -> Any:
    """Return the document with the key at the end of the path renamed, or as it is where the path is not in it."""
    first, *rest = path
    if not isinstance(document, dict) or first not in document:
        return document
    if rest:
        return {**document, first: _rename_key(document[first], rest, new_name)}
    return {new_name if key == first else key: value for key, value in document.items()}
