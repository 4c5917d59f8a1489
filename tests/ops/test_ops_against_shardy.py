"""Shardy's sharding rules of StableHLO ops as an oracle: the factors that it may split are the loops of our rows.

Shardy does not know partial operands, so they are not compared.
"""

from __future__ import annotations

import re

import pytest

from tests.testing.op_case import of
from tests.testing.op_placements import row_ways
from tests.testing.shardy_oracle import Pair, populated, shardy_ways

pytestmark = pytest.mark.frameworks("jaxlib")

TWO = "^bb0(%a: tensor<f32>, %b: tensor<f32>):"
ADD = f"({{{TWO} %s = stablehlo.add %a, %b : tensor<f32> stablehlo.return %s : tensor<f32>}})"
SET = f"({{{TWO} stablehlo.return %b : tensor<f32>}})"
RUNNING = "window_dimensions = array<i64: 1, 16>, padding = dense<[[0, 0], [15, 0]]> : tensor<2x2xi64>"
LESS = (
    "({^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>): %s = stablehlo.compare LT, %a, %b :"
    " (tensor<f32>, tensor<f32>) -> tensor<i1> stablehlo.return %s : tensor<i1>})"
)
ROWS_OF_0 = "offset_dims = [2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2"
ALONG_1 = (
    "collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1],"
    " index_vector_dim = 2"
)
INTO_0 = (
    "update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1"
)
IMAGE = "dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {pad = [[1, 1], [1, 1]]}"


def _pair(
    text: str, types: str, op: str, signature: str, order: tuple[int, ...] | None = None, **attrs: object
) -> Pair:
    operands, results = types.split("->")
    return Pair(f"stablehlo.{text}", operands, results, of(op, signature, **attrs)[0], order)


def _generic(text: str, *rest: object, **attrs: object) -> Pair:
    """In MLIR's generic form: the name in quotation marks."""
    pair = _pair(text, *rest, **attrs)  # type: ignore[arg-type]
    name, _, left = text.partition("(")
    return Pair(f'"stablehlo.{name}"({left}', pair.operands, pair.results, pair.case, pair.order)


