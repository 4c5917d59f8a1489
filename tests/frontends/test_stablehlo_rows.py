"""Every row of the StableHLO table: a small JAX function, imported and run by our executor, gives JAX's result."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.frontends.stablehlo import import_text, trace_function
from planner.ir.mesh import Mesh
from planner.ops import OPS
from planner.run.executor import run_whole

jax: Any = pytest.importorskip("jax", reason="jax is not installed: pip install shardplan[jax]")
jnp, lax, nn = jax.numpy, jax.lax, jax.nn
table = import_module("planner.frontends.stablehlo.op_table")

pytestmark = pytest.mark.frameworks("jax")

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((4, 6)).astype(np.float32)
Y = RANDOM.standard_normal((4, 6)).astype(np.float32)
CUBE = RANDOM.standard_normal((2, 3, 4)).astype(np.float32)
IDS = RANDOM.integers(0, 4, (2, 3)).astype(np.int32)
PAIRS = RANDOM.integers(0, 4, (4, 2)).astype(np.int32)
WHOLE = RANDOM.integers(-9, 9, (4, 6)).astype(np.int32)
IMAGE = RANDOM.standard_normal((2, 9, 8, 3)).astype(np.float32)
KERNEL = RANDOM.standard_normal((3, 2, 3, 4)).astype(np.float32)
GROUPED = RANDOM.standard_normal((3, 2, 1, 6)).astype(np.float32)
AT = np.int32(1)
LAYOUT = ("NHWC", "HWIO", "NHWC")


def convolved(x: Any, kernel: Any, **options: Any) -> Any:
    given = {"window_strides": (1, 1), "padding": "VALID", "dimension_numbers": LAYOUT} | options
    return lax.conv_general_dilated(x, kernel, **given)


def gradients(function: Callable[..., Any]) -> Any:
    """Of the sum of squares, for two operands."""
    return jax.grad(lambda *operands: (function(*operands) ** 2).sum(), argnums=(0, 1))


def gradient(function: Callable[..., Any]) -> Any:
    return jax.grad(lambda x: (function(x) ** 2).sum())


def pooled(x: Any, start: Any, body: Any, padding: Any = "VALID") -> Any:
    return lax.reduce_window(x, start, body, (1, 3, 2, 1), (1, 2, 2, 1), padding)


def counted(x: Any) -> Any:
    return lax.fori_loop(0, 5, lambda turn, carried: carried * 0.5 + turn, x)


def stacked(x: Any) -> Any:
    """A scan that reads rows, stacks results, and goes backwards."""
    carried, rows = lax.scan(lambda total, row: (total + row, total * row), jnp.zeros(6), x, reverse=True)
    return carried, rows


def partly_stacked(x: Any) -> Any:
    return lax.fori_loop(1, 3, lambda turn, rows: rows.at[turn].set(rows[turn] * 2), x)


custom = jax.custom_jvp(lambda x: x * x)
custom.defjvp(lambda primals, tangents: (primals[0] ** 2, 2 * primals[0] * tangents[0]))

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "abs, sign": (lambda x: jnp.abs(x) + jnp.sign(x), (X,)),
    "ceil, floor, round": (lambda x: jnp.ceil(x) + 2 * jnp.floor(x) + 3 * jnp.round(x), (X,)),
    "exp, expm1": (lambda x: jnp.exp(x) + jnp.expm1(x), (X,)),
    "log, log1p": (lambda x: jnp.log(jnp.abs(x)) + jnp.log1p(jnp.abs(x)), (X,)),
    "sin, cos, tanh": (lambda x: jnp.sin(x) + jnp.cos(x) + jnp.tanh(x), (X,)),
    "sqrt, rsqrt": (lambda x: jnp.sqrt(jnp.abs(x)) + lax.rsqrt(jnp.abs(x)), (X,)),
    "logistic, erf, erfc": (lambda x: nn.sigmoid(x) + lax.erf(x) + lax.erfc(x), (X,)),
    "gelu, both ways": (lambda x: nn.gelu(x) + nn.gelu(x, approximate=False), (X,)),
    "atan2, power, remainder": (lambda x, y: jnp.arctan2(x, y) + jnp.abs(x) ** y + lax.rem(x, y), (X, Y)),
    "maximum, minimum, clamp": (lambda x, y: jnp.maximum(x, y) - jnp.minimum(x, 0.5) + jnp.clip(x, -0.3, 0.4), (X, Y)),
    "a scalar on the left": (lambda x: 2.0 / x - (1.0 - x) + 3.0**x, (X,)),
    "integers": (lambda a, b: lax.div(a, 4) + lax.rem(a, 4) + (a & 3) + (a | 4) + (a ^ b) + ~a, (WHOLE, WHOLE[::-1])),
    "comparisons": (lambda x, y: jnp.where((x < y) & ~(x > 0.5) | (y == x), x, y), (X, Y)),
    "comparisons with a scalar": (lambda x: (x >= 0) ^ (x <= 0.5), (X,)),
    "is_finite": (lambda x: jnp.isfinite(1 / jnp.floor(x)), (X,)),
    "casts": (lambda x: x.astype(jnp.int32).astype(jnp.float32) + (x > 0).astype(jnp.float32), (X,)),
    "softmax, logsumexp": (lambda x: nn.softmax(x) + nn.logsumexp(x, 1, keepdims=True), (X,)),
    "products": (
        lambda x, y, z: (x @ y.T, jnp.einsum("ij,ij->i", x, y), jnp.einsum("abc,ic->bai", z, x[:, :4])),
        (X, Y, CUBE),
    ),
    "a batch of products": (lambda z: jnp.einsum("abc,adc->abd", z, z), (CUBE,)),
    "a product in a wider dtype": (
        lambda x, y: jnp.dot(x.astype(jnp.bfloat16), y.T.astype(jnp.bfloat16), preferred_element_type=jnp.float32),
        (np.round(X), np.round(Y)),
    ),
    "a product of integers": (
        lambda a: lax.dot(a.astype(jnp.int8), a.T.astype(jnp.int8), preferred_element_type=jnp.int32),
        (WHOLE,),
    ),
    "products in groups": (
        lambda x, y, n: lax.ragged_dot(x, y.reshape(2, 6, 2), jnp.stack([n, 4 - n])),
        (X, Y, AT),
    ),
    "broadcasts": (lambda x, z: x[:, None, :1] + z[:1].transpose(2, 1, 0) * x[0, 0], (X, CUBE)),
    "a broadcast that is read whole": (lambda x: jnp.repeat(x, 3, axis=1) @ jnp.ones((18, 2)), (X,)),
    "a broadcast cut and reshaped": (
        lambda x: jnp.broadcast_to(x[:, None], (4, 5, 6))[1:3, 2:, ::2].reshape(18, 1),
        (X,),
    ),
    "a broadcast transposed": (lambda x: jnp.broadcast_to(x[:, None], (4, 5, 6)).transpose(2, 0, 1), (X,)),
    "slices": (lambda x: (x[1:3, ::2], x[::-1, 5:1:-1], x[:, 1::4]), (X,)),
    "slices at the data's word": (
        lambda x, at: (lax.dynamic_slice(x, (at, 0), (2, 6)), lax.dynamic_update_slice(x, x[:2, :3], (at, at + 9))),
        (X, AT),
    ),
    "an update of everything": (lambda x: (x.at[...].set(x * 2), x.at[...].add(1.0)), (X,)),
    "an update of nothing": (lambda x: x.at[jnp.zeros(0, int)].set(7.0), (X,)),
    "an update in the middle": (lambda x: x.at[1:3, 2:5].set(7.0), (X,)),
    "an addition in the middle": (lambda x: x.at[1:3, 2:5].add(7.0), (X,)),
    "an update of all": (lambda x: lax.dynamic_update_slice(x, 2 * x, (0, 0)), (X,)),
    "concatenate, stack": (lambda x, y: jnp.stack([jnp.concatenate([x, y]), jnp.concatenate([y, x])], 1), (X, Y)),
    "more than a concat takes": (lambda x: jnp.concatenate([x[i % 4 : i % 4 + 1] for i in range(70)]), (X,)),
    "pad": (lambda x: lax.pad(x, 0.5, ((1, 2, 0), (-1, 3, 0))), (X,)),
    "pad between": (lambda x: lax.pad(x, 0.0, ((1, 2, 1), (-2, -1, 2))), (X,)),
    "iota, tril": (lambda x: jnp.tril(x) + jnp.arange(6) + lax.broadcasted_iota(jnp.float32, (4, 6), 0), (X,)),
    "a constant": (lambda x: x + np.arange(24).reshape(4, 6) ** 2, (X,)),
    "constants worked out": (lambda x: x[jnp.arange(3) * 2 % 4][:, jnp.array([1, 0])], (X,)),
    "embedding": (lambda x, i: x[i], (X, IDS)),
    "embedding backward": (lambda x, i: jax.grad(lambda x: (x[i] ** 2).sum())(x), (X, IDS)),
    "positions in a dim in the middle": (lambda z, i: jnp.take(z, i % 3, axis=1), (CUBE, IDS)),
    "positions in two dims": (lambda x, i: x[i, i + 1], (X, IDS)),
    "positions written": (lambda x, i: (x.at[i[0]].set(1.0), x.at[i, i].add(2.0)), (X, IDS)),
    "maxima and minima at positions": (lambda x, i: (x.at[i[0]].max(1.0), x.at[i, i].min(0.5)), (X, IDS)),
    "a maximum in the middle": (lambda x: x.at[1:3, 2:5].max(0.5), (X,)),
    "positions for a dim at the back": (lambda z, i: z.at[:, :, i[0]].add(1.0), (CUBE, IDS)),
    "take_along_axis": (lambda x, p: jnp.take_along_axis(x, p, 1), (X, PAIRS)),
    "take_along_axis backward": (
        lambda x, p: jax.grad(lambda x: (jnp.take_along_axis(x, p, 1) ** 2).sum())(x),
        (X, PAIRS),
    ),
    "one_hot": (lambda i: nn.one_hot(i, 5), (IDS,)),
    "sums": (lambda z: (z.sum(), z.mean((0, 2)), z.prod(1), jnp.var(z)), (CUBE,)),
    "extremes": (lambda z: (z.max(1), z.min((0, 1)), (z > 0).any(0), (z > 0).all(2)), (CUBE,)),
    "a sum from somewhere": (lambda z: lax.reduce(z, np.float32(3), lax.add, (1,)), (CUBE,)),
    "argmax, argmin": (lambda z: (jnp.argmax(z, 1), jnp.argmin(z, -1)), (CUBE,)),
    "sort, argsort": (lambda x: (jnp.sort(x), jnp.argsort(x, 0), jnp.sort(x, descending=True)), (X,)),
    "sort with others": (lambda x, y: lax.sort((x, y), dimension=1, num_keys=1), (X, Y)),
    "top_k": (lambda x: lax.top_k(x, 2), (X,)),
    "running sums": (lambda x: (jnp.cumsum(x, 1), lax.cumsum(x, 0, reverse=True), jnp.cumprod(x, 1)), (X,)),
    "a convolution": (lambda x, k: convolved(x, k, window_strides=(2, 1), padding=((1, 1), (0, 0))), (IMAGE, KERNEL)),
    "a convolution padded unevenly": (partial(convolved, window_strides=(2, 2), padding="SAME"), (IMAGE, KERNEL)),
    "a convolution with dilation": (partial(convolved, rhs_dilation=(2, 3)), (IMAGE, KERNEL)),
    "a convolution of groups": (partial(convolved, feature_group_count=3), (IMAGE, GROUPED)),
    "gradients of a convolution": (gradients(convolved), (IMAGE, KERNEL)),
    "gradients of one with strides": (gradients(partial(convolved, window_strides=(3, 2))), (IMAGE, KERNEL)),
    "gradients of one padded unevenly": (
        gradients(partial(convolved, window_strides=(2, 2), padding="SAME")),
        (IMAGE, KERNEL),
    ),
    "gradients of one with dilation": (
        gradients(partial(convolved, rhs_dilation=(2, 1), padding=((1, 1), (0, 1)))),
        (IMAGE, KERNEL),
    ),
    "a convolution the other way": (
        lambda x, k: lax.conv_transpose(x, k, (2, 2), "VALID", dimension_numbers=LAYOUT),
        (IMAGE, KERNEL),
    ),
    "a pool of maxima": (lambda x: pooled(x, -jnp.inf, lax.max), (IMAGE,)),
    "a pool of maxima, padded": (lambda x: pooled(x, -jnp.inf, lax.max, ((0, 0), (1, 0), (0, 1), (0, 0))), (IMAGE,)),
    "a pool of sums": (lambda x: pooled(x, 0.0, lax.add, ((0, 0), (1, 1), (1, 1), (0, 0))), (IMAGE,)),
    "the gradient of a pool of maxima": (gradient(lambda x: pooled(x, -jnp.inf, lax.max)), (IMAGE,)),
    "the gradient of a pool of sums": (gradient(lambda x: pooled(x, 0.0, lax.add)), (IMAGE,)),
    "a loop of known turns": (counted, (X,)),
    "a scan": (stacked, (X,)),
    "the gradient of a scan": (gradient(lambda x: stacked(x)[1]), (X,)),
    "a loop that writes some rows": (partly_stacked, (X,)),
    "a scan in a scan": (lambda x: lax.scan(lambda c, r: (c + counted(r), c), jnp.zeros(6), x), (X,)),
    "a branch known beforehand": (lambda x: lax.switch(1, [jnp.sin, jnp.cos, jnp.tanh], x), (X,)),
    "rounded, halves away from zero": (lambda x: lax.round(4 * x), (X,)),
    "trigonometry": (lambda x: jnp.tan(x) + jnp.arctan(x) + jnp.arcsin(x / 9) * jnp.arccos(x / 9), (X,)),
    "hyperbolic functions": (lambda x: jnp.sinh(x) + jnp.cosh(x) + jnp.arcsinh(x) + jnp.arccosh(x * x + 1.5), (X,)),
    "roots": (lambda x: jnp.cbrt(x) + jnp.arctanh(x / 9), (X,)),
    "inverse of the error function": (lambda x: lax.erf_inv(x / 9), (X,)),
    "shifts": (lambda i: (i << 2, i >> 1, lax.shift_right_logical(i, 3), (i.astype(jnp.uint32) >> 1)), (WHOLE,)),
    "the sign's shift of known numbers": (lambda i: i + (jnp.int32(-9) >> 1), (WHOLE,)),
    "bits": (lambda x: lax.bitcast_convert_type(lax.bitcast_convert_type(x, jnp.int32) & -256, jnp.float32), (X,)),
    "bits of bf16": (
        lambda i: lax.bitcast_convert_type(
            lax.bitcast_convert_type((i / 8).astype(jnp.bfloat16), jnp.uint16) + jnp.uint16(1), jnp.bfloat16
        ),
        (WHOLE,),
    ),
    "bits of a number": (lambda i: i + lax.bitcast_convert_type(jnp.float32(1.5), jnp.int32), (WHOLE,)),
    "the neighbour of a number": (lambda x: x + jnp.nextafter(jnp.float32(1), jnp.float32(2)), (X,)),
    "not a number where it matters": (lambda x: jnp.where(jnp.isfinite(x), x, jnp.nan), (X,)),
    "not a number": (lambda x: x + jnp.nan, (X,)),
    "arrays without elements": (lambda x: lax.associative_scan(jnp.add, x), (X,)),
    "positions per row": (
        lambda x, i: jax.vmap(lambda row, at: lax.dynamic_slice(row, (at, 0), (1, 4)))(x, i),
        (CUBE, PAIRS[:2, 0]),
    ),
    "a write at a position per row": (
        lambda x, i: jax.vmap(lambda row, at: lax.dynamic_update_slice(row, row[:1] * 2, (at, 0)))(x, i),
        (CUBE, PAIRS[:2, 0] - 1),
    ),
    "a position per row of vectors": (lambda x, i: jax.vmap(lambda row, at: row[at])(x, i), (X, PAIRS[:, 0])),
    "the gradient of a position per row": (
        lambda x: jax.grad(lambda x: (jax.vmap(lambda row, at: row[at])(x, PAIRS[:2]) ** 2).sum())(x),
        (CUBE,),
    ),
    "the gradient of a convolution in groups": (
        gradients(lambda x, k: convolved(x, k, feature_group_count=3)),
        (IMAGE, GROUPED),
    ),
    "a composite": (lambda x: lax.composite(jnp.tanh, "my.tanh")(x), (X,)),
    "calls": (jax.grad(lambda x: jax.jit(custom)(x).sum() + jax.checkpoint(jnp.tanh)(x).sum()), (X,)),
}


def run(function: Callable[..., Any], operands: tuple[Any, ...]) -> tuple[list[Any], list[Any], dict[str, Any]]:
    """Our results, JAX's, and the document."""
    jitted = jax.jit(function)
    found = trace_function(jitted, *operands, next={})
    made = import_text(found.text, "case")
    leaves = jax.tree.leaves(operands)
    arrays = {name: np.asarray(leaves[leaf]) for name, leaf in zip(made.arguments, found.kept, strict=True)}
    graph = load_graph(GraphDocument.model_validate(made.document), Mesh.parse("1"))
    with np.errstate(all="ignore"):
        values = run_whole(graph, arrays | dict(made.constants), np, precision="f32")
    wanted = [np.asarray(leaf) for leaf in jax.tree.leaves(jitted(*operands))]
    return [values[name] for name in graph.outputs], wanted, made.document


@pytest.mark.parametrize("name", CASES)
def test_a_function_imported_and_run_gives_what_jax_gives(name: str) -> None:
    got, wanted, document = run(*CASES[name])
    assert not {node["op"] for node in document["nodes"]} - OPS.keys()
    assert len(got) == len(wanted)
    for ours, theirs in zip(got, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_every_row_of_the_table_is_reached_by_a_case() -> None:
    texts = [trace_function(jax.jit(function), *operands, next={}).text for function, operands in CASES.values()]
    reached = {
        op for op in table.OP_TABLE for text in texts if f"{op} " in text or f"{op}(" in text or f'{op}"' in text
    }
    assert table.OP_TABLE.keys() - reached == NOT_FROM_JAX


NOT_FROM_JAX = {"stablehlo.logistic", "stablehlo.reduce_precision", "chlo.tan"}
"""Forms that this JAX does not write from the functions above."""
