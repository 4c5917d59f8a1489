"""Array functions give torch's numbers; gradients equal those of autograd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from planner.ir.graph import TensorType
from planner.ops import OPS, OpContext, Span, bind_op

torch = pytest.importorskip("torch", reason="torch is not installed: nothing to compare with")

pytestmark = pytest.mark.frameworks("torch")
F = torch.nn.functional

NAMES = {np.dtype("float64"): "f64", np.dtype("int64"): "i64", np.dtype("bool"): "bool"}
R = torch.linspace(-2, 2, 96, dtype=torch.float64).sin()
X, Y, POSITIVE = R.reshape(4, 6, 4), (3 * R).cos().reshape(4, 6, 4), R.reshape(4, 24).exp()
M = (7 * R).cos().reshape(4, 24)
N = torch.arange(-12, 12).reshape(4, 6)
IDS = torch.tensor([[0, 3, 1], [5, 2, 2], [4, 0, 5], [1, 1, 3]])
ROWS = torch.tensor([3, 0, 1, 3])
HALF = M > 0.2
IMAGE = torch.arange(2 * 3 * 9 * 8, dtype=torch.float64).sin().reshape(2, 3, 9, 8)
HEADS = (torch.arange(2 * 4 * 5 * 3, dtype=torch.float64) * k for k in (1, 2, 3))
Q, K, V = (each.sin().reshape(2, 4, 5, 3) for each in HEADS)
BIAS = torch.arange(4 * 5 * 5, dtype=torch.float64).cos().reshape(1, 4, 5, 5)
OFFSETS = torch.tensor([2, 2, 7])
TOKENS, EXPERTS = M.reshape(8, 12), (5 * R[:72]).sin().reshape(3, 12, 2)


def run(op: str, operands: Sequence[Any], like: Sequence[Any], **attrs: Any) -> list[Any]:
    """The row's array function on torch's tensors, unsharded; `like`: tensors of the results' types."""
    arrays = [each.detach().numpy() for each in operands]
    given, wanted = (
        tuple(TensorType(tuple(t.shape), NAMES[t.detach().numpy().dtype]) for t in ts) for ts in (operands, like)
    )
    rule = bind_op(op, given, wanted, attrs=attrs, notation=None)
    spans = {loop: Span(0, size, size) for loop, size in rule.sizes.items()}
    dtypes = tuple(t.detach().numpy().dtype for t in like)
    made = OPS[op].compute(OpContext(np, attrs, spans, tuple(tuple(t.shape) for t in like), dtypes), *arrays)
    return [np.asarray(each) for each in (made if isinstance(made, tuple) else (made,))]


def check(op: str, operands: Sequence[Any], wanted: Any, **attrs: Any) -> None:
    like = list(wanted) if isinstance(wanted, (tuple, list)) else [wanted]
    for got, want in zip(run(op, operands, like, **attrs), like, strict=True):
        np.testing.assert_allclose(got, want.detach().numpy(), rtol=1e-9, atol=1e-12, err_msg=op)


def _experts(x: Any, weights: Any) -> Any:
    """Row by row."""
    expert = torch.bucketize(torch.arange(len(x)), OFFSETS, right=True)
    return torch.stack([x[t] @ weights[e] if e < len(weights) else x[t] @ weights[0] * 0 for t, e in enumerate(expert)])


