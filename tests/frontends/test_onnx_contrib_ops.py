"""Operators of ONNX Runtime compared with numpy, written from their documentation one position at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import erf
from typing import Any

import numpy as np
import pytest

from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument, validate_document
from planner.errors import InvalidGraph, UnsupportedOp
from planner.frontends.onnx import build_graph_document
from planner.run.executor import SINGLE_DEVICE, run_whole
from tests.testing.onnx_operators import x

onnx: Any = pytest.importorskip("onnx", reason="onnx is not installed: pip install shardplan[onnx]")

pytestmark = pytest.mark.frameworks("onnx")

Array = Any
B, S, D, HEADS, SHARED = 2, 4, 16, 4, 2
SIZE = D // HEADS


def gelu(v: Array) -> Array:
    return np.vectorize(lambda n: 0.5 * n * (1 + erf(n / np.sqrt(2))))(v)


def gelu_tanh(v: Array) -> Array:
    return 0.5 * v * (1 + np.tanh(np.sqrt(2 / np.pi) * (v + 0.044715 * v**3)))


def layer_norm(v: Array, weight: Array, bias: Array | float = 0.0, eps: float = 1e-12) -> Array:
    centred = v - v.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) * weight + bias


def rms_norm(v: Array, weight: Array, eps: float = 1e-12) -> Array:
    return v / np.sqrt((v**2).mean(-1, keepdims=True) + eps) * weight


def attention(q: Array, k: Array, v: Array, causal: bool, mask: Array | None = None) -> Array:
    """[batch, length, heads, size]; query by query, head by head."""
    made, share = np.zeros((*q.shape[:3], v.shape[-1])), q.shape[2] // k.shape[2]
    for b, s, h in np.ndindex(q.shape[:3]):
        seen = s + 1 if causal else k.shape[1]
        scores = k[b, :seen, h // share] @ q[b, s, h] / np.sqrt(q.shape[-1])
        scores = scores if mask is None else scores + mask[b, h, s, :seen]
        powers = np.exp(scores - scores.max())
        made[b, s, h] = powers / powers.sum() @ v[b, :seen, h // share]
    return made.reshape(*q.shape[:2], -1)


def parts(v: Array, heads: int) -> Array:
    return v.reshape(*v.shape[:2], heads, -1)


def turned(v: Array, cos: Array, sin: Array, places: Array) -> Array:
    """[batch, length, heads, size]; token by token."""
    made, half = np.zeros(v.shape), v.shape[-1] // 2
    for b, s in np.ndindex(v.shape[:2]):
        first, second, c, t = v[b, s, :, :half], v[b, s, :, half:], cos[places[b, s]], sin[places[b, s]]
        made[b, s] = np.concatenate([first * c - second * t, second * c + first * t], axis=-1)
    return made


def biased(q: Array, k: Array, v: Array, bias: Array) -> Array:
    queries, keys, values = (parts(each + add, HEADS) for each, add in zip((q, k, v), bias, strict=True))
    return attention(queries, keys, values, True)


def grouped(q: Array, k: Array, v: Array, cos: Array, sin: Array) -> list[Array]:
    places = np.broadcast_to(np.arange(S), (B, S))
    queries, keys = (turned(parts(each, n), cos, sin, places) for each, n in ((q, HEADS), (k, SHARED)))
    values = parts(v, SHARED)
    return [attention(queries, keys, values, True), keys.transpose(0, 2, 1, 3), values.transpose(0, 2, 1, 3)]


@dataclass(frozen=True)
class Case:
    """An operator; None as an operand: left out. `wanted` of the arrays that are there gives the results."""

    op: str
    operands: tuple[Any, ...]
    wanted: Callable[..., Any]
    attrs: dict[str, Any] = field(default_factory=dict)
    results: str = "y"
    domain: str = "com.microsoft"

    def __str__(self) -> str:
        return f"{self.op} of {sum(each is not None for each in self.operands)}"


W, BIAS = x(D, seed=1), x(D, seed=2)
ROWS = (x(B, S, D), x(B, S, D, seed=3))
QKV = (x(B, S, D, seed=4), x(B, S, D, seed=5), x(B, S, D, seed=6))
FEW = (QKV[0], x(B, S, SHARED * SIZE, seed=7), x(B, S, SHARED * SIZE, seed=8))
ANGLES = (x(6, SIZE // 2, seed=9), x(6, SIZE // 2, seed=10))
PLACES = np.random.default_rng(11).integers(0, 6, (B, S))
MASK = x(B, HEADS, S, S, seed=12)
LENGTHS = (np.full(B, S - 1, np.int32), np.array(S, np.int32))
EPS = {"epsilon": 1e-3}

CASES = [
    Case("Gelu", (ROWS[0],), gelu),
    Case("BiasGelu", (ROWS[0], BIAS), lambda v, bias: gelu(v + bias)),
    Case("FastGelu", (ROWS[0],), gelu_tanh),
    Case("FastGelu", (ROWS[0], BIAS), lambda v, bias: gelu_tanh(v + bias)),
    Case("QuickGelu", (ROWS[0],), lambda v: v / (1 + np.exp(-1.5 * v)), {"alpha": 1.5}),
    Case("FusedMatMul", (x(3, 4), x(4, 5)), lambda a, b: 0.5 * a @ b, {"alpha": 0.5}),
    Case("FusedMatMul", (x(2, 4, 3), x(5, 4)), lambda a, b: a.swapaxes(1, 2) @ b.T, {"transA": 1, "transB": 1}),
    Case("SimplifiedLayerNormalization", (ROWS[0], W), lambda v, w: rms_norm(v, w, 1e-3), EPS, domain=""),
    Case("SkipLayerNormalization", (*ROWS, W), lambda v, skip, w: layer_norm(v + skip, w)),
    Case(
        "SkipLayerNormalization",
        (*ROWS, W, BIAS, x(D)),
        lambda v, skip, w, b, more: [layer_norm(v + skip + more, w, b, 1e-3), v + skip + more],
        EPS,
        "y - - sum",
    ),
    Case(
        "SkipSimplifiedLayerNormalization",
        (*ROWS, W, BIAS),
        lambda v, skip, w, more: [rms_norm(v + skip + more, w), v + skip + more],
        {},
        "y - - sum",
    ),
    Case(
        "MultiHeadAttention",
        (*QKV, x(3 * D, seed=13)),
        lambda q, k, v, bias: biased(q, k, v, bias.reshape(3, D)),
        {"num_heads": HEADS, "unidirectional": 1},
    ),
    Case(
        "MultiHeadAttention",
        (*QKV, None, None, MASK),
        lambda q, k, v, mask: attention(parts(q, HEADS), parts(k, HEADS), parts(v, HEADS), False, mask),
        {"num_heads": HEADS},
    ),
    Case(
        "GroupQueryAttention",
        (*FEW, None, None, *LENGTHS, *ANGLES),
        lambda q, k, v, _, __, cos, sin: grouped(q, k, v, cos, sin),
        {"num_heads": HEADS, "kv_num_heads": SHARED, "do_rotary": 1},
        "y keys values",
    ),
    Case(
        "GroupQueryAttention",
        (*FEW, None, None, *LENGTHS),
        lambda q, k, v, _, __: attention(parts(q, HEADS), parts(k, SHARED), parts(v, SHARED), True),
        {"num_heads": HEADS, "kv_num_heads": SHARED},
    ),
    Case(
        "RotaryEmbedding",
        (QKV[0], PLACES, *ANGLES),
        lambda v, places, cos, sin: turned(parts(v, HEADS), cos, sin, places).reshape(B, S, D),
    ),
]
REFUSED = [
    Case("Gelu", (None,), gelu),
    Case("FusedMatMul", (x(3, 4), x(5, 4)), np.matmul),
    Case("MultiHeadAttention", (*QKV,), np.matmul, {"num_heads": 0}),
    Case("MultiHeadAttention", (*QKV,), np.matmul, {"num_heads": 3}),
    Case("GroupQueryAttention", (*FEW,), np.matmul, {"num_heads": 4, "kv_num_heads": 0}),
    Case("GroupQueryAttention", (QKV[0],), np.matmul, {"num_heads": 4, "kv_num_heads": 4}),
    Case("BifurcationDetector", (QKV[0],), np.matmul),
]


def model(case: Case) -> Any:
    helper = onnx.helper
    names = ["" if array is None else f"v{k}" for k, array in enumerate(case.operands)]
    outputs = ["" if name == "-" else name for name in case.results.split()]
    node = helper.make_node(case.op, names, outputs, "it", domain=case.domain, **case.attrs)
    given = [(name, array) for name, array in zip(names, case.operands, strict=True) if name]
    kinds = [(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape) for name, array in given]
    inputs = [helper.make_tensor_value_info(*each) for each in kinds]
    made = [helper.make_empty_tensor_value_info(name) for name in outputs if name]
    graph = helper.make_graph([node], "one", inputs, made)
    versions = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=10)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_operator_of_onnx_runtime_gives_the_numbers_of_its_documentation(case: Case) -> None:
    document = build_graph_document(model(case), "one")
    graph = load_graph(validate_document(GraphDocument, document, "one"), SINGLE_DEVICE)
    arrays = {entry["id"]: case.operands[int(entry["id"][1:])] for entry in document["inputs"]}
    values = run_whole(graph, arrays, np, precision="f64")
    given = [each.astype(float) if each.dtype == np.float32 else each for each in case.operands if each is not None]
    made = case.wanted(*given)
    for name, wanted in zip(graph.outputs, made if isinstance(made, list) else [made], strict=True):
        assert values[name].shape == wanted.shape
        np.testing.assert_allclose(values[name], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_operands_that_do_not_fit_are_refused(case: Case) -> None:
    with pytest.raises((InvalidGraph, UnsupportedOp), match=case.op):
        build_graph_document(model(case), "one")
