"""Calls of torch functions, each with the op that it is imported as."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from planner.ir.graph import TensorType, value_id
from planner.ir.indexing import Rule
from planner.ir.windows import read_interval
from planner.ops import OPS, OpContext, OpDef, Span, bind_op

torch: Any = pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")


NUMPY = {"f32": np.float32, "f64": np.float64, "i64": np.int64, "i32": np.int32, "bool": np.bool_}


F = torch.nn.functional


A = torch.ops.aten


X = torch.linspace(-2, 2, 24).reshape(2, 3, 4)


P = torch.linspace(0.5, 3, 12).reshape(3, 4)


M = torch.linspace(-1, 1, 20).reshape(4, 5)


N = torch.arange(-5, 19, 2).reshape(3, 4)


T = X > 0.3


Q = torch.sin(torch.arange(160.0)).reshape(1, 4, 5, 8)


K = torch.cos(torch.arange(80.0)).reshape(1, 2, 5, 8)


CAUSAL = torch.ones(5, 5, dtype=torch.bool).tril()


I1, I2, I3 = (torch.sin(torch.arange(8 * 6**n).double()).reshape(2, 4, *[6] * n) for n in (1, 2, 3))


W1, W2, W3 = (torch.cos(torch.arange(8 * 3**n).double()).reshape(4, 2, *[3] * n) for n in (1, 2, 3))


V = torch.linspace(0.5, 2, 4).double()


CASES: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    *((getattr(A, name).default, (X,)) for name in ("abs", "cos", "erf", "exp", "gelu", "neg", "relu", "sigmoid")),
    *((getattr(A, name).default, (X,)) for name in ("silu", "sin", "square", "tanh", "clone", "detach", "alias")),
    *((getattr(A, name).default, (P,)) for name in ("log", "reciprocal", "rsqrt", "sqrt", "contiguous")),
    (A.exp.default, (N,)),
    (lambda x: F.gelu(x, approximate="tanh"), (X,)),
    *((getattr(A, name).Tensor, (X, P)) for name in ("add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge")),
    *((getattr(A, name).Tensor, (X, N)) for name in ("add", "sub", "mul", "div", "lt", "ge")),
    *((getattr(A, name).Scalar, (X, 0.5)) for name in ("add", "sub", "mul", "div", "rsub", "eq", "ne", "lt", "le")),
    *((getattr(A, name).Scalar, (N, 2)) for name in ("add", "rsub", "div", "eq", "gt", "ge")),
    *((op, (N, 0.5)) for op in (operator.add, operator.mul, operator.lt)),
    (lambda x, y: torch.add(x, y, alpha=3), (X, P)),
    (lambda x, y: torch.sub(x, y, alpha=2), (N, N)),
    (lambda x: x + 0, (X,)),
    (lambda x: 2 - x, (N,)),
    (lambda x: x**3, (X,)),
    (lambda x: 2.0**x, (X,)),
    (lambda x, y: x**y, (P, P)),
    (torch.maximum, (X, P)),
    (torch.minimum, (X, P)),
    (lambda x: x.clamp(-1, 1), (X,)),
    (lambda x: x.clamp(min=0.25), (X,)),
    (lambda x: x.clamp(max=0.25), (X,)),
    (A.clamp_min.default, (X, -0.5)),
    (A.clamp_max.default, (X, 0.5)),
    *((op, (T, ~T)) for op in (operator.and_, operator.or_, A.bitwise_and.Tensor, A.bitwise_or.Tensor)),
    *((op, (T, ~T)) for op in (torch.logical_and, torch.logical_or)),
    (torch.logical_not, (T,)),
    (torch.bitwise_not, (T,)),
    (lambda x, t: x.masked_fill(t, 7.0), (X, T)),
    (lambda x, t, v: A.masked_fill.Tensor(x, t, v), (X, T, torch.tensor(3.0))),
    (torch.where, (T, X, -X)),
    (lambda t, x: torch.where(t, x, 0.0), (T, X)),
    (lambda t, x: torch.where(t, 0.0, x), (T, X)),
    (lambda t: torch.where(t, 1.0, 2.0), (T,)),
    (lambda x, t: x.masked_fill(t, -torch.inf).softmax(-1), (X, torch.tensor([True, False, False, True]))),
    (lambda x: x.double(), (X,)),
    (lambda x: x.to(torch.int32), (P,)),
    (lambda x, y: A.to.other(x, y), (N, X)),
    (lambda x: A.to.dtype_layout(x, dtype=torch.float64), (X,)),
    (lambda x, y: x.type_as(y), (N, X)),
    (lambda x: A._to_copy.default(x, dtype=torch.float64), (X,)),
    (lambda x: A.to.device(x, "cpu", torch.float64), (X,)),
    (lambda x: F.dropout(x, 0.5, training=False), (X,)),
    (lambda x: (-x).add_(1).mul_(2), (X,)),
    (lambda x: x * torch.tensor(3.0), (X,)),
    (torch.matmul, (X, M)),
    (torch.matmul, (X, M[:, 0])),
    (torch.matmul, (P[0], M)),
    (torch.matmul, (P[0], M[:, 1])),
    (torch.mm, (P, M)),
    (torch.bmm, (X, X.transpose(1, 2))),
    (torch.addmm, (M[0], P, M)),
    (lambda c, a, b: torch.baddbmm(c, a, b, beta=0.5, alpha=2), (X @ X.mT, X, X.transpose(1, 2))),
    (F.linear, (X, M.T, M[0])),
    (F.linear, (X, M.T)),
    (lambda w, ids: F.embedding(ids, w), (M, torch.tensor([[0, 3], [2, 1]]))),
    (lambda x, w: F.layer_norm(x, (4,), w, w), (X, P[0])),
    (lambda x: F.layer_norm(x, (3, 4)), (X,)),
    (lambda x, w: F.rms_norm(x, (4,), w), (X, P[0])),
    (lambda x: F.rms_norm(x, (3, 4), eps=1e-3), (X,)),
    (lambda x: x.softmax(1), (X,)),
    (lambda x: x.softmax(-1, dtype=torch.float64), (X,)),
    (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (Q,)),
    (lambda q, m: F.scaled_dot_product_attention(q, q, q, m, scale=0.3), (Q, CAUSAL)),
    (lambda q, k: F.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True), (Q, K)),
    (
        lambda q, k, m: F.scaled_dot_product_attention(q, k, k, m, enable_gqa=True),
        (Q, K, CAUSAL.expand(1, 1, 5, 5)),
    ),
    (
        lambda q, k, m: F.scaled_dot_product_attention(q, k, k, m, enable_gqa=True),
        (Q, K, torch.sin(torch.arange(100.0)).reshape(1, 4, 5, 5)),
    ),
    *((op, (X,)) for op in (torch.sum, torch.mean, torch.amax, torch.amin, torch.max, torch.min)),
    (lambda x: x.sum((0, -1)), (X,)),
    (lambda x: x.sum(1), (T,)),
    (lambda x: x.mean(-1, keepdim=True), (X,)),
    (lambda x: x.amax(1), (X,)),
    (lambda x: x.prod(), (P,)),
    (lambda x: x.prod(1, keepdim=True), (P,)),
    (lambda x: x.cumsum(-1), (N,)),
    (lambda x: x.cumsum(0), (T,)),
    *((op, (X,)) for op in (lambda x: x.view(6, 4), lambda x: x.reshape(-1), lambda x: x.flatten(1))),
    *((op, (X,)) for op in (lambda x: x.unflatten(2, (2, 2)), lambda x: x.unsqueeze(1), lambda x: x[:, None])),
    (lambda x: A._unsafe_view.default(x, [6, 4]), (X,)),
    (lambda x, y: x.view_as(y), (X, X.reshape(6, 4))),
    (lambda x, y: x.reshape_as(y), (X, X.reshape(6, 4))),
    *((op, (X[:1],)) for op in (lambda x: x.squeeze(), lambda x: x.squeeze(0), lambda x: x.squeeze((0, 1)))),
    (lambda x: x.expand(2, -1, -1), (P,)),
    (lambda x, y: x.expand_as(y), (P, X)),
    (lambda x: torch.broadcast_to(x, (2, 3, 4)), (P,)),
    (lambda x: x.permute(2, 0, -2), (X,)),
    (lambda x: x.permute(0, 1, 2), (X,)),
    (lambda x: x.transpose(-1, 0), (X,)),
    (lambda x: x.swapaxes(0, 1), (X,)),
    (lambda x: x.t(), (P,)),
    (lambda x: x.T, (P,)),
    (lambda x: x[:, 1:], (X,)),
    (lambda x: x[..., -3:-1], (X,)),
    (lambda x: x[:], (X,)),
    (lambda x: x[:, -1], (X,)),
    (lambda x: x[0], (X[:1],)),
    (lambda x: x.narrow(2, 1, 2), (X,)),
    (lambda x: x.split(2, -1), (X,)),
    (lambda x: x.split([1, 2], 1), (X,)),
    (lambda x: x.split(9), (X,)),
    (lambda x: x.chunk(3, 1)[1], (X,)),
    (lambda x: x.unbind(1), (X,)),
    (lambda x: x[:1].unbind(), (X,)),
    (lambda x, y: torch.cat([x, y, x], -2), (X, X)),
    (lambda x, y: torch.cat([x, y]), (P, N)),
    (lambda x, y: torch.stack([x, y], -1), (P, P)),
    (lambda x: x + torch.arange(4), (X,)),
    (lambda x: x + torch.arange(1, 5), (X,)),
    (lambda x: x + torch.arange(2, 9, 2, dtype=torch.float64), (X,)),
    (lambda x: x + torch.full((4,), 2.5), (X,)),
    (lambda x: x + torch.ones(4) + torch.zeros(4), (X,)),
    (lambda x: x + torch.ones_like(x) + torch.zeros_like(x) + torch.full_like(x, 3), (X,)),
    (lambda x: x + x.new_ones(4) + x.new_zeros(4) + x.new_full((4,), 3), (X,)),
    (lambda x: x + torch.scalar_tensor(3), (X,)),
    (lambda x, w, b: F.conv1d(x, w, b, 2, 1, groups=2), (I1, W1, V)),
    (lambda x, w: F.conv1d(x, w, padding="same", groups=2), (I1, W1)),
    (lambda x, w, b: F.conv2d(x, w, b, (1, 2), (0, 1), groups=2), (I2, W2, V)),
    (lambda x, w: F.conv2d(x, w, dilation=2, padding="same", groups=2), (I2, W2)),
    (lambda x, w: F.conv3d(x, w, padding=1, groups=2), (I3, W3)),
    (lambda x, w: F.conv3d(x, w, padding="valid", groups=2), (I3, W3)),
    (lambda x, w: F.conv_transpose1d(x, w, stride=2, padding=1, output_padding=1), (I1, W1)),
    (lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, groups=2), (I2, W2, V)),
    (lambda x, w: F.conv_transpose3d(x, w, padding=1), (I3, W3)),
    (lambda x, w: A.convolution.default(x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 2), (I2, W2)),
    (lambda x, w: A.convolution.default(x, w, None, [2, 1], [0, 1], [1, 1], True, [0, 0], 1), (I2, W2)),
    (lambda x: F.adaptive_avg_pool1d(x, 3), (I1,)),
    (lambda x: F.adaptive_avg_pool2d(x, 3), (I2,)),
    (lambda x: F.adaptive_avg_pool2d(x, 1), (I2,)),
    (lambda x: F.adaptive_avg_pool3d(x, (2, 3, 6)), (I3,)),
    (lambda x: F.avg_pool1d(x, 3, 2, 1), (I1,)),
    (lambda x: F.avg_pool2d(x, (2, 3)), (I2,)),
    (lambda x: F.avg_pool3d(x, 2, ceil_mode=True), (I3,)),
    (lambda x: F.max_pool1d(x, 3, 1, 1), (I1,)),
    (lambda x: F.max_pool2d(x, 3, 2, 1), (I2,)),
    (lambda x: F.max_pool2d(x, 2, dilation=2), (I2[0],)),
    (lambda x: F.max_pool3d(x, (1, 2, 2)), (I3,)),
    (lambda x, v: F.batch_norm(x, v, v * v, v - 1, v, eps=1e-3), (I2, V)),
    (lambda x, v: F.batch_norm(x, v, v * v, v), (I1, V)),
    (lambda x, v: F.batch_norm(x, v, v * v), (I1, V)),
    (lambda x, v: A._native_batch_norm_legit_no_training.default(x, v, v, v, v, 0.1, 1e-5)[0], (I2, V)),
    (lambda x, v: F.group_norm(x, 2, v, v - 1), (I2, V)),
    (lambda x: F.group_norm(x, 4), (I1,)),
    (lambda x: F.interpolate(x, scale_factor=2), (I1,)),
    (lambda x: F.interpolate(x, size=(6, 18)), (I2,)),
    (lambda x: F.interpolate(x, scale_factor=2), (I3,)),
    *((torch.roll, (X, shifts, dims)) for shifts, dims in ((1, 0), (-2, 1), ((1, 2), (0, 1)), (3, None), (0, 0))),
    (lambda x: F.pad(x, (-1, 1)), (X,)),
    (lambda x: F.pad(x, (1, -2, -1, 0), value=2.0), (X,)),
    (lambda x: A.native_group_norm(x, None, None, 2, 4, 3, 2, 1e-5)[0], (torch.arange(24.0).reshape(2, 4, 3).sin(),)),
    *(
        (
            lambda x, n, starts, mode=mode: F.embedding_bag(n, x, starts, mode=mode),
            (P, torch.tensor([1, 0, 2, 1]), torch.tensor([0, 1, 1])),
        )
        for mode in ("sum", "mean")
    ),
    (lambda x, n: F.embedding_bag(n, x, mode="mean", padding_idx=0), (P, torch.tensor([[1, 0], [2, 1]]))),
    (F.l1_loss, (X, X.flip(0))),
    (F.mse_loss, (X, X.flip(0))),
    (F.smooth_l1_loss, (X, X.flip(0))),
    (F.huber_loss, (X, X.flip(0))),
    (lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()), (X, X.flip(0))),
    (lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()), (X, X.flip(0))),
    (lambda x, y: F.cross_entropy(x, y.softmax(-1)), (P, P.flip(0))),
    (lambda x: F.elu(x) + F.softplus(x) + F.mish(x) + F.hardswish(x) + F.leaky_relu(x), (X,)),
    (lambda x: torch.log1p(x.square()) + torch.expm1(x) + x.sign() + x.sgn() + x.floor() + x.ceil() + x.round(), (X,)),
    (lambda x: torch.var(x, -1, correction=1) + torch.std(x, -1, correction=0), (X,)),
    *(
        (lambda x, start=start, step=step: x[..., start::step], (M,))
        for start, step in ((0, 2), (1, 2), (1, 3), (2, 4))
    ),
    (lambda x: x[:, :4:2], (M,)),
    (lambda x: torch.scatter(x, 1, x.argmax(1, keepdim=True), 7.0), (P,)),
    (lambda x: x.tril(), (P,)),
    (lambda x: x.tril(-1), (X,)),
    (lambda x: x.triu(1), (P,)),
]


class Calls(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def whole(array: Any, operand: int, rule: Rule, row: OpDef) -> Any:
    """Return an operand as its windows read it: padded, and cut where they end before the dim does."""
    for axis, dim in enumerate(rule.operands[operand]):
        if dim.coefficients:
            low, high = read_interval(dim, {loop: (0, rule.sizes[loop]) for loop in dim.loops})
            ends = [(-low, max(high - array.shape[axis], 0)) if each == axis else (0, 0) for each in range(array.ndim)]
            array = np.pad(array, ends, constant_values=row.padding).take(range(high - low), axis)
    return array


def run(document: dict[str, Any], arrays: list[Any]) -> list[Any]:
    """Evaluate a document op by op in numpy and return its outputs."""
    types = {entry["id"]: TensorType(tuple(entry["shape"]), entry["dtype"]) for entry in document["inputs"]}
    values = {entry["id"]: arrays[int(entry["id"].removeprefix("args_"))] for entry in document["inputs"]}
    for node in document["nodes"]:
        results = tuple(TensorType(tuple(result["shape"]), result["dtype"]) for result in node["outputs"])
        rule = bind_op(node["op"], tuple(types[v] for v in node["inputs"]), results, attrs=node["attrs"], notation=None)
        spans = {loop: Span(0, size, size) for loop, size in rule.sizes.items()}
        dtypes = tuple(np.dtype(NUMPY[kind.dtype]) for kind in results)
        local = OpContext(np, node["attrs"], spans, tuple(kind.shape for kind in results), dtypes)
        row = OPS[node["op"]]
        made = row.compute(local, *(whole(values[v], i, rule, row) for i, v in enumerate(node["inputs"])))
        for k, array in enumerate(made if isinstance(made, tuple) else (made,)):
            values[value_id(node["id"], k)], types[value_id(node["id"], k)] = array, results[k]
            assert (array.shape, array.dtype) == (results[k].shape, dtypes[k]), node
    return [values[output] for output in document["outputs"]]
