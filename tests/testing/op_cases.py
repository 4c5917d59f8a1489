"""Signatures for every row of the op table, in letters and numbers.

A letter is a size that has an even and an uneven version; numbers are what they say. `i:` in front of a shape
makes it i64, `?:` bool; otherwise it is f64.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from planner.ir.graph import TensorType

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
    dtype = DTYPES[words.pop(0)[0]] if words[0] in ("i:", "?:") else "f64"
    return TensorType(tuple(sizes[word] if word in sizes else int(word) for word in words if word != "[]"), dtype)


def _beyond(op: str, signature: str, **attrs: Any) -> list[Case]:
    """Return cases with positions out of bounds, one for each mode in which they may be handled."""
    return [case for beyond in ("clamp", "wrap", "drop") for case in of(op, signature, beyond=beyond, **attrs)]


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
    *_like(POINTWISE, "log1p", "expm1", "floor", "ceil", "round", "truncate", "sign", "softplus"),
    *_like(POINTWISE, "sin", "cos", "tanh", "erf", "sigmoid", "silu", "relu", "gelu"),
    *of("gelu", "a b -> a b", approximate="tanh"),
    *of("logical_not", "?: a b -> ?: a b"),
    *of("bitwise_not", "i: a b -> i: a b"),
    *_like(of("", "a b -> ?: a b"), "is_finite", "is_nan"),
    *of("cast", "a b -> a b"),
    *of("cast", "i: a b -> a b"),
    *of("cast", "a b -> i: a b"),
    *of("cast", "?: a -> a"),
    *of("pointwise", "a b, b, a b -> a b", steps=[["multiply", [0, 1], "f64", {}], ["add", [3, 2], "f64", {}]]),
    *of("pointwise", "a b, a b -> a b", steps=[["sigmoid", [0], "f64", {}], ["multiply", [2, 1], "f64", {}]]),
    *of("pointwise", "a b, b -> a b", steps=[["multiply", [0, 1], "f64", {}], ["add", [2, 1], "f64", {}]]),
    *of("pointwise", "a, i: a -> ?: a", steps=[["cast", [1], "f64", {}], ["less", [2, 0], "bool", {}]]),
    *of("where", "?: a b, a b, b -> a b"),
    *of("where", "?: b, i: a 1, i: [] -> i: a b"),
    *_like(BROADCAST, "add", "subtract", "multiply", "divide", "pow", "maximum", "minimum"),
    *_like(BROADCAST, "floor_divide", "remainder", "fmod", "atan2"),
    *_like(INTEGERS, "floor_divide", "remainder", "fmod", "bitwise_and", "bitwise_or", "bitwise_xor"),
    *_like(INTEGERS, "add", "subtract", "multiply", "divide", "maximum", "minimum"),
    *_like(of("", "?: a b, ?: b -> ?: a b"), "logical_and", "logical_or", "logical_xor"),
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
    *of("arange", "-> i: a b c", start=1, dim=1),
    *of("arange", "-> b a", step=0.5, dim=-1),
    *of("full", "-> a b", value=0.5),
    *of("full", "-> i: []", value=3),
    *_like(REDUCED, "sum", "max", "min", "product", "mean"),
    *_like(of("", "i: a b -> i: b", dims=[0]), "sum", "max", "min", "product"),
    *_like(of("", "?: a b -> ?: b", dims=[0]), "max", "min"),
    *_like(of("", "a b c -> a b c", dim=1), "softmax", "log_softmax", "cumsum", "cumprod"),
    *_like(of("", "a b -> a b", dim=-1), "softmax", "log_softmax", "cumsum", "cumprod"),
    *_like(of("", "a b -> a", dims=[1]), "variance", "log_sum_exp"),
    *_like(of("", "a b c -> 1 b 1", dims=[0, -1], keepdim=True), "variance", "log_sum_exp"),
    *of("variance", "a b -> a b", dims=[], correction=0),
    *of("log_sum_exp", "a b -> a b", dims=[]),
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
    *of("einsum", "a b c, a b d -> c d", equation="b s k, b s n -> k n"),
    *of("einsum", "a b c d, a b e -> a c d e", equation="b s e c, b s d -> b e c d"),
    *of("einsum", "d a, d a b, d a c -> d b c", equation="b k, b k e, b k c -> b e c"),
    *of("einsum", "a b -> b", equation="row column -> column"),
    *of("layer_norm_backward", "d a b, d a b, b -> d a b, b, b"),
    *of("layer_norm_backward", "d a b, d a b, a b -> d a b, a b", normalized_dims=2, eps=1e-3),
    *of("batch_norm", "d a b, a, a, a, a -> d a b", eps=1e-3),
    *of("batch_norm", "d a, a, a -> d a"),
    *of("layer_norm_backward", "d a b, d a b -> d a b"),
    *of("rms_norm", "d a b, b -> d a b", eps=1e-3),
    *of("rms_norm", "a b -> a b"),
    *of("rms_norm_backward", "d a b, d a b, b -> d a b, b", eps=1e-3),
    *_like(of("", "a b c, a b c -> a b c", dim=1), "softmax_backward", "log_softmax_backward"),
    *of("sum_exp", "d a b, d a 1 -> d a 1"),
    *of("scaled_dot_product_attention_backward", "d a 2, d b 2, d b c, d a c -> d a 2, d b 2, d b c", scale=0.25),
    *of("scaled_dot_product_attention_backward", "a 2, a 2, a 3, a 3 -> a 2, a 2, a 3", causal=True),
    *of(
        "scaled_dot_product_attention_backward",
        "d c a 2, d 1 a 2, d 1 a 3, d c a 3 -> d c a 2, d 1 a 2, d 1 a 3",
        causal=True,
    ),
    *of("scaled_dot_product_attention_backward", "d a 2, d b 2, d b 3, d a 3, a b -> d a 2, d b 2, d b 3"),
    *of("scaled_dot_product_attention_backward", "d a 2, d b 2, d b 3, d a 3, d 1 b -> d a 2, d b 2, d b 3"),
    *of("scaled_dot_product_attention_backward", "d a 2, d b 2, d b 3, d a 3, ?: 1 a b -> d a 2, d b 2, d b 3"),
    *of(
        "scaled_dot_product_attention_backward",
        "d c a 2, d 1 b 2, d 1 b 3, d c a 3, c 1 b -> d c a 2, d 1 b 2, d 1 b 3, c 1 b",
    ),
    *of(
        "scaled_dot_product_attention_backward",
        "d c a 2, d c b 2, d c b 3, d c a 3, d 1 a b -> d c a 2, d c b 2, d c b 3, d 1 a b",
    ),
    *of("embedding_backward", "d a e, i: d a -> b e"),
    *of("embedding_backward", "c e, i: c -> a e"),
    *_beyond("gather", "a b, i: a c -> a c", dim=1),
    *of("gather", "a b, i: a c -> a c", dim=1),
    *of("gather", "d a b, i: d a 1 -> d a 1", dim=-1),
    *of("gather", "b d a, i: c d a -> c d a", dim=0),
    *of("topk", "a b -> a 2, i: a 2", dim=-1),
    *of("topk", "b a -> 3 a, i: 3 a", dim=0),
    *of("sort", "a b -> a b, i: a b", dim=1),
    *of("sort", "i: b a -> i: b a, i: b a", dim=-2, descending=True),
    *_like(of("", "a b -> i: a", dim=1), "argmax", "argmin"),
    *_like(of("", "i: a b c -> i: a 1 c", dim=-2, keepdim=True), "argmax", "argmin"),
    *of("argmax", "a -> i: []", dim=0),
    *of("index", "a b c, i: d -> a d c", dims=[1]),
    *of("index", "a b, i: d e -> d e b", dims=[0]),
    *of("index", "a b, i: d 1, i: e -> d e", dims=[0, 1]),
    *of("index", "c a b 2, i: d, i: d -> c d 2", dims=[-3, 2]),
    *_beyond("index", "a b, i: d, i: [] -> d", dims=[0, 1]),
    *of("dynamic_slice", "a 12, i: [] -> a 5", dims=[1]),
    *of("dynamic_slice", "12 b 9, i: [], i: [] -> 8 b 2", dims=[0, 2]),
    *of("one_hot", "i: a c -> i: a c b"),
    *of("one_hot", "i: a -> a b"),
    *_beyond("one_hot", "i: a c -> a c b"),
    *_beyond("embedding", "b e, i: d a -> d a e"),
    *_beyond("embedding_backward", "d a e, i: d a -> b e"),
    *of("scatter", "a b, i: a c, a c -> a b", dim=1),
    *of("scatter", "b d a, i: c d a, c d a -> b d a", dim=0, accumulate=True),
    *_beyond("scatter", "a b, i: a c, a c -> a b", dim=-1),
    *_beyond("scatter", "a b, i: a c, a c -> a b", dim=-1, accumulate=True),
    *of("index_put", "a b c, i: d, a d c -> a b c", dims=[1]),
    *of("index_put", "a b c, i: d e, d e b c -> a b c", dims=[0], accumulate=True),
    *of("index_put", "a b, i: d 1, i: e, d e -> a b", dims=[0, 1], accumulate=True),
    *of("index_put", "a b, i: d, i: d, d -> a b", dims=[0, 1]),
    *_beyond("index_put", "a b, i: d, d b -> a b", dims=[0]),
    *_beyond("index_put", "a b, i: d, d b -> a b", dims=[0], accumulate=True),
    *of("dynamic_update_slice", "a 12, a 5, i: [] -> a 12", dims=[1]),
    *of("dynamic_update_slice", "12 b 9, 8 b 2, i: [], i: [] -> 12 b 9", dims=[0, 2]),
    *of("pad", "8 b -> 11 b", low=[2, 0], high=[1, 0]),
    *of("pad", "a 9 2 -> a 12 4", low=[0, 3, 0], high=[0, 0, 2], value=0.5),
    *of("pad", "a b -> a b", low=[0, 0], high=[0, 0]),
    *of("strided_slice", "16 b -> 8 b", dim=0, step=2),
    *of("strided_slice", "a 23 -> a 8", dim=1, step=3),
    *of("strided_slice", "a 9 -> a 9", dim=1, step=1),
    *of("dilate", "8 b -> 24 b", dim=0, step=3),
    *of("dilate", "a 5 -> a 9", dim=-1, step=2),
    *of("dilate", "a b -> a b", dim=-1, step=1),
    *of("flip", "a b c -> a b c", dims=[1]),
    *of("flip", "a b -> a b", dims=[-1, 0]),
    *of("roll", "a b c -> a b c", dims=[1, 2], shifts=[3, -1]),
    *_like(of("", "d a b -> d a b", diagonal=-1), "tril", "triu"),
    *_like(of("", "i: b a -> i: b a"), "tril", "triu"),
    *of("grouped_mm", "16 b, e b c, i: e -> 16 c"),
    *of("grouped_mm", "9 6, 8 6 d, i: 8 -> 9 d"),
    *of("grouped_mm_weight_backward", "16 b, 16 c, i: e -> e b c"),
    *of("grouped_mm_weight_backward", "9 6, 9 d, i: 8 -> 8 6 d"),
    *of("cross_entropy_backward", "a 1, a b, a 1, i: a 1 -> a b"),
    *of("cross_entropy_backward", "d a 1, d a b, d a 1, i: d a 1 -> d a b"),
    *_like(of("", "a b, a b -> a b"), "silu_backward", "gelu_backward"),
    *_like(of("", "a b, a b -> a b"), "relu_backward", "tanh_backward", "sigmoid_backward"),
    *of("gelu_backward", "a b, a b -> a b", approximate="tanh"),
    *of("rope", "d a 8, a 4, a 4 -> d a 8"),
    *of("rope", "c d a 2, a 1, a 1 -> c d a 2", reversed=True),
    *of("adam", "a b, a b, a b, a b, [] -> a b, a b, a b", lr=0.1, weight_decay=0.01),
    *of("convolution", "2 c a, d c 3 -> 2 d a", padding=[1]),
    *of("convolution", "2 c 17, d c 3, d -> 2 d 8", stride=[2]),
    *of("convolution", "1 3 a b, 4 3 3 5, 4 -> 1 4 a b", padding=[1, 2]),
    *of("convolution", "2 6 16 9, 4 3 3 2 -> 2 4 8 8", stride=[2, 1], padding=[1, 0], groups=2),
    *of("convolution", "2 d a, d 1 3, d -> 2 d a", padding=[2], dilation=[2], groups=EVEN["d"])[:1],
    *of("convolution", "2 d a, d 1 3, d -> 2 d a", padding=[1], groups=UNEVEN["d"])[1:],
    *of("convolution", "2 3 16 16, 8 3 4 4 -> 2 8 4 4", stride=[4, 4]),
    *of("convolution", "1 2 4 5 8, 3 2 1 3 3 -> 1 3 4 5 4", stride=[1, 1, 2], padding=[0, 1, 1]),
    *of("convolution_transpose", "2 d a, d c 3 -> 2 c a", padding=[1]),
    *of("convolution_transpose", "2 d 8, d c 3 -> 2 c 16", stride=[2], padding=[1]),
    *of("convolution_transpose", "2 d 8, d c 3 -> 2 c 15", stride=[2], padding=[1]),
    *of("convolution_transpose", "2 4 8 6, 4 3 2 2 -> 2 3 16 12", stride=[2, 2]),
    *of("convolution_transpose", "2 4 8 8, 4 3 3 2 -> 2 6 16 9", stride=[2, 1], padding=[1, 0], groups=2),
    *of("convolution_transpose", "2 6 8, 6 1 3 -> 2 6 12", stride=[1], dilation=[2], groups=6),
    *of("convolution_weight_backward", "2 c a, 2 d a -> d c 3", padding=[1]),
    *of("convolution_weight_backward", "b 3 17, b d 8 -> d 3 3", stride=[2]),
    *of("convolution_weight_backward", "2 6 16 9, 2 4 8 8 -> 4 3 3 2", stride=[2, 1], padding=[1, 0], groups=2),
    *of("max_pool", "d a b -> d a b", size=[3, 3], padding=[1, 1]),
    *of("max_pool", "d 17 b -> d 8 b", size=[3, 1], stride=[2, 1]),
    *of("max_pool_backward", "d a b, d a b -> d a b", size=[3, 3], padding=[1, 1]),
    *of("max_pool_backward", "d 8 b, d 17 b -> d 17 b", size=[3, 1], stride=[2, 1]),
    *of("average_pool_backward", "d 8 a -> d 16 a", size=[2, 3], stride=[2, 1], padding=[0, 1]),
    *of("average_pool", "d 16 a -> d 8 a", size=[2, 3], stride=[2, 1], padding=[0, 1]),
    *of("average_pool", "a -> a", size=[3], padding=[1]),
]
