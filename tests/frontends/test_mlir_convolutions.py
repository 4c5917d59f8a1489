"""Convolutions and products in MLIR text: partitioned with the halo that their windows read, and run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from planner.errors import InvalidGraph, ShardplanError, UnsupportedOp
from planner.frontends.mlir import read_mlir
from planner.ir.program import OpCall
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
    ("conv_1d", (10,), (3,), (8,), [[0]], 1, 1),
    ("conv_2d", (9, 8), (2, 3), (8, 6), [[], [0]], 1, 1),
    ("conv_3d", (5, 4, 4), (2, 1, 3), (4, 4, 2), [[0]], 1, 1),
    ("conv_2d_ngchw_fgchw", (1, 2, 3, 6, 5), (4, 2, 3, 3, 2), (1, 2, 4, 4, 4), [[], [0]], 1, 1),
    ("conv_2d_ngchw_gfchw", (1, 2, 3, 6, 5), (2, 4, 3, 3, 2), (1, 2, 4, 4, 4), [[], [], [], [0]], 1, 1),
    ("conv_2d_nhwgc_gfhwc", (1, 7, 5, 2, 3), (2, 4, 3, 2, 3), (1, 3, 2, 2, 4), [[], [], [], [], [0]], 2, 1),
    ("depthwise_conv_1d_nwc_wc", (2, 9, 4), (3, 4), (2, 5, 4), [[], [0]], 1, 2),
    ("depthwise_conv_1d_ncw_cw", (2, 4, 9), (4, 3), (2, 4, 7), [[], [0]], 1, 1),
    ("depthwise_conv_2d_nhwc_hwc", (1, 9, 6, 4), (3, 2, 4), (1, 4, 3, 4), [[], [0]], 2, 1),
    ("depthwise_conv_2d_nhwc_hwcm", (1, 6, 6, 2), (3, 3, 2, 3), (1, 4, 4, 2, 3), [[], [0], [], [], []], 1, 1),
    ("depthwise_conv_3d_ncdhw_cdhw", (1, 2, 4, 3, 5), (2, 2, 2, 2), (1, 2, 3, 2, 4), [[], [], [0]], 1, 1),
]


def kind(shape: tuple[int, ...]) -> str:
    return f"tensor<{'x'.join(map(str, shape))}xf32>"


def text_of(op: str, image: tuple[int, ...], weights: tuple[int, ...], result: tuple[int, ...], **sizes: object) -> str:
    count, start = sum(dim in "dhw" for dim in dims_of(op)[0]), sizes.get("start", 0.0)
    return f"""mesh.mesh @m(shape = 2)
    func.func @conv(%x: {kind(image)}, %w: {kind(weights)}) -> {kind(result)} {{
      %z = arith.constant dense<{start}> : {kind(result)}
      %y = linalg.{op} {{dilations = dense<{sizes.get("dilation", 1)}> : tensor<{count}xi64>,
        strides = dense<{sizes.get("stride", 1)}> : tensor<{count}xi64>}}
        ins(%x, %w : {kind(image)}, {kind(weights)}) outs(%z : {kind(result)}) -> {kind(result)}
      %s = mesh.shard %y to <@m, {sizes.get("split", [[]])}> : {kind(result)}
      return %s : {kind(result)}
    }}"""


def dims_of(op: str) -> tuple[str, str, str]:
    """Return the dims of image, weights and result as the op's name states them."""
    names = op.removeprefix("depthwise_").split("_")[2:] or ["dhw"[-int(op[5]) :]] * 2
    image, weights = names
    if op.startswith("depthwise"):
        return image, weights, image + ("m" if "m" in weights else "")
    return image, weights, image.replace("c", "f")


def convolve(x: np.ndarray, w: np.ndarray, op: str, *, made: tuple[int, ...], stride: int, dilation: int) -> np.ndarray:
    """Convolve product by product, in the orders that the op's name states."""
    image, weights, result = dims_of(op)
    y = np.zeros(made)
    taps = [dim for dim in weights if dim not in result or dim in "dhw"]
    for place in np.ndindex(y.shape):
        at = dict(zip(result, place, strict=True))
        for tap in np.ndindex(*(w.shape[weights.index(dim)] for dim in taps)):
            read = at | {dim: tap[k] for k, dim in enumerate(taps) if dim not in "dhw"}
            read |= {dim: stride * at[dim] + dilation * tap[taps.index(dim)] for dim in taps if dim in "dhw"}
            kernel = at | dict(zip(taps, tap, strict=True))
            y[place] += x[tuple(read[d] for d in image)] * w[tuple(kernel[d] for d in weights)]
    return y


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
    wanted = convolve(arrays["x"], arrays["w"], op, made=result, stride=stride, dilation=dilation)
    assert np.allclose(whole, wanted)