X, Y = "8x16xf32", "16x4xf32"
PAIRS = [
    _pair("dot_general %0, %1, contracting_dims = [1] x [0]", f"{X}, {Y} -> 8x4xf32", "matmul", "8 16, 16 4 -> 8 4"),
    _pair(
        "dot_general %0, %1, batching_dims = [0] x [0], contracting_dims = [2] x [1]",
        "8x16x4xf32, 8x4x32xf32 -> 8x16x32xf32",
        "einsum",
        "8 16 4, 8 4 32 -> 8 16 32",
        equation="b m k, b k n -> b m n",
    ),
    _generic("add(%0, %1)", f"{X}, {X} -> {X}", "add", "8 16, 8 16 -> 8 16"),
    _generic("select(%0, %1, %2)", f"8x16xi1, {X}, {X} -> {X}", "where", "?: 8 16, 8 16, 8 16 -> 8 16"),
    _generic(
        "transpose(%0) <{permutation = array<i64: 1, 0>}>",
        f"{X} -> 16x8xf32",
        "transpose",
        "8 16 -> 16 8",
        permutation=[1, 0],
    ),
    _generic("reshape(%0)", "8x16xf32 -> 128xf32", "reshape", "8 16 -> 128"),
    _generic("reshape(%0)", "8x16xf32 -> 8x4x4xf32", "reshape", "8 16 -> 8 4 4"),
    _generic(
        "broadcast_in_dim(%0) <{broadcast_dimensions = array<i64: 0, 1>}>", f"8x1xf32 -> {X}", "expand", "8 1 -> 8 16"
    ),
    _generic(
        "concatenate(%0, %1) <{dimension = 1 : i64}>", f"{X}, {X} -> 8x32xf32", "concat", "8 16, 8 16 -> 8 32", dim=1
    ),
    _generic(
        "slice(%0) <{start_indices = array<i64: 0, 4>, limit_indices = array<i64: 8, 12>, strides = array<i64: 1, 1>}>",
        f"{X} -> 8x8xf32",
        "slice",
        "8 16 -> 8 8",
        dim=1,
        start=4,
        stop=12,
    ),
    _generic(
        "slice(%0) <{start_indices = array<i64: 0, 0>, limit_indices = array<i64: 8, 16>, strides = array<i64: 1, 2>}>",
        f"{X} -> 8x8xf32",
        "strided_slice",
        "8 16 -> 8 8",
        dim=1,
        step=2,
    ),
    _generic(
        "pad(%0, %1) <{edge_padding_low = array<i64: 0, 4>, edge_padding_high = array<i64: 0, 4>,"
        " interior_padding = array<i64: 0, 0>}>",
        f"{X}, f32 -> 8x24xf32",
        "pad",
        "8 16 -> 8 24",
        (0,),
        low=[0, 4],
        high=[0, 4],
    ),
    _generic("reverse(%0) <{dimensions = array<i64: 1>}>", f"{X} -> {X}", "flip", "8 16 -> 8 16", dims=[1]),
    _generic(
        f"reduce(%0, %1) <{{dimensions = array<i64: 1>}}> {ADD}",
        f"{X}, f32 -> 8xf32",
        "sum",
        "8 16 -> 8",
        (0,),
        dims=[1],
    ),
    _generic(
        f"reduce_window(%0, %1) <{{{RUNNING}}}> {ADD}",
        f"{X}, f32 -> {X}",
        "cumsum",
        "8 16 -> 8 16",
        (0,),
        dim=1,
    ),
    _generic(
        f"sort(%0, %1) <{{dimension = 1 : i64, is_stable = true}}> {LESS}",
        f"{X}, 8x16xi32 -> {X}, 8x16xi32",
        "sort",
        "8 16 -> 8 16, i: 8 16",
        (0,),
        dim=1,
    ),
    _generic(
        f"gather(%0, %1) <{{dimension_numbers = #stablehlo.gather<{ROWS_OF_0}>, slice_sizes = array<i64: 1, 4>}}>",
        f"{Y}, 8x32x1xi32 -> 8x32x4xf32",
        "index",
        "16 4, i: 8 32 -> 8 32 4",
        dims=[0],
    ),
    _generic(
        f"gather(%0, %1) <{{dimension_numbers = #stablehlo.gather<{ALONG_1}>, slice_sizes = array<i64: 1, 1>}}>",
        f"{X}, 8x4x1xi32 -> 8x4xf32",
        "gather",
        "8 16, i: 8 4 -> 8 4",
        dim=1,
    ),
    _generic(
        f"scatter(%0, %1, %2) <{{scatter_dimension_numbers = #stablehlo.scatter<{INTO_0}>}}> {ADD}",
        f"{Y}, 32x1xi32, 32x4xf32 -> {Y}",
        "index_put",
        "16 4, i: 32, 32 4 -> 16 4",
        dims=[0],
        accumulate=True,
    ),
    _generic(
        f"scatter(%0, %1, %2) <{{scatter_dimension_numbers = #stablehlo.scatter<{INTO_0}>}}> {SET}",
        f"{Y}, 32x1xi32, 32x4xf32 -> {Y}",
        "index_put",
        "16 4, i: 32, 32 4 -> 16 4",
        dims=[0],
    ),
    _generic(
        "dynamic_slice(%0, %1, %2) <{slice_sizes = array<i64: 8, 4>}>",
        f"{X}, i32, i32 -> 8x4xf32",
        "dynamic_slice",
        "8 16, i: [] -> 8 4",
        (0, 2),
        dims=[1],
    ),
    _generic(
        "dynamic_update_slice(%0, %1, %2, %3)",
        f"{X}, 8x4xf32, i32, i32 -> {X}",
        "dynamic_update_slice",
        "8 16, 8 4, i: [] -> 8 16",
        (0, 1, 3),
        dims=[1],
    ),
    _pair(
        f"convolution(%0, %1) {IMAGE} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}",
        "8x4x16x16xf32, 8x4x3x3xf32 -> 8x8x16x16xf32",
        "convolution",
        "8 4 16 16, 8 4 3 3 -> 8 8 16 16",
        padding=[1, 1],
    ),
]

# reason -> (row, ways as regular expressions)
OURS_ONLY = {
    "an operand that is whole is cut as the result asks": ("slice|dynamic_slice", "R(,R)*->S1"),
    "every device serves the positions in its part": ("dynamic_slice", "S1,R->P"),
    "windows are read with halos, which Shardy leaves to the collectives": (
        "strided_slice|convolution",
        "S(1|2|3)(,R)?->S.*",
    ),
}


@pytest.fixture(scope="module")
def compared() -> list[tuple[Pair, set[str], set[str]]]:
    """Every pair with the ways that are Shardy's, and the row's."""
    found = []
    for pair, rule in zip(PAIRS, populated(PAIRS), strict=True):
        case = pair.case
        ways = (re.sub(r"P[a-z]+", "P", each) for each in row_ways(case.op, case.operands, case.results, case.attrs))
        found.append((pair, shardy_ways(rule, pair), {each for each in ways if "P" not in each.partition("->")[0]}))
    return found


Compared = list[tuple[Pair, set[str], set[str]]]


def test_a_row_may_split_what_shardy_may_split(compared: Compared) -> None:
    assert [(str(pair.case), sorted(theirs - ours)) for pair, theirs, ours in compared if theirs - ours] == []


def test_shardy_may_split_what_a_row_may_split_or_the_list_has_a_reason(compared: Compared) -> None:
    left, used = [], set()
    for pair, theirs, ours in compared:
        for each in sorted(ours - theirs):
            reasons = {
                name
                for name, (op, ways) in OURS_ONLY.items()
                if re.fullmatch(op, pair.case.op) and re.fullmatch(ways, each)
            }
            used |= reasons
            left += [] if reasons else [(str(pair.case), each)]
    assert left == []
    assert used == set(OURS_ONLY), "a reason that explains nothing"
