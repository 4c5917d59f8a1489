"""Ops that contradict their row are refused by a message that names the wrong part."""

from __future__ import annotations

from typing import Any

import pytest

from planner.errors import ShardplanError
from planner.ops import bind_op
from tests.testing.op_case import of

# op, types, attributes, what the message names
REFUSED: list[tuple[str, str, dict[str, Any], str]] = [
    ("einsum", "a b, b c -> a c", {}, "equation"),
    ("einsum", "a b, b c -> a c", {"equation": 5}, "equation"),
    ("einsum", "a b, b c -> a c", {"equation": "m k, k n -> m n; blocked k"}, "equation"),
    ("einsum", "a b, b c -> a c", {"equation": "m k, k n -> m p"}, "equation"),
    ("einsum", "a b, b c -> a c", {"equation": "... k, k n -> ... n"}, "equation"),
    ("einsum", "a b, b c -> a c", {"equation": "m k, n k -> m n"}, "shape contradicts"),
    ("einsum", "a b, b c -> a c", {"equation": "m k -> m k"}, "number of operands"),
    ("fft", "a b -> a b, a b", {"dims": []}, "transform"),
    ("fft", "a, a, a -> a, a", {"dims": [0]}, "transform"),
    ("fft", "i: a -> i: a, i: a", {"dims": [0]}, "dtype"),
    ("topk", "a b -> a 99, i: a 99", {"dim": 1}, "more of the largest"),
    ("topk", "a b -> a 2, a 2", {"dim": 1}, "dtype"),
    ("gather", "a b, i: a c -> a c", {}, "'dim'"),
    ("gather", "a b, a c -> a c", {"dim": 1}, "dtype"),
    ("rms_norm", "a b, b -> a b", {"normalized_dims": 3}, "normalized_dims"),
    ("rms_norm_backward", "a b, a b -> a b, b", {}, "number of operands"),
    ("adam", "a, a, a, a -> a, a, a", {}, "operands"),
    ("adam", "a, a, a, a, [] -> a, a, a", {"lr": "fast"}, "'lr'"),
    ("rope", "a 8, a 3, a 3 -> a 8", {"reversed": 1}, "'reversed'"),
    ("scaled_dot_product_attention_backward", "a 2, a 2, a 3 -> a 2, a 2, a 3", {}, "number of operands"),
    ("cross_entropy_backward", "a 1, a b, a 1, a 1 -> a b", {}, "dtype"),
    ("index", "a b, i: c -> c", {"dims": [0, 1]}, "operands"),
    ("index", "a b c, i: d, i: d -> d b", {"dims": [0, 2]}, "adjacent"),
    ("index", "a b, i: c -> c b", {"dims": [0], "beyond": "never"}, "'beyond'"),
    ("index", "a b, c -> c b", {"dims": [0]}, "dtype"),
    ("scatter", "a b, i: a c -> a b", {"dim": 1}, "dtype|number of operands"),
    ("scatter", "a b, i: a c, a c -> a b", {"dim": 1, "accumulate": 1}, "'accumulate'"),
    ("scatter", "a b, i: a c, a c -> a b", {"dim": 1, "reduction": "max"}, "'accumulate'"),
    ("index_put", "a b, i: d, b -> a b", {"dims": [0]}, "rank"),
    ("dynamic_slice", "a b, i: [] -> a 2", {"dims": [0, 1]}, "operands"),
    ("dynamic_update_slice", "a b, a 2, [] -> a b", {"dims": [1]}, "dtype"),
    ("pad", "a b -> a b", {"low": [1], "high": [0, 0]}, "'low'"),
    ("pad", "a b -> a b", {"low": [-1, 0], "high": [1, 0]}, "0 or more"),
    ("strided_slice", "a 8 -> a 3", {"dim": 1, "step": 2}, "shape contradicts"),
    ("strided_slice", "a 8 -> a 8", {"dim": 1, "step": 0}, "'step'"),
    ("dilate", "a 4 -> a 13", {"dim": 1, "step": 3}, "dilated dim"),
    ("roll", "a b -> a b", {"dims": [0], "shifts": [1, 2]}, "'shifts'"),
    ("sort", "?: a b -> ?: a b, i: a b", {"dim": 1}, "dtype"),
    ("argmax", "a b -> a", {"dim": 1}, "integer positions"),
    ("one_hot", "a -> a b", {}, "integer ids"),
    ("bitwise_not", "a -> a", {}, "integer dtype"),
    ("grouped_mm", "16 b, e b c, i: 3 -> 16 c", {}, "offsets"),
    ("layer_norm_backward", "a b, a b, b -> a b", {}, "number of operands"),
    ("max_pool_backward", "a 4, a 8 -> a 8", {"size": [2]}, "spatial dims"),
    ("scaled_dot_product_attention_backward", "a 2, a 2, a 3, a 3 -> a 2, a 2, a 3, a a", {}, "number of results"),
    ("arange", "-> a b", {}, "makes one dim"),
    ("bitwise_and", "i: a -> i: a", {"scalar": 1 << 63}, "'scalar'.*a number that i64 holds"),
]


@pytest.mark.parametrize(("op", "signature", "attrs", "words"), REFUSED)
def test_an_op_that_contradicts_its_row_is_refused(op: str, signature: str, attrs: dict[str, Any], words: str) -> None:
    case = of(op, signature, **attrs)[0]
    with pytest.raises(ShardplanError, match=words):
        bind_op(op, case.operands, case.results, attrs=attrs, notation=None)
