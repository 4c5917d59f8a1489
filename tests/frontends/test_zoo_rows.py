"""Backward rows give the numbers of torch's autograd in f64, and forward rows those of torch's own ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from planner.frontends.zoo import import_zoo
from planner.ir.graph import TensorType
from planner.ops import OPS, OpContext, Span, bind_op

torch = pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")

pytestmark = pytest.mark.frameworks("torch")
F = torch.nn.functional

DTYPES = {"torch.float64": "f64", "torch.int64": "i64", "torch.bool": "bool"}


def drawn(*shape: int) -> Any:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


X, Y, W = drawn(2, 5, 8), drawn(2, 5, 6), drawn(8)
Q, K, V = drawn(2, 3, 4, 5, 6), drawn(2, 3, 1, 7, 6), drawn(2, 3, 1, 7, 4)
MASK = drawn(5, 7) > -0.5
ONES = torch.ones(5, 5, dtype=torch.bool)
IDS = torch.tensor([[3, 0, 7, 3, 1], [2, 2, 6, 5, 4]])
ANGLES = drawn(5, 4)
COS, SIN = torch.cos(ANGLES), torch.sin(ANGLES)


def turned(x: Any) -> Any:
    """The rotary embedding as the published code has it, the angles twice side by side."""
    cos, sin = (torch.cat([part, part], -1) for part in (COS, SIN))
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


def with_sinks(q: Any, k: Any, v: Any, sinks: Any) -> Any:
    """The sinks are scores of one more key, whose value is zero."""
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    scores = torch.cat([scores, sinks.expand(*scores.shape[:-1], 1)], -1)
    return scores.softmax(-1)[..., :-1] @ v


def mean_loss(logits: Any) -> Any:
    return F.cross_entropy(logits.flatten(0, 1), IDS.flatten())


# Forward: op, operands, torch's function, attributes.
FORWARD: list[tuple[str, Sequence[Any], Callable[..., Any], dict[str, Any]]] = [
    ("einsum", [X, Y], lambda a, b: torch.einsum("bsk,bsn->kn", a, b), {"equation": "b s k, b s n -> k n"}),
    ("rms_norm", [X, W], lambda x, w: F.rms_norm(x, (8,), w, 1e-6), {"eps": 1e-6}),
    ("rope", [X, COS, SIN], lambda x, cos, sin: turned(x), {}),
    ("gather", [X, IDS[..., None]], lambda x, ids: x.gather(2, ids), {"dim": 2}),
    ("topk", [X], lambda x: tuple(x.topk(3)), {"dim": 2}),
    ("sum_exp", [X, X.amax(-1, True)], lambda x, m: (x - m).exp().sum(-1, keepdim=True), {}),
]

# Backward: op, what its operands are, made of the gradient and the operands of torch's function; that function and
# its operands, of which the first ones want gradients; attributes.
BACKWARD: dict[str, tuple[str, Callable[..., list[Any]], Callable[..., Any], list[Any], int, dict[str, Any]]] = {
    "silu": ("silu_backward", lambda g, x: [g, x], F.silu, [X], 1, {}),
    "gelu": ("gelu_backward", lambda g, x: [g, x], F.gelu, [X], 1, {}),
    "gelu by tanh": (
        "gelu_backward",
        lambda g, x: [g, x],
        lambda x: F.gelu(x, approximate="tanh"),
        [X],
        1,
        {"approximate": "tanh"},
    ),
    "softmax": ("softmax_backward", lambda g, x: [g, x.softmax(1)], lambda x: x.softmax(1), [X], 1, {"dim": 1}),
    "layer norm": (
        "layer_norm_backward",
        lambda g, x, w, b: [g, x, w],
        lambda x, w, b: F.layer_norm(x, (8,), w, b, 1e-3),
        [X, W, W],
        3,
        {"eps": 1e-3},
    ),
    "layer norm over two dims": (
        "layer_norm_backward",
        lambda g, x, w: [g, x, w],
        lambda x, w: F.layer_norm(x, (5, 8), w),
        [X, drawn(5, 8)],
        2,
        {"normalized_dims": 2},
    ),
    "rms norm": (
        "rms_norm_backward",
        lambda g, x, w: [g, x, w],
        lambda x, w: F.rms_norm(x, (8,), w, 1e-6),
        [X, W],
        2,
        {"eps": 1e-6},
    ),
    "rope": ("rope", lambda g, x, c, s: [g, c, s], lambda x, c, s: turned(x), [X, COS, SIN], 1, {"reversed": True}),
    "embedding": ("embedding_backward", lambda g, w, i: [g, i], lambda w, i: w[i], [drawn(8, 6), IDS], 1, {}),
    "attention, shared keys": (
        "scaled_dot_product_attention_backward",
        lambda g, q, k, v: [q, k, v, g],
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3),
        [Q, K, V],
        3,
        {"scale": 0.3},
    ),
    "attention, causal": (
        "scaled_dot_product_attention_backward",
        lambda g, q, k, v: [q, k, v, g],
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        [Q, Q, Y[:, None, None].expand(2, 3, 4, 5, 6).clone()],
        3,
        {"causal": True},
    ),
    "attention, to the last keys": (
        "scaled_dot_product_attention_backward",
        lambda g, q, k, v: [q, k, v, g],
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, ONES.tril() & ONES.triu(-1)),
        [Q, Q, Y[:, None, None].expand(2, 3, 4, 5, 6).clone()],
        3,
        {"causal": True, "window": 2},
    ),
    "attention with sinks": (
        "scaled_dot_product_attention_backward",
        lambda g, q, k, v, sinks: [q, k, v, g, sinks],
        lambda q, k, v, sinks: with_sinks(q, k, v, sinks),
        [Q, K, V, drawn(3, 4, 1, 1)],
        4,
        {"sinks": True},
    ),
    "sigmoid": ("sigmoid_backward", lambda g, x: [g, x.sigmoid()], torch.sigmoid, [X], 1, {}),
    "attention, masked": (
        "scaled_dot_product_attention_backward",
        lambda g, q, k, v, m: [q, k, v, g, m],
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m),
        [Q, K, V, MASK],
        3,
        {},
    ),
    "cross entropy": (
        "cross_entropy_backward",
        lambda g, x: [(g / 10).expand(2, 5, 1), x, x.logsumexp(-1, True), IDS[..., None]],
        mean_loss,
        [X],
        1,
        {},
    ),
}


def run(op: str, operands: Sequence[Any], results: Sequence[Any], attrs: dict[str, Any]) -> list[Any]:
    """The row on whole operands; `results` say what types it is to make."""
    kinds = [TensorType(tuple(t.shape), DTYPES[str(t.dtype)]) for t in (*operands, *results)]
    count = len(operands)
    rule = bind_op(op, tuple(kinds[:count]), tuple(kinds[count:]), attrs=attrs, notation=None)
    spans = {loop: Span(0, size, size) for loop, size in rule.sizes.items()}
    arrays = [operand.detach().numpy() for operand in operands]
    dtypes = tuple(result.detach().numpy().dtype for result in results)
    made = OPS[op].compute(OpContext(np, attrs, spans, tuple(tuple(t.shape) for t in results), dtypes), *arrays)
    return list(made) if isinstance(made, tuple) else [made]


def same(got: Sequence[Any], wanted: Sequence[Any]) -> None:
    for mine, theirs in zip(got, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs.detach().numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("op", "operands", "function", "attrs"), FORWARD, ids=[case[0] for case in FORWARD])
def test_a_forward_row_gives_the_numbers_of_torch(
    op: str, operands: list[Any], function: Callable[..., Any], attrs: dict[str, Any]
) -> None:
    made = function(*operands)
    wanted = made if isinstance(made, tuple) else (made,)
    same(run(op, operands, wanted, attrs), wanted)


@pytest.mark.parametrize("case", BACKWARD)
def test_a_backward_row_gives_the_numbers_of_autograd(case: str) -> None:
    op, arguments, function, operands, count, attrs = BACKWARD[case]
    leaves = [operand.clone().requires_grad_(i < count) for i, operand in enumerate(operands)]
    result = function(*leaves)
    grad = torch.ones_like(result) if result.ndim == 0 else drawn(*result.shape)
    wanted = torch.autograd.grad(result, leaves[:count], grad)
    same(run(op, arguments(grad, *operands), wanted, attrs), wanted)


@pytest.mark.parametrize("name", ["gpt2", "llama-70b", "mixtral-8x7b", "gpt-oss-20b", "deepseek-v3"])
def test_every_backward_row_of_a_training_step_is_among_the_cases(name: str) -> None:
    used = {node["op"] for node in import_zoo(name, layers=1, train="sgd")["nodes"]}
    assert {op for op in used if op.endswith("_backward")} <= {case[0] for case in BACKWARD.values()}


def test_adam_gives_the_numbers_of_torch() -> None:
    weight, first, second = X.clone().requires_grad_(), 0.1 * X, X * X
    weight.grad = X.flip(0)
    attrs = {"lr": 0.01, "beta1": 0.8, "beta2": 0.95, "eps": 1e-6, "weight_decay": 0.1}
    optimizer = torch.optim.AdamW([weight], lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)
    optimizer.state[weight] = {"step": torch.tensor(2.0), "exp_avg": first.clone(), "exp_avg_sq": second.clone()}
    made = run("adam", [X, weight.grad, first, second, torch.tensor(3.0).double()], [X, X, X], attrs)
    optimizer.step()
    state = optimizer.state[weight]
    same(made, [weight, state["exp_avg"], state["exp_avg_sq"]])
