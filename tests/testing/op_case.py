"""One op with its types, written in letters and numbers.

A letter is a size that has an even and an uneven version; a number is itself. `i:` in front of a shape makes it i64,
`u:` u32, `s:` f32, `?:` bool; otherwise it is f64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.ir.graph import TensorType

EVEN = {"a": 8, "b": 16, "c": 8, "d": 16, "e": 8}
UNEVEN = {"a": 5, "b": 9, "c": 7, "d": 3, "e": 6}
DTYPES = {"f": "f64", "i": "i64", "u": "u32", "s": "f32", "?": "bool"}


@dataclass(frozen=True)
class Case:
    """One op with its types."""

    op: str
    operands: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    attrs: dict[str, Any]

    def __str__(self) -> str:
        types = ",".join(map(str, self.operands)) + "->" + ",".join(map(str, self.results))
        attrs = "".join(f" {key}={value}" for key, value in self.attrs.items())
        return f"{self.op} {types}{attrs}"


def of(op: str, signature: str, **attrs: Any) -> list[Case]:
    """Parse `"a b, b -> a b"` to a case with even sizes and one with uneven ones (one case if there is no letter)."""
    left, right = signature.split("->")
    versions = []
    for sizes in (EVEN, UNEVEN):
        operands, results = (
            tuple(_type(text, sizes) for text in side.split(",") if text.strip()) for side in (left, right)
        )
        versions.append(Case(op, operands, results, attrs))
    return versions[:1] if versions[0] == versions[1] else versions


def _type(text: str, sizes: dict[str, int]) -> TensorType:
    words = text.split()
    dtype = DTYPES[words.pop(0)[0]] if words[0].endswith(":") else "f64"
    return TensorType(tuple(sizes[word] if word in sizes else int(word) for word in words if word != "[]"), dtype)