# op, operands, torch's result, attributes
FORWARD: list[tuple[str, tuple[Any, ...], Any, dict[str, Any]]] = [
    *((op, (M,), getattr(torch, op)(M), {}) for op in ("expm1", "floor", "ceil", "round", "sign", "erf", "sigmoid")),
    ("log1p", (POSITIVE,), POSITIVE.log1p(), {}),
    ("truncate", (3 * M,), (3 * M).trunc(), {}),
    ("softplus", (M,), F.softplus(M), {}),
    ("is_finite", (1 / (M - M[0, 0]),), torch.isfinite(1 / (M - M[0, 0])), {}),
    *(
        (op, (N, N.flip(0) + 30), getattr(torch, op)(N, N.flip(0) + 30), {})
        for op in ("remainder", "fmod", "bitwise_xor")
    ),
    ("floor_divide", (N,), N // 5, {"scalar": 5}),
    ("divide", (N,), torch.div(N, 5, rounding_mode="trunc"), {"scalar": 5}),
    ("bitwise_not", (N,), ~N, {}),
    ("atan2", (M, POSITIVE), torch.atan2(M, POSITIVE), {}),
    ("gather", (N, IDS), N.gather(1, IDS), {"dim": 1}),
    ("index", (X, ROWS), X.index_select(0, ROWS), {"dims": [0]}),
    ("index", (X, IDS), X[:, IDS], {"dims": [1]}),
    ("index", (X, ROWS[:, None], IDS), X[ROWS[:, None], IDS], {"dims": [0, 1]}),
    ("index", (X, -1 - ROWS), X[-1 - ROWS], {"dims": [0], "beyond": "wrap"}),
    ("scatter", (N, IDS * 0 + ROWS[:3], IDS), N.scatter(1, IDS * 0 + ROWS[:3], IDS), {"dim": 1}),
    ("scatter", (N, IDS, IDS), N.scatter_add(1, IDS, IDS), {"dim": 1, "accumulate": True}),
    (
        "scatter",
        (M, IDS, M[:, 1:4]),
        M.scatter_reduce(1, IDS, M[:, 1:4], "amin"),
        {"dim": 1, "accumulate": True, "reduction": "min"},
    ),
    ("index_put", (M, ROWS[1:], Y[1:].flatten(1)), M.index_put((ROWS[1:],), Y[1:].flatten(1)), {"dims": [0]}),
    ("index_put", (M, ROWS, POSITIVE), M.index_add(0, ROWS, POSITIVE), {"dims": [0], "accumulate": True}),
    (
        "index_put",
        (N, ROWS[:, None], IDS, IDS),
        N.index_put((ROWS[:, None], IDS), IDS, accumulate=True),
        {"dims": [0, 1], "accumulate": True},
    ),
    ("embedding", (X[0], IDS), F.embedding(IDS, X[0]), {}),
    ("one_hot", (IDS,), F.one_hot(IDS, 6), {}),
    ("topk", (M,), torch.topk(M, 5, dim=1), {"dim": 1}),
    ("sort", (N % 5,), torch.sort(N % 5, dim=1, stable=True), {"dim": 1}),
    ("sort", (N % 5,), torch.sort(N % 5, dim=0, descending=True, stable=True), {"dim": 0, "descending": True}),
    ("argmax", (M,), M.argmax(1), {"dim": 1}),
    ("argmin", (X,), X.argmin(1, keepdim=True), {"dim": 1, "keepdim": True}),
    ("cumsum", (N,), N.cumsum(0), {"dim": 0}),
    ("cumprod", (M,), M.cumprod(1), {"dim": 1}),
    ("variance", (X,), X.var((0, 2)), {"dims": [0, 2]}),
    ("variance", (X,), X.var(1, correction=0, keepdim=True), {"dims": [1], "correction": 0, "keepdim": True}),
    ("log_sum_exp", (X,), X.logsumexp((1, 2)), {"dims": [1, 2]}),
    ("log_softmax", (X,), X.log_softmax(1), {"dim": 1}),
    ("pad", (X,), F.pad(X, (1, 0, 2, 3), value=0.5), {"low": [0, 2, 1], "high": [0, 3, 0], "value": 0.5}),
    ("flip", (X,), X.flip(0, 2), {"dims": [0, 2]}),
    ("roll", (X,), X.roll((2, -1), (0, 1)), {"dims": [0, 1], "shifts": [2, -1]}),
    ("strided_slice", (M,), M[:, ::3], {"dim": 1, "step": 3}),
    ("tril", (X,), X.tril(-1), {"diagonal": -1}),
    ("triu", (N,), N.triu(2), {"diagonal": 2}),
    ("arange", (), torch.arange(3, 15, 2).reshape(1, 6, 1).expand(2, 6, 3), {"start": 3, "step": 2, "dim": 1}),
    ("max", (HALF,), HALF.any(1), {"dims": [1]}),
    ("min", (HALF,), HALF.all(1), {"dims": [1]}),
    ("grouped_mm", (TOKENS, EXPERTS, OFFSETS), _experts(TOKENS, EXPERTS), {}),
]


@pytest.mark.parametrize(("op", "operands", "wanted", "attrs"), FORWARD, ids=[case[0] for case in FORWARD])
def test_an_op_gives_the_numbers_of_torch(op: str, operands: Any, wanted: Any, attrs: dict[str, Any]) -> None:
    check(op, operands, wanted, **attrs)


def _attention(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


Reads = Callable[[Any, tuple[Any, ...], Any], tuple[Any, ...]]


def _operands(dy: Any, xs: tuple[Any, ...], y: Any) -> tuple[Any, ...]:
    return dy, *xs


def _result(dy: Any, xs: tuple[Any, ...], y: Any) -> tuple[Any, ...]:
    return dy, y


# op, function, its operands, the backward op's operands from (dy, operands, y), attributes
BACKWARD: list[tuple[str, Callable[..., Any], tuple[Any, ...], Reads, dict[str, Any]]] = [
    ("relu_backward", torch.relu, (M,), _result, {}),
    ("tanh_backward", torch.tanh, (M,), _result, {}),
    ("sigmoid_backward", torch.sigmoid, (M,), _result, {}),
    ("silu_backward", F.silu, (M,), _operands, {}),
    ("gelu_backward", F.gelu, (M,), _operands, {}),
    ("softmax_backward", lambda x: x.softmax(1), (X,), _result, {"dim": 1}),
    ("log_softmax_backward", lambda x: x.log_softmax(1), (X,), _result, {"dim": 1}),
    ("layer_norm_backward", lambda x: F.layer_norm(x, (4,)), (X,), _operands, {}),
    (
        "layer_norm_backward",
        lambda x, w, b: F.layer_norm(x, (4,), w, b),
        (X, R[:4], R[4:8]),
        lambda dy, xs, y: (dy, *xs[:2]),
        {},
    ),
    ("rms_norm_backward", lambda x, w: F.rms_norm(x, (4,), w, 1e-5), (X, R[:4]), _operands, {}),
    ("embedding_backward", lambda w: F.embedding(IDS, w), (X[0],), lambda dy, xs, y: (dy, IDS), {}),
    (
        "grouped_mm_weight_backward",
        lambda w: _experts(TOKENS, w),
        (EXPERTS,),
        lambda dy, xs, y: (TOKENS, dy, OFFSETS),
        {},
    ),
    (
        "grouped_mm",
        lambda x: _experts(x, EXPERTS),
        (TOKENS,),
        lambda dy, xs, y: (dy, EXPERTS.transpose(1, 2).contiguous(), OFFSETS),
        {},
    ),
    ("scaled_dot_product_attention_backward", _attention, (Q, K, V, BIAS), lambda dy, xs, y: (*xs[:3], dy, xs[3]), {}),
    ("pad", lambda x: x[:, 2:5], (X,), lambda dy, xs, y: (dy,), {"low": [0, 2, 0], "high": [0, 1, 0]}),
    ("dilate", lambda x: x[:, ::3], (M,), lambda dy, xs, y: (dy,), {"dim": 1, "step": 3}),
    (
        "scatter",
        lambda x: x.gather(1, IDS),
        (M[:, :6],),
        lambda dy, xs, y: (0 * xs[0], IDS, dy),
        {"dim": 1, "accumulate": True},
    ),
    ("index_put", lambda x: x[:, IDS], (X,), lambda dy, xs, y: (0 * xs[0], IDS, dy), {"dims": [1], "accumulate": True}),
    (
        "max_pool_backward",
        lambda x: F.max_pool2d(x, (3, 2), (2, 2), (1, 0)),
        (IMAGE,),
        _operands,
        {"size": [3, 2], "stride": [2, 2], "padding": [1, 0]},
    ),
    (
        "average_pool_backward",
        lambda x: F.avg_pool2d(x, (3, 2), (2, 2), (1, 0)),
        (IMAGE,),
        lambda dy, xs, y: (dy,),
        {"size": [3, 2], "stride": [2, 2], "padding": [1, 0]},
    ),
]


@pytest.mark.parametrize(("op", "function", "operands", "reads", "attrs"), BACKWARD, ids=[case[0] for case in BACKWARD])
def test_a_gradient_equals_that_of_autograd(
    op: str, function: Callable[..., Any], operands: tuple[Any, ...], reads: Reads, attrs: dict[str, Any]
) -> None:
    leaves = [each.detach().clone().requires_grad_() for each in operands]
    y = function(*leaves)
    dy = (torch.arange(y.numel(), dtype=torch.float64) / 5).cos().reshape(y.shape)
    y.backward(dy)
    check(op, reads(dy, tuple(leaves), y), [leaf.grad for leaf in leaves], **attrs)


def test_a_split_cross_entropy_with_ignored_ids_gives_the_numbers_of_torch() -> None:
    ids = torch.tensor([3, -100, 0, 23])
    logits = M.clone().requires_grad_()
    F.cross_entropy(logits, ids).backward()
    high, column, counted = M.amax(1, keepdim=True), ids[:, None], (ids != -100)[:, None]
    lse = torch.from_numpy(run("sum_exp", (M, high), [high])[0]).log() + high
    picked = torch.from_numpy(run("gather", (M - lse, column), [high], dim=1, beyond="drop")[0])
    torch.testing.assert_close(-(picked * counted).sum() / 3, F.cross_entropy(M, ids))
    check("cross_entropy_backward", (counted.double() / 3, M, lse, column), logits.grad)


def test_a_start_is_moved_so_that_the_slice_is_inside() -> None:
    start = torch.tensor(22)
    check("dynamic_slice", (M, start), M[:, 19:24], dims=[1])
    wanted = torch.cat([M[:, :19], POSITIVE[:, :5]], 1)
    check("dynamic_update_slice", (M, POSITIVE[:, :5], start), wanted, dims=[1])
