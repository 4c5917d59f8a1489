"""Convolutions and products in MLIR text: partitioned with the halo that their windows read, and run."""

from __future__ import annotations

import numpy as np
import pytest

from planner.errors import InvalidGraph, ShardplanError, UnsupportedOp
from planner.frontends.mlir import read_mlir
from planner.ir.sharding import Sharding
from planner.rewrite.propagation.propagate import propagate
from planner.run.executor import run_whole
from planner.run.validate import validate
from tests.testing.annotated_notation import materialized

# op, image, weights, result, split of the result, strides, dilations
CONVOLUTIONS = [
    ("conv_2d_nhwc_hwcf", (1, 10, 10, 3), (3, 3, 3, 4), (1, 8, 8, 4), [[], [0]], 1, 1),
    ("conv_2d_nhwc_hwcf", (2, 9, 7, 3), (3, 2, 3, 4), (2, 4, 3, 4), [[], [0]], 2, 1),
    ("conv_2d_nhwc_fhwc", (2, 9, 9, 3), (4, 3, 3, 3), (2, 5, 5, 4), [[], [], [0]], 1, 2),
    ("conv_2d_nchw_fchw", (2, 3, 9, 8), (4, 3, 3, 1), (2, 4, 7, 8), [[], [], [0]], 1, 1),
    ("conv_1d_ncw_fcw", (2, 3, 9), (4, 3, 3), (2, 4, 7), [[], [], [0]], 1, 1),
    ("conv_1d_nwc_wcf", (2, 9, 3), (3, 3, 4), (2, 7, 4), [[], [], [0]], 1, 1),
    ("conv_3d_ndhwc_dhwcf", (1, 5, 4, 3, 2), (2, 2, 2, 2, 3), (1, 4, 3, 2, 3), [[], [0]], 1, 1),
]


def kind(shape: tuple[int, ...]) -> str:
    return f"tensor<{'x'.join(map(str, shape))}xf32>"


def text_of(op: str, image: tuple[int, ...], weights: tuple[int, ...], result: tuple[int, ...], **sizes: object) -> str:
    count, start = len(image) - 2, sizes.get("start", 0.0)
    return f"""mesh.mesh @m(shape = 2)
    func.func @conv(%x: {kind(image)}, %w: {kind(weights)}) -> {kind(result)} {{
      %z = arith.constant dense<{start}> : {kind(result)}
      %y = linalg.{op} {{dilations = dense<{sizes.get("dilation", 1)}> : tensor<{count}xi64>,
        strides = dense<{sizes.get("stride", 1)}> : tensor<{count}xi64>}}
        ins(%x, %w : {kind(image)}, {kind(weights)}) outs(%z : {kind(result)}) -> {kind(result)}
      %s = mesh.shard %y to <@m, {sizes.get("split", [[]])}> : {kind(result)}
      return %s : {kind(result)}
    }}"""


def convolve(x: np.ndarray, w: np.ndarray, op: str, *, stride: int, dilation: int) -> np.ndarray:
    """Convolve element by element of the result, in the orders that the op's name states."""
    images, weights = op.split("_")[2:]
    x = x.transpose([images.index(c) for c in "ncdhw" if c in images])
    w = w.transpose([weights.index(c) for c in "fcdhw" if c in weights])
    space = [
        (size - dilation * (taps - 1) - 1) // stride + 1 for size, taps in zip(x.shape[2:], w.shape[2:], strict=True)
    ]
    made = np.zeros((len(x), len(w), *space))
    for n, f, *at in np.ndindex(made.shape):
        window = tuple(
            slice(p * stride, p * stride + dilation * taps, dilation) for p, taps in zip(at, w.shape[2:], strict=True)
        )
        made[(n, f, *at)] = (x[(n, slice(None), *window)] * w[f]).sum()
    first = [c for c in "nfdhw" if c in images.replace("c", "f")]
    return made.transpose([first.index(c) for c in images.replace("c", "f")])


@pytest.mark.parametrize(("op", "image", "weights", "result", "split", "stride", "dilation"), CONVOLUTIONS)
def test_named_convolutions_are_partitioned_and_run(
    op: str,
    image: tuple[int, ...],
    weights: tuple[int, ...],
    result: tuple[int, ...],
    split: list[list[int]],
    stride: int,
    dilation: int,
) -> None:  # conformance 61
    graph, mesh = read_mlir(text_of(op, image, weights, result, split=split, stride=stride, dilation=dilation))
    program = materialized(graph, mesh, propagate(graph, mesh))
    assert program.values[program.outputs[0]].sharding == Sharding(tuple(map(tuple, split))).complete(len(result), mesh)
    assert validate(program, shrinking="none").verdict == "equal"
    random = np.random.default_rng(0)
    arrays = {name: random.normal(size=shape) for name, shape in (("x", image), ("w", weights))}
    whole = run_whole(graph, arrays, np, precision="f64")[graph.outputs[0]]
    assert np.allclose(whole, convolve(arrays["x"], arrays["w"], op, stride=stride, dilation=dilation))