WRONG: list[tuple[dict[str, object], type[ShardplanError], str]] = [
    ({"stride": "[1, 2, 3]"}, InvalidGraph, r"strides \(got \[1, 2, 3\]; wanted 2 numbers of 1 or more"),
    ({"dilation": 0}, InvalidGraph, r"dilations \(got \[0, 0\]; wanted 2 numbers"),
]


@pytest.mark.parametrize(("sizes", "error", "words"), WRONG)
def test_wrong_convolutions_are_refused_with_their_line(
    sizes: dict[str, object], error: type[ShardplanError], words: str
) -> None:
    text = text_of("conv_2d_nhwc_hwcf", (1, 10, 10, 3), (3, 3, 3, 4), (1, 8, 8, 4), **sizes)
    with pytest.raises(error, match=rf"text: line 4 column \d+: {words}"):
        read_mlir(text)


def test_a_convolution_adds_to_what_it_starts_from() -> None:
    x, w = np.ones((1, 10, 10, 3)), np.ones((3, 3, 3, 4))
    graph, _ = read_mlir(text_of("conv_2d_nhwc_hwcf", x.shape, w.shape, (1, 8, 8, 4), start=1.0))
    assert (run_whole(graph, {"x": x, "w": w}, np, precision="f64")[graph.outputs[0]] == 28).all()


# map of the image, its size, taps, size of the result, split of the result, what the map reads at y and r
GENERIC = [
    ("i + k", 10, 3, 8, 0, lambda y, r: y + r),
    ("k + i", 10, 3, 8, 0, lambda y, r: y + r),
    ("i * 2 + k", 10, 3, 4, 0, lambda y, r: 2 * y + r),
    ("(k * 3) + 2 * i", 15, 4, 3, 0, lambda y, r: 2 * y + 3 * r),
    ("i + (i + k)", 11, 3, 5, 0, lambda y, r: 2 * y + r),
]


def generic_text(read: str, image: int, taps: int, made: int, *, loops: str = "(i, k)", split: str = "[[0]]") -> str:
    return f"""mesh.mesh @m(shape = 2)
    #in = affine_map<{loops} -> ({read})>
    #tap = affine_map<{loops} -> (k)>
    #out = affine_map<{loops} -> (i)>
    func.func @conv(%x: {kind((image,))}, %w: {kind((taps,))}) -> {kind((made,))} {{
      %z = arith.constant dense<0.0> : {kind((made,))}
      %y = linalg.generic {{indexing_maps = [#in, #tap, #out], iterator_types = ["parallel", "reduction"]}}
        ins(%x, %w : {kind((image,))}, {kind((taps,))}) outs(%z : {kind((made,))}) {{
      ^bb0(%a: f32, %b: f32, %c: f32):
        %m = arith.mulf %a, %b : f32
        %s = arith.addf %c, %m : f32
        linalg.yield %s : f32
      }} -> {kind((made,))}
      %s = mesh.shard %y to <@m, {split}> : {kind((made,))}
      return %s : {kind((made,))}
    }}"""


@pytest.mark.parametrize(("read", "image", "taps", "made", "axis", "place"), GENERIC)
def test_generic_windows_are_split_along_the_result_s_loop(
    read: str, image: int, taps: int, made: int, axis: int, place: Callable[[int, int], int]
) -> None:  # conformance 61
    graph, mesh = read_mlir(generic_text(read, image, taps, made))
    program = materialized(graph, mesh, propagate(graph, mesh))
    assert program.values[program.outputs[0]].sharding == Sharding(((axis,),))
    (call,) = (done for done in program.instructions if isinstance(done, OpCall))
    # The image is split along i, the taps not at all.
    assert [call.operand_sharding(n, mesh).split_axes for n in (0, 1)] == [((axis,),), ((),)]
    assert validate(program, shrinking="none").verdict == "equal"
    x, w = np.random.default_rng(0).normal(size=image), np.random.default_rng(1).normal(size=taps)
    whole = run_whole(graph, {"x": x, "w": w}, np, precision="f64")[graph.outputs[0]]
    assert np.allclose(whole, [sum(x[place(y, r)] * w[r] for r in range(taps)) for y in range(made)])


@pytest.mark.parametrize("read", ["i floordiv 2", "i - k", "i + k + 1", "i * k", "i mod 3", "i + s", "-i"])
def test_maps_that_are_no_sums_of_loops_are_refused_with_their_line(read: str) -> None:
    with pytest.raises(UnsupportedOp, match=r"line 7 column \d+: indexing maps .* of sums of loops and 0"):
        read_mlir(generic_text(read, 10, 3, 8, loops="(i, k)[s]"))


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
