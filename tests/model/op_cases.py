"""Signatures for every row of the op table, in letters and numbers.

A letter is a size that has an even and an uneven version; numbers are what they say. `i:` in front of a shape
makes it i64, `?:` bool; otherwise it is f64.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from planner.model.graph import TensorType

EVEN = {"a": 8, "b": 16, "c": 8, "d": 16, "e": 8}
UNEVEN = {"a": 5, "b": 9, "c": 7, "d": 3, "e": 6}
DTYPES = {"f": "f64", "i": "i64", "?": "bool"}


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
    """`"a b, b -> a b"` as a case with even sizes and one with uneven ones (one case if there is no letter)."""
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
    dtype = DTYPES[words.pop(0)[0]] if words[0] in ("i:", "?:") else "f64"
    return TensorType(tuple(sizes[word] if word in sizes else int(word) for word in words if word != "[]"), dtype)


def _like(cases: list[Case], *ops: str) -> list[Case]:
    return [replace(case, op=op) for op in ops for case in cases]


POINTWISE = of("", "a b -> a b") + of("", "9 -> 9")
COMPARED = (
    of("", "a b, b -> ?: a b")
    + of("", "a b -> ?: a b", scalar=0.25)
    + of("", "i: a, i: a -> ?: a")
    + of("", "a -> ?: a", scalar=0.5, reversed=True)
)
BROADCAST = (
    of("", "a b, a b -> a b")
    + of("", "a 1, b -> a b")
    + of("", "[], a b -> a b")
    + of("", "a b -> a b", scalar=1.5)
    + of("", "b -> b", scalar=1.5, reversed=True)
)
INTEGERS = of("", "i: a b, i: b -> i: a b") + of("", "i: a b -> i: a b", scalar=3)
REDUCED = (
    of("", "a b -> a", dims=[1])
    + of("", "a b -> 1 b", dims=[0], keepdim=True)
    + of("", "c a b -> a", dims=[0, -1])
    + of("", "a -> []", dims=[0])
    + of("", "a b -> a b", dims=[])
    + of("", "a 1 -> a", dims=[1])
)

CASES: list[Case] = [
    *_like(POINTWISE, "identity", "negate", "abs", "square", "sqrt", "rsqrt", "reciprocal", "exp", "log"),
    *_like(POINTWISE, "sin", "cos", "tanh", "erf", "sigmoid", "silu", "relu", "gelu"),
    *of("gelu", "a b -> a b", approximate="tanh"),
    *of("logical_not", "?: a b -> ?: a b"),
    *of("cast", "a b -> a b"),
    *of("cast", "i: a b -> a b"),
    *of("cast", "a b -> i: a b"),
    *of("cast", "?: a -> a"),
    *of("where", "?: a b, a b, b -> a b"),
    *of("where", "?: b, i: a 1, i: [] -> i: a b"),
    *_like(BROADCAST, "add", "subtract", "multiply", "divide", "pow", "maximum", "minimum"),
    *_like(INTEGERS, "add", "subtract", "multiply", "divide", "maximum", "minimum"),
    *_like(of("", "?: a b, ?: b -> ?: a b"), "logical_and", "logical_or"),
    *_like(COMPARED, "equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
    *of("matmul", "a b, b c -> a c"),
    *of("matmul", "d a b, d b c -> d a c"),
    *of("matmul", "d 1 a b, c b 5 -> d c a 5"),
    *of("matmul", "i: a b, i: b c -> i: a c"),
    *of("linear", "a b, c b -> a c"),
    *of("linear", "a b, c b, c -> a c"),
    *of("linear", "d a b, c b, c -> d a c"),
    *of("linear", "b, c b, c -> c"),
    *of("addmm", "c, a b, b c -> a c"),
    *of("addmm", "a c, a b, b c -> a c"),
    *of("addmm", "a 1, a b, b c -> a c"),
    *of("addmm", "1, a b, b c -> a c"),
    *of("addmm", "[], a b, b c -> a c"),
    *of("reshape", "a b -> a b"),
    *of("reshape", "a 12 -> a 3 4"),
    *of("reshape", "a 3 4 -> a 12"),
    *of("reshape", "64 b -> 8 8 b"),
    *of("reshape", "8 8 b -> 64 b"),
    *of("reshape", "2 4 2 8 -> 8 16"),
    *of("reshape", "8 6 -> 4 12"),
    *of("reshape", "8 4 6 -> 8 6 4"),
    *of("reshape", "1 a 1 b -> a b 1"),
    *of("reshape", "a 1 -> a"),
    *of("reshape", "6 10 -> 4 15"),
    *of("reshape", "1 -> []"),
    *of("reshape", "i: 5 16 -> i: 5 2 8"),
    *of("transpose", "a b -> b a", permutation=[1, 0]),
    *of("transpose", "a b c -> c a b", permutation=[-1, 0, 1]),
    *of("transpose", "[] -> []", permutation=[]),
    *of("expand", "a 1 -> a b"),
    *of("expand", "b -> a b"),
    *of("expand", "1 a 1 -> d a b"),
    *of("expand", "[] -> a"),
    *of("slice", "12 b -> 5 b", dim=0, start=3, stop=8),
    *of("slice", "a 12 -> a 8", dim=1, start=0, stop=8),
    *of("slice", "a 12 -> a 8", dim=-1, start=4, stop=12),
    *of("slice", "9 b -> 9 b", dim=0, start=0, stop=9),
    *of("split", "a 24 -> a 8, a 8, a 8", dim=1),
    *of("split", "17 b -> 9 b, 3 b, 5 b", dim=-2),
    *of("split", "a b -> a b", dim=0),
    *of("concat", "8 b, 8 b -> 16 b", dim=0),
    *of("concat", "b 3, b 9, b 5 -> b 17", dim=-1),
    *of("concat", "i: 3, i: 8 -> i: 11", dim=0),
    *of("arange", "-> i: b", start=3, step=2),
    *of("arange", "-> a"),
    *of("full", "-> a b", value=0.5),
    *of("full", "-> i: []", value=3),
    *_like(REDUCED, "sum", "max", "min", "product", "mean"),
    *_like(of("", "i: a b -> i: b", dims=[0]), "sum", "max", "min", "product"),
    *_like(of("", "?: a b -> ?: b", dims=[0]), "max", "min"),
    *_like(of("", "a b c -> a b c", dim=1), "softmax", "cumsum"),
    *_like(of("", "a b -> a b", dim=-1), "softmax", "cumsum"),
    *of("cumsum", "i: a b -> i: a b", dim=0),
    *of("layer_norm", "a b -> a b"),
    *of("layer_norm", "d a b, b -> d a b", eps=1e-3),
    *of("layer_norm", "d a b, b, b -> d a b"),
    *of("layer_norm", "d a b, a b, a b -> d a b", normalized_dims=2),
    *of("scaled_dot_product_attention", "a 2, b 2, b c -> a c"),
    *of("scaled_dot_product_attention", "d a 4, d b 4, d b e -> d a e", scale=0.25),
    *of("scaled_dot_product_attention", "2 d a 2, 2 d a 2, 2 d a e -> 2 d a e", causal=True),
    *of("scaled_dot_product_attention", "d a 2, d b 2, d b c, a b -> d a c"),
    *of("scaled_dot_product_attention", "d a 2, d b 2, d b c, d 1 b -> d a c"),
    *of("scaled_dot_product_attention", "d a 2, d b 2, d b c, ?: 1 a b -> d a c"),
    *of("embedding", "b e, i: d a -> d a e"),
    *of("embedding", "a e, i: c -> c e"),
]