WRONG: list[tuple[dict[str, object], type[ShardplanError], str]] = [
    ({"stride": "[1, 2, 3]"}, InvalidGraph, r"strides \(got \[1, 2, 3\]; wanted 2 numbers of 1 or more"),
    ({"dilation": 0}, InvalidGraph, r"dilations \(got \[0, 0\]; wanted 2 numbers"),
    (
        {"start": 1.0},
        UnsupportedOp,
        r"accumulation of a convolution with channels last \(got %z; wanted a start of zeros",
    ),
]


@pytest.mark.parametrize(("sizes", "error", "words"), WRONG)
def test_wrong_convolutions_are_refused_with_their_line(
    sizes: dict[str, object], error: type[ShardplanError], words: str
) -> None:
    text = text_of("conv_2d_nhwc_hwcf", (1, 10, 10, 3), (3, 3, 3, 4), (1, 8, 8, 4), **sizes)
    with pytest.raises(error, match=rf"text: line 4 column \d+: {words}"):
        read_mlir(text)


# left, right, result, rule
DOTS = [
    ((4, 6), (6, 8), (4, 8), None),
    ((6,), (6, 8), (8,), "d0, d0 d1 -> d1"),
    ((4, 6), (6,), (4,), "d1 d0, d0 -> d1"),
    ((6,), (6,), (), "d0, d0 -> []"),
]


@pytest.mark.parametrize("name", ["mhlo.dot", "stablehlo.dot"])
@pytest.mark.parametrize(("left", "right", "result", "rule"), DOTS)
def test_dot_joins_the_last_dim_with_the_first(
    left: tuple[int, ...], right: tuple[int, ...], result: tuple[int, ...], rule: str | None, name: str
) -> None:
    sides = [kind(left), kind(right), kind(result).replace("<x", "<")]
    graph, _ = read_mlir(f"""mesh.mesh @m(shape = 2)
    func.func @f(%x: {sides[0]}, %w: {sides[1]}) -> {sides[2]} {{
      %y = "{name}"(%x, %w) : ({sides[0]}, {sides[1]}) -> {sides[2]}
      return %y : {sides[2]}
    }}""")
    (op,) = graph.ops
    assert (op.op, op.attrs.get("equation")) == (("einsum", rule) if rule else ("matmul", None))


def test_dot_takes_no_batches() -> None:
    text = text_of("conv_1d_ncw_fcw", (2, 3, 9), (4, 3, 3), (2, 4, 7))
    line = f'%d = "mhlo.dot"(%x, %w) : ({kind((2, 3, 9))}, {kind((4, 3, 3))}) -> {kind((2, 4, 7))}'
    with pytest.raises(InvalidGraph, match=r"ranks \(got \[3, 3\]; wanted two operands of rank 1 or 2"):
        read_mlir(text.replace("%z =", f"{line}\n%z ="))


# op, left, right, split of the left operand, equation
VECTOR_PRODUCTS = [
    ("dot", (7,), (7,), [[0]], "k,k->"),
    ("matvec", (5, 7), (7,), [[0]], "mk,k->m"),
    ("matvec", (5, 7), (7,), [[], [0]], "mk,k->m"),
    ("vecmat", (7,), (7, 5), [[0]], "k,kn->n"),
    ("batch_matvec", (3, 5, 7), (3, 7), [[0]], "bmk,bk->bm"),
    ("batch_matvec", (3, 5, 7), (3, 7), [[], [], [0]], "bmk,bk->bm"),
    ("batch_vecmat", (3, 7), (3, 7, 5), [[], [0]], "bk,bkn->bn"),
]


def product_text(op: str, left: tuple[int, ...], right: tuple[int, ...], split: object, result: tuple[int, ...]) -> str:
    made = kind(result).replace("<x", "<")
    return f"""mesh.mesh @m(shape = 2)
    func.func @f(%x: {kind(left)}, %w: {kind(right)}) -> {made} {{
      %s = mesh.shard %x to <@m, {split}> : {kind(left)}
      %z = arith.constant dense<0.0> : {made}
      %y = linalg.{op} ins(%s, %w : {kind(left)}, {kind(right)}) outs(%z : {made}) -> {made}
      return %y : {made}
    }}"""


@pytest.mark.parametrize(("op", "left", "right", "split", "equation"), VECTOR_PRODUCTS)
def test_products_with_vectors_are_partitioned_and_run(
    op: str, left: tuple[int, ...], right: tuple[int, ...], split: list[list[int]], equation: str
) -> None:
    random = np.random.default_rng(0)
    x, w = random.normal(size=left), random.normal(size=right)
    wanted = np.einsum(equation, x, w)
    graph, mesh = read_mlir(product_text(op, left, right, split, wanted.shape))
    program = materialized(graph, mesh, propagate(graph, mesh))
    assert program.values["x"].sharding == Sharding(tuple(map(tuple, split))).complete(len(left), mesh)
    assert validate(program, shrinking="none").verdict == "equal"
    assert np.allclose(run_whole(graph, {"x": x, "w": w}, np, precision="f64")[graph.outputs[0]], wanted)


def test_a_product_of_other_ranks_is_refused_with_its_line() -> None:
    text = product_text("matvec", (5, 7), (7, 2), [[]], (5, 2))
    with pytest.raises(InvalidGraph, match=r"line 5 column \d+: operands of a product \(got \[2, 2\]; wanted ranks 2"):
        read_mlir(text)
