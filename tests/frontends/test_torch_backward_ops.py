"""Rows of the ATen table that training steps, losses and positions need: our numbers equal torch's."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from planner.frontends.torch import build_graph_document
from tests.testing.torch_calls import CASES as OTHERS
from tests.testing.torch_calls import Calls, run
from tests.testing.torch_draws import DRAWS
from tests.testing.torch_draws import X as DRAWN
from tests.testing.torch_elements import CASES as ELEMENTS

torch: Any = pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")
aten = import_module("planner.frontends.torch.op_table")

pytestmark = pytest.mark.frameworks("torch")

F = torch.nn.functional
A = torch.ops.aten

X = torch.sin(torch.arange(24.0)).reshape(2, 3, 4)
Y = torch.cos(torch.arange(24.0)).reshape(2, 3, 4)
P = torch.linspace(0.5, 3, 12).reshape(3, 4)
W, V = torch.linspace(0.5, 2, 4), torch.linspace(-1, 1, 4)
IDS = torch.tensor([[0, 2, 1], [1, 1, 2]])
ROWS = torch.tensor([2, 0, 1, -1])
Q = torch.sin(torch.arange(160.0)).reshape(1, 4, 5, 8)
K = torch.cos(torch.arange(160.0)).reshape(1, 4, 5, 8)
B = torch.sin(torch.arange(25.0)).reshape(1, 1, 5, 5)
LABELS = torch.tensor([1, -100, 3])
IMAGE = torch.sin(torch.arange(144.0).double()).reshape(2, 2, 6, 6)
VOLUME = IMAGE.reshape(2, 2, 1, 6, 6)
TWO = torch.tensor([0.5, 2.0], dtype=torch.float64)
KERNEL = torch.cos(torch.arange(36.0).double()).reshape(2, 2, 3, 3)

CASES: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    *ELEMENTS,
    *((getattr(A, f"{name}_backward").default, (X, Y)) for name in ("sigmoid", "silu", "tanh")),
    *((lambda g, x, how=how: A.gelu_backward.default(g, x, approximate=how), (X, Y)) for how in ("none", "tanh")),
    (lambda g, x: A.threshold_backward.default(g, x, 0), (X, Y)),
    (lambda g, x: A._softmax_backward_data.default(g, x.softmax(1), 1, torch.float32), (X, Y)),
    (lambda g, x: A._log_softmax_backward_data.default(g, x.log_softmax(-1), -1, torch.float32), (X, Y)),
    (lambda x: A._softmax.default(x, 1, False), (X,)),
    (lambda x: A._safe_softmax.default(x, -1), (X,)),
    (lambda x: A._log_softmax.default(x, -1, False), (X,)),
    (lambda x: x.log_softmax(0), (X,)),
    (lambda x, w, b: A.native_layer_norm.default(x, [4], w, b, 1e-5)[0], (X, W, V)),
    (
        lambda g, x, w, b: A.native_layer_norm_backward.default(
            g, x, [4], *A.native_layer_norm.default(x, [4], w, b, 1e-3)[1:], w, b, [True] * 3
        ),
        (X, Y, W, V),
    ),
    (lambda g, ids: A.embedding_dense_backward.default(g, ids, 5, -1, False), (X, IDS)),
    (lambda g, ids: A.embedding_dense_backward.default(g, ids, 5, 1, False), (X, IDS)),
    (lambda g: A.slice_backward.default(g, [2, 9, 4], 1, 2, 5, 1), (X,)),
    *(
        (lambda g, start=start, step=step: A.slice_backward.default(g, [2, 8, 4], 1, start, 8, step), (X,))
        for start, step in ((0, 3), (1, 3), (2, 2), (3, 2))
    ),
    (lambda g, x, y: A.mse_loss_backward.default(g, x, y, 1), (torch.tensor(0.5), P, P.flip(0))),
    (lambda g, x, y: A.smooth_l1_loss_backward.default(g, x, y, 1, 0.7), (torch.tensor(0.5), P, P.flip(0))),
    (lambda g, x, y: A.huber_loss_backward.default(g, x, y, 1, 0.7), (torch.tensor(0.5), P, P.flip(0))),
    (lambda g, x, t: A.binary_cross_entropy_backward.default(g, x / 4, t / 4, None, 0), (P.flip(1), P, P.flip(0))),
    (lambda g, x: A.leaky_relu_backward.default(g, x, 0.1, False), (X, Y)),
    (lambda g, x: A.softplus_backward.default(g, x, 1, 20), (X, Y)),
    (lambda g, x: A.elu_backward.default(g, 1, 1, 1, False, x), (X, Y)),
    (lambda g: A.select_backward.default(g, [3, 5, 4], 1, 2), (P,)),
    (lambda x, t: A.nll_loss_forward.default(x, t, None, 1, -100), (P, LABELS)),
    (
        lambda g, x, t: A.nll_loss_backward.default(g, x, t, None, 1, -100, torch.tensor(2.0)),
        (torch.tensor(0.5), P, LABELS),
    ),
    (F.cross_entropy, (P, LABELS)),
    (
        lambda g, x, w: A.convolution_backward.default(
            g, x, w, [2], [2, 1], [1, 0], [1, 1], False, [0, 0], 1, [True] * 3
        ),
        (torch.cos(torch.arange(48.0).double()).reshape(2, 2, 3, 4), IMAGE, KERNEL),
    ),
    (
        lambda g, x, w: A.convolution_backward.default(
            g, x, w, [2], [2, 2], [1, 0], [1, 1], True, [1, 1], 1, [True] * 3
        ),
        (torch.cos(torch.arange(672.0).double()).reshape(2, 2, 12, 14), IMAGE, KERNEL),
    ),
    *(
        (lambda x, v, t=t: A._native_batch_norm_legit_functional.default(x, v, v, v, v, t, 0.3, 0.1)[::3], (IMAGE, TWO))
        for t in (True, False)
    ),
    (lambda x: A._native_batch_norm_legit.no_stats(x, None, None, True, 0.1, 1e-5), (IMAGE,)),
    (lambda x: F.batch_norm(x, None, None, training=True), (IMAGE,)),
    *(
        (
            lambda g, x, w, v, on=on: A.native_batch_norm_backward.default(
                g, x, w, v, v, *A._native_batch_norm_legit.no_stats(x, w, w, True, 0.1, 1e-3)[1:], on, 1e-3, [True] * 3
            ),
            (IMAGE.flip(0, 3), IMAGE, TWO, TWO),
        )
        for on in (True, False)
    ),
    (lambda x: A.max_pool2d_with_indices.default(x, [3, 3], [2, 2], [1, 1])[0], (IMAGE,)),
    (lambda x: A.max_pool3d_with_indices.default(x, [1, 2, 2])[0], (VOLUME,)),
    (
        lambda g, x: A.max_pool2d_with_indices_backward.default(
            g, x, [3, 3], [2, 2], [1, 1], [1, 1], False, A.max_pool2d_with_indices.default(x, [3, 3], [2, 2], [1, 1])[1]
        ),
        (IMAGE[..., :3, :3].exp(), IMAGE),
    ),
    (
        lambda g, x: A.max_pool3d_with_indices_backward.default(
            g, x, [1, 2, 2], [1, 2, 2], [0] * 3, [1] * 3, False, A.max_pool3d_with_indices.default(x, [1, 2, 2])[1]
        ),
        (VOLUME[..., :3, :3].exp(), VOLUME),
    ),
    (
        lambda g, x: A.avg_pool2d_backward.default(g, x, [2, 3], [2, 3], [0, 0], False, True, None),
        (IMAGE[..., :3, :2], IMAGE),
    ),
    (
        lambda g, x: A.avg_pool3d_backward.default(g, x, [1, 2, 2], [], [0] * 3, False, True, None),
        (VOLUME[..., :3, :3], VOLUME),
    ),
    (lambda x: A._adaptive_avg_pool2d.default(x, [3, 2]), (IMAGE,)),
    (lambda x: A._adaptive_avg_pool3d.default(x, [1, 3, 2]), (VOLUME,)),
    (A._adaptive_avg_pool2d_backward.default, (IMAGE[..., :3, :2], IMAGE)),
    (A._adaptive_avg_pool3d_backward.default, (VOLUME[..., :3, :2], VOLUME)),
    (lambda x, ids: x[ids], (P, ROWS)),
    (lambda x, i, j: x[i, j], (P, IDS, IDS.flip(0))),
    (lambda x, ids: x[:, ids], (P, ROWS)),
    (lambda x, ids: x.index_put((ids,), torch.ones(3, 3, 4)[0, 0], accumulate=True), (P, IDS)),
    (lambda x, ids, v: x.index_put((ids[:3],), v), (P, ROWS, P * 2)),
    (lambda x, ids: x.index_select(1, ids.abs()), (P, ROWS)),
    (lambda x, ids: x.gather(1, ids), (P[:2], IDS)),
    (lambda x, ids: x.gather(-1, ids), (P, IDS[:1])),
    (lambda x, ids, v: x.scatter(1, ids, v), (P[:2], torch.tensor([[0, 2], [3, 1]]), P[:2, :2] * 2)),
    (lambda x, ids, v: x.scatter_add(1, ids, v), (P[:2], IDS, P[:2, :3] * 2)),
    (lambda x, ids, v: x.scatter_reduce(1, ids, v, "amax"), (P[:2], IDS, P[:2, :3] * 2)),
    (lambda x: x.topk(2), (X,)),
    (lambda x: x.sort(1, descending=True), (X,)),
    (lambda x: x.sort(dim=0, stable=True), (IDS,)),
    (lambda x: x.argsort(-1), (X,)),
    *((op, (X,)) for op in (lambda x: x.max(1), lambda x: x.min(-1, keepdim=True))),
    *((op, (X,)) for op in (lambda x: x.argmax(1), lambda x: x.argmin(-1, keepdim=True))),
    (lambda x: (x - 1).float().histc(3, 0, 2), (IDS + 1,)),
    (lambda x: x.diff(), (X,)),
    (lambda x: x.diff(dim=1, prepend=torch.ones(2, 1, 4)), (X,)),
    (lambda x: x // 2, (IDS - 1,)),
    (lambda x: x % 3, (IDS - 1,)),
    *((lambda x, how=how: x.div(2, rounding_mode=how), (IDS - 1,)) for how in ("floor", "trunc")),
    (lambda x, y: torch.div(x, y, rounding_mode="floor"), (X, P)),
    *((op, (X, P)) for op in (A.max.other, A.min.other)),
    (lambda x: F.pad(x, (1, 2, 0, 1), value=3.0), (P,)),
    (lambda x: A.constant_pad_nd.default(x, [1, 0], 0.5), (P,)),
    (lambda x: A.fill.Scalar(x, 2.0), (P,)),
    (lambda x: A.div.Scalar_mode(x, 2, rounding_mode="floor"), (IDS,)),
    (lambda x: x.flip(0, -1), (X,)),
    (lambda x: torch.empty_like(x).fill_(2.0) + torch.empty(4).fill_(1.0), (X,)),
    (lambda q, k: A._scaled_dot_product_flash_attention_for_cpu.default(q, k, k, 0.0, True)[0], (Q, K)),
    (
        lambda g, q, k, m: A._scaled_dot_product_flash_attention_for_cpu_backward.default(
            g, q, k, k, *A._scaled_dot_product_flash_attention_for_cpu.default(q, k, k, attn_mask=m)[:2], 0.0, False,
            attn_mask=m,
        ),
        (Q, Q + K, K, B),
    ),
]  # fmt: skip


def sdpa(query: Any, key: Any, value: Any, grad: Any) -> Any:
    """Of causal attention, forward and backward."""
    operands = [each.clone().requires_grad_() for each in (query, key, value)]
    made = F.scaled_dot_product_attention(*operands, is_causal=True)
    return made.detach(), *torch.autograd.grad(made, operands, grad)


def flash(query: Any, key: Any, value: Any, grad: Any) -> Any:
    saved = A._scaled_dot_product_flash_attention.default(query, key, value, 0.0, True)
    backward = A._scaled_dot_product_flash_attention_backward.default
    return saved[0], *backward(grad, query, key, value, *saved[:6], 0.0, True, *saved[6:8])


def efficient(query: Any, key: Any, value: Any, grad: Any) -> Any:
    saved = A._scaled_dot_product_efficient_attention.default(query, key, value, None, True, 0.0, True)
    backward = A._scaled_dot_product_efficient_attention_backward.default
    return saved[0], *backward(grad, query, key, value, None, *saved, 0.0, [True, True, True, False], True)[:3]


def cudnn(query: Any, key: Any, value: Any, grad: Any) -> Any:
    saved = A._scaled_dot_product_cudnn_attention.default(query, key, value, None, True, 0.0, True)
    out, lse, first, second, most, mosts, seed, offset = saved[:8]
    backward = A._scaled_dot_product_cudnn_attention_backward.default
    rest = (None, first, second, most, mosts, 0.0, True)
    return out, *backward(grad, query, key, value, out, lse, seed, offset, *rest)


def fused_norm(x: Any, weight: Any, grad: Any) -> Any:
    made, saved = A._fused_rms_norm.default(x, [4], weight, 1e-3)
    return made, *A._fused_rms_norm_backward.default(grad, x, [4], saved, weight, [True, True])


def norm(x: Any, weight: Any, grad: Any) -> Any:
    operands = [each.clone().requires_grad_() for each in (x, weight)]
    made = F.rms_norm(operands[0], (4,), operands[1], 1e-3)
    return made.detach(), *torch.autograd.grad(made, operands, grad)


OF_A_DEVICE: list[tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = [
    *((kernel, sdpa, (Q, K, K + Q, Q * K)) for kernel in (flash, efficient, cudnn)),
    (fused_norm, norm, (X, W, Y)),
]
"""Calls that only other devices run, and what they compute."""

ELSEWHERE = {f"shardplan.{name}.default" for name in aten.FUSED}
ELSEWHERE |= {f"transformers.grouped_mm_fallback{part}.default" for part in ("", "_backward")}
ELSEWHERE |= {"aten._grouped_mm.default"}
"""What whole models make: tests of the families."""


@pytest.mark.parametrize(("kernel", "reference", "args"), OF_A_DEVICE, ids=lambda each: getattr(each, "__name__", ""))
def test_a_call_gives_on_one_device_the_numbers_of_its_function(kernel: Any, reference: Any, args: Any) -> None:
    there = tuple(arg.to("meta") for arg in args)
    document = build_graph_document(torch.export.export(Calls(kernel), there, strict=False), "kernel")
    got = run(document, [arg.numpy().copy() for arg in args])
    for one, other in zip(got, reference(*args), strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=2e-5, atol=2e-6)


def test_every_row_of_the_table_is_among_the_cases() -> None:
    exports = [torch.export.export(Calls(function), args, strict=False) for function, args in (*CASES, *OTHERS)]
    exports += [
        torch.export.export(Calls(kernel), tuple(arg.to("meta") for arg in args), strict=False)
        for kernel, _, args in OF_A_DEVICE
    ]
    exports += [torch.export.export(Calls(function), (DRAWN,), strict=False) for function, *_ in DRAWS]
    targets = {str(node.target) for program in exports for node in program.graph.nodes}
    assert set(aten.ATEN) - targets - ELSEWHERE == set()


@pytest.mark.parametrize("case", range(len(CASES)))
def test_a_call_gives_the_numbers_that_torch_gives(case: int) -> None:
    function, args = CASES[case]
    wanted = function(*args)
    document = build_graph_document(torch.export.export(Calls(function), args, strict=False), "call")
    got = run(document, [arg.numpy().copy() for arg in args if isinstance(arg, torch.Tensor)])
    for one, other in zip(got, wanted if isinstance(wanted, (tuple, list)) else [wanted], strict=False):
        np.testing.assert_allclose(one, other.numpy(), rtol=2e-5, atol=2e-6)
        assert one.dtype == other.numpy().dtype
