"""DTensor's registered strategies as an oracle: over one mesh axis, our rows allow what it allows, and vice versa.

Where the two differ, a list below has the reason by overload and strategy; a reason that explains nothing must be
removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: no DTensor to compare with")
oracle = import_module("tests.testing.dtensor_oracle")

pytestmark = pytest.mark.frameworks("torch")
C, T = oracle.Case, oracle.T

X, Y, ROW = T((8, 16, 4)), T((8, 16)), T((4,))
HEADS, IMAGES, POOLED = T((8, 4, 16, 32)), T((8, 4, 16, 16)), T((8, 4, 8, 8))
BOOLS, IDS, PLACES = T((8, 16), "bool"), T((32,), "i64"), T((8, 4, 4), "i64")
MONOTONE = ("exp", "relu", "tanh", "sigmoid", "erf", "floor", "ceil", "sign")
F32 = torch.float32

CASES = [
    *(
        C(f"aten.{op}.default", (Y,), op)
        for op in (*MONOTONE, "abs", "gelu", "silu", "rsqrt", "cos", "log1p", "square")
    ),
    C("aten.neg.default", (Y,), "negate"),
    C("aten.isfinite.default", (Y,), "is_finite"),
    C("aten._to_copy.default", (X,), "cast"),
    C("aten.add.Tensor", (Y, Y), "add"),
    C("aten.add.Tensor", (Y, T((16,))), "add"),
    C("aten.sub.Tensor", (Y, Y), "subtract"),
    C("aten.mul.Tensor", (Y, Y), "multiply"),
    C("aten.mul.Scalar", (Y, 2), "multiply", {"scalar": 2}),
    C("aten.div.Tensor", (Y, Y), "divide"),
    C("aten.pow.Tensor_Scalar", (Y, 2), "pow", {"scalar": 2}),
    C("aten.eq.Tensor", (Y, Y), "equal"),
    C("aten.lt.Tensor", (Y, Y), "less"),
    C("aten.remainder.Tensor", (Y, Y), "remainder"),
    C("aten.fmod.Tensor", (Y, Y), "fmod"),
    C("aten.bitwise_and.Tensor", (T((8, 16), "i64"), T((8, 16), "i64")), "bitwise_and"),
    *(C(f"aten.{op}.default", (Y, Y), op) for op in ("maximum", "minimum", "atan2")),
    *(C(f"aten.{op}_backward.default", (Y, Y), f"{op}_backward") for op in ("gelu", "silu", "tanh", "sigmoid")),
    C("aten.threshold_backward.default", (Y, Y, 0), "relu_backward"),
    C("aten.where.self", (BOOLS, Y, Y), "where"),
    C("aten.mm.default", (Y, T((16, 4))), "matmul"),
    C("aten.bmm.default", (X, T((8, 4, 16))), "matmul"),
    C("aten.addmm.default", (ROW, Y, T((16, 4))), "addmm"),
    C("aten._grouped_mm.default", (T((8, 16), "bf16"), T((4, 16, 8), "bf16"), T((4,), "i32")), "grouped_mm"),
    C(
        "aten.convolution.default",
        (IMAGES, T((8, 4, 3, 3)), T((8,)), [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
        "convolution",
        {"padding": [1, 1]},
    ),
    C("aten.sum.dim_IntList", (X, [1]), "sum", {"dims": [1]}),
    C("aten.mean.dim", (X, [1, 2], True), "mean", {"dims": [1, 2], "keepdim": True}),
    C("aten.amax.default", (X, [1]), "max", {"dims": [1]}),
    C("aten.amin.default", (X, [1]), "min", {"dims": [1]}),
    C("aten.prod.dim_int", (X, 1), "product", {"dims": [1]}),
    C("aten.any.dim", (BOOLS, 1), "max", {"dims": [1]}),
    C("aten.all.dim", (BOOLS, 1), "min", {"dims": [1]}),
    C("aten.var.correction", (X, [1]), "variance", {"dims": [1]}),
    C("aten.logsumexp.default", (X, [1]), "log_sum_exp", {"dims": [1]}),
    C("aten.argmax.default", (X, 1), "argmax", {"dim": 1}),
    C("aten.argmin.default", (X, 1, True), "argmin", {"dim": 1, "keepdim": True}),
    *(C(f"aten.{op}.default", (X, 1), op, {"dim": 1}) for op in ("cumsum", "cumprod")),
    *(C(f"aten._{op}.default", (X, 1, False), op, {"dim": 1}) for op in ("softmax", "log_softmax")),
    *(
        C(f"aten._{op}_backward_data.default", (X, X, 1, F32), f"{op}_backward", {"dim": 1})
        for op in ("softmax", "log_softmax")
    ),
    C("aten.native_layer_norm.default", (X, [4], ROW, ROW, 1e-5), "layer_norm"),
    C(
        "aten.native_layer_norm_backward.default",
        (X, X, [4], T((8, 16, 1)), T((8, 16, 1)), ROW, ROW, [True, True, True]),
        "layer_norm_backward",
        order=(0, 1, 4),
        results=(0, 1, 2),
    ),
    C("aten._fused_rms_norm.default", (X, [4], ROW, 1e-5), "rms_norm"),
    C(
        "aten._fused_rms_norm_backward.default",
        (X, X, [4], T((8, 16, 1)), ROW, [True, True]),
        "rms_norm_backward",
        order=(0, 1, 3),
        results=(0, 1),
    ),
    C("aten.embedding.default", (T((16, 4)), T((8, 32), "i64")), "embedding"),
    C("aten.embedding_dense_backward.default", (T((8, 32, 4)), T((8, 32), "i64"), 16, -1, False), "embedding_backward"),
    C("aten.gather.default", (X, 1, PLACES), "gather", {"dim": 1}),
    C("aten.scatter.src", (X, 1, PLACES, T((8, 4, 4))), "scatter", {"dim": 1}),
    C("aten.scatter_add.default", (X, 1, PLACES, T((8, 4, 4))), "scatter", {"dim": 1, "accumulate": True}),
    C("aten.index_select.default", (X, 1, IDS), "index", {"dims": [1]}),
    C("aten.index.Tensor", (X, [IDS]), "index", {"dims": [0]}),
    C("aten.index.Tensor", (X, [None, IDS]), "index", {"dims": [1]}),
    C("aten.index_put.default", (X, [IDS], T((32, 16, 4))), "index_put", {"dims": [0]}),
    C("aten.index_put.default", (X, [IDS], T((32, 16, 4)), True), "index_put", {"dims": [0], "accumulate": True}),
    C("aten.topk.default", (X, 4, 1), "topk", {"dim": 1}, results=(0, 1)),
    C("aten.sort.default", (X, 1, True), "sort", {"dim": 1, "descending": True}, results=(0, 1)),
    C("aten.cat.default", ([X, T((8, 8, 4))], 1), "concat", {"dim": 1}),
    C("aten.split.Tensor", (X, 8, 1), "split", {"dim": 1}, results=(0, 1)),
    C("aten.slice.Tensor", (X, 1, 4, 12), "slice", {"dim": 1, "start": 4, "stop": 12}),
    C(
        "aten.slice_backward.default",
        (T((8, 8, 4)), [8, 16, 4], 1, 4, 12, 1),
        "pad",
        {"low": [0, 4, 0], "high": [0, 4, 0]},
    ),
    C("aten.constant_pad_nd.default", (X, [0, 0, 4, 4]), "pad", {"low": [0, 4, 0], "high": [0, 4, 0]}),
    C("aten.flip.default", (X, [1]), "flip", {"dims": [1]}),
    C("aten.roll.default", (X, [3], [1]), "roll", {"dims": [1], "shifts": [3]}),
    C("aten.tril.default", (X,), "tril"),
    C("aten.triu.default", (X, 1), "triu", {"diagonal": 1}),
    C("aten.view.default", (X, [128, 4]), "reshape"),
    C("aten.view.default", (X, [8, 4, 4, 4]), "reshape"),
    C("aten.permute.default", (X, [2, 0, 1]), "transpose", {"permutation": [2, 0, 1]}),
    C("aten.expand.default", (T((8, 1, 4)), [8, 16, 4]), "expand"),
    C("aten._scaled_dot_product_flash_attention.default", (HEADS, HEADS, HEADS), "scaled_dot_product_attention"),
    C(
        "aten._scaled_dot_product_efficient_attention.default",
        (HEADS, HEADS, HEADS, None, False),
        "scaled_dot_product_attention",
    ),
    C("aten.max_pool2d_with_indices.default", (IMAGES, [2, 2], [2, 2]), "max_pool", {"size": [2, 2], "stride": [2, 2]}),
    C(
        "aten.max_pool2d_with_indices_backward.default",
        (POOLED, IMAGES, [2, 2], [2, 2], [0, 0], [1, 1], False, T((8, 4, 8, 8), "i64")),
        "max_pool_backward",
        {"size": [2, 2], "stride": [2, 2]},
        order=(0, 1),
    ),
    C("aten.avg_pool2d.default", (IMAGES, [2, 2], [2, 2]), "average_pool", {"size": [2, 2], "stride": [2, 2]}),
]

# reason -> overload, way (regular expressions of the whole)
THEIRS_ONLY = {
    "partial extremes and products are completed before they are read, unless a row says `commutes`": (
        ".*",
        ".*P(max|min|product).*->.*",
    ),
    "of a flattened dim only the major part is split: our blocks have no strides": ("aten.view.default", ".*->Z0"),
    "a bias in terms beside a contraction in parts": ("aten.addmm.default", "Psum,S1,S0->Psum"),
    "a partial any is a maximum of bools with us, not a count": ("aten.any.dim", ".*->Psum"),
    "a partial all is a minimum of bools with us, not a product": ("aten.all.dim", "S1->Pproduct"),
}
OURS_ONLY = {
    "linear in one operand, the others whole: terms pass": (".*", r"(R,)*Psum(,R|,Psum)*->Psum(,Psum)*"),
    "an operand that is whole is cut as the result asks": (
        r"aten\.(split|slice|expand|embedding_dense_backward)\..*",
        r"R(,R)*->(R,)*S\d(,R)*",
    ),
    "reductions commute with their own kind": (r"aten\.(amin|prod|mul|any|all|max_pool2d.*)\..*", r"(P\w+)(,\1)*->\1"),
    "an any is a maximum, an all a minimum of bools": (r"aten\.(any|all)\.dim", "S1->P(max|min)"),
    "every device serves the positions in its part": (
        r"aten\.(gather|index|index_select|scatter|scatter_add|index_put)\..*",
        r"S\d(,R)+->(Psum|S\d)",
    ),
    "a bias is added once, by the first device of the contraction": ("aten.addmm.default", "R,S1,S0->Psum"),
    "what is added may be split: the first device adds it to what is there": (
        r"aten\.(scatter_add|index_put)\.default",
        r"R(,S\d)+->Psum",
    ),
    "experts, tokens and widths: all know all offsets": ("aten._grouped_mm.default", "(R|S0|S1),(R|S0|S1|S2),R->.*"),
    "queries, and the dims of a value, are independent of each other": (
        "aten._scaled_dot_product.*",
        "S2,R,R->S2|R,R,S3->S3",
    ),
    "a convolution is a product over channels, with a bias added once": (
        "aten.convolution.default",
        "R,S0,S0->S1|S1,S1,R->Psum",
    ),
    "windows are read with halos": (
        r"aten\.(convolution|max_pool2d_with_indices|avg_pool2d)\.default",
        r"S[23].*->S[23]",
    ),
    "the dims of a mask know their offset": (r"aten\.tri[lu]\.default", r"S\d->S\d"),
}


@pytest.fixture(scope="module")
def device_mesh() -> Iterator[Any]:
    with oracle.one_axis() as mesh:
        yield mesh


@pytest.fixture(scope="module")
def compared(device_mesh: Any) -> list[tuple[Any, set[str], set[str]]]:
    """Every case with the ways that are theirs only, and ours only."""
    found = []
    for case in CASES:
        asked = oracle.Asked(case, device_mesh)
        theirs, ours = asked.ways(), oracle.ours(case, asked.made)
        found.append((case, theirs - ours, ours - theirs))
    return found


def _explains(reason: tuple[str, str], case: Any, way: str) -> bool:
    return all(re.fullmatch(pattern, text) for pattern, text in zip(reason, (case.overload, way), strict=True))


def test_a_row_allows_what_dtensor_allows_or_the_list_has_a_reason(compared: Any) -> None:
    left = [
        (case.overload, way)
        for case, theirs, _ in compared
        for way in sorted(theirs)
        if not any(_explains(reason, case, way) for reason in THEIRS_ONLY.values())
    ]
    assert left == []


def test_dtensor_allows_what_a_row_allows_or_the_list_has_a_reason(compared: Any) -> None:
    left = [
        (case.overload, way)
        for case, _, ours in compared
        for way in sorted(ours)
        if not any(_explains(reason, case, way) for reason in OURS_ONLY.values())
    ]
    assert left == []


def test_every_reason_explains_something(compared: Any) -> None:
    idle = [
        name
        for reasons, side in ((THEIRS_ONLY, 1), (OURS_ONLY, 2))
        for name, reason in reasons.items()
        if not any(_explains(reason, entry[0], way) for entry in compared for way in entry[side])
    ]
    assert idle == []
