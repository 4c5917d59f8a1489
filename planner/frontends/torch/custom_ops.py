"""torch ops that correspond to rows of the op table, with gradients that do too; they compute types, not numbers.

A graph is rewritten to these ops before it is differentiated, so that the backward pass consists of rows as well.
Otherwise autograd would decompose ops without a formula, flatten x before a product, and choose an attention kernel
by device. `scaled_dot_product_attention` and `linear` have the arguments of their ATen namesakes. The loss is the mean
over labels that differ from `ignored`; classes are the last dim of logits of any rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

LIBRARY = torch.library.Library("shardplan", "FRAGMENT")

Context = Any
"""The object in which autograd keeps values between forward and backward."""

Gradients = tuple[Any, ...]

SCHEMAS = {
    "dropout": "(Tensor input, float p, int seed) -> Tensor",
    "addmm": "(Tensor bias, Tensor x, Tensor weight) -> Tensor",
    "matmul": "(Tensor x, Tensor weight) -> Tensor",
    "linear": "(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
    "rows_product": "(Tensor left, Tensor right) -> Tensor",
    "rms_norm": "(Tensor x, Tensor weight, float eps) -> Tensor",
    "rms_norm_backward": "(Tensor grad, Tensor x, Tensor weight, float eps) -> (Tensor, Tensor)",
    "rope": "(Tensor x, Tensor cos, Tensor sin, bool reversed=False) -> Tensor",
    "scaled_dot_product_attention": "(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, "
    "float dropout_p=0.0, bool is_causal=False, *, float? scale=None, bool enable_gqa=False, int seed=0) -> Tensor",
    "scaled_dot_product_attention_backward": "(Tensor query, Tensor key, Tensor value, Tensor grad, "
    "Tensor? attn_mask, float dropout_p, bool is_causal, float? scale, int seed) -> (Tensor, Tensor, Tensor)",
    "scaled_dot_product_attention_bias_backward": "(Tensor query, Tensor key, Tensor value, Tensor grad, "
    "Tensor attn_mask, float dropout_p, bool is_causal, float? scale, int seed) -> (Tensor, Tensor, Tensor, Tensor)",
    "fft": "(Tensor real, Tensor? imag, int[] dims, bool inverse) -> (Tensor, Tensor)",
    "grouped_mm": "(Tensor input, Tensor weight, Tensor offs) -> Tensor",
    "grouped_mm_weight_backward": "(Tensor input, Tensor grad, Tensor offs) -> Tensor",
    "histogram": "(Tensor ids, int bins) -> Tensor",
    "cross_entropy": "(Tensor logits, Tensor labels, int ignored) -> (Tensor, Tensor)",
    "cross_entropy_backward": "(Tensor grad, Tensor logits, Tensor labels, Tensor lse, int ignored) -> Tensor",
}


def _addmm(bias: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[1]))


def _matmul(x: Tensor, weight: Tensor) -> Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[1]))


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


def _rows_product(left: Tensor, right: Tensor) -> Tensor:
    return left.new_empty((left.shape[-1], right.shape[-1]))


def _first(x: Tensor, *rest: Any) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _attention(query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any) -> Tensor:
    return query.new_empty((*query.shape[:-1], value.shape[-1]))


def _grouped_mm(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    return x.new_empty((x.shape[0], weight.shape[2]))


def _grouped_weight(x: Tensor, grad: Tensor, ends: Tensor) -> Tensor:
    return x.new_empty((ends.shape[0], x.shape[1], grad.shape[1]))


def _loss(logits: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """Return the types of the loss and of the log-sum-exp of every row."""
    wide = torch.promote_types(logits.dtype, torch.float32)
    return logits.new_empty(()), logits.new_empty((*logits.shape[:-1], 1), dtype=wide)


def _firsts(count: int, start: int = 0) -> Any:
    """Return a function whose results have the types of `count` operands from `start` on."""
    return lambda *operands: tuple(map(_first, operands[start : start + count]))


TYPES = {
    "dropout": _first,
    "addmm": _addmm,
    "matmul": _matmul,
    "linear": _linear,
    "rows_product": _rows_product,
    "rms_norm": _first,
    "rms_norm_backward": _firsts(2, 1),
    "rope": _first,
    "scaled_dot_product_attention": _attention,
    "scaled_dot_product_attention_backward": _firsts(3),
    "scaled_dot_product_attention_bias_backward": lambda q, k, v, grad, mask, *rest: tuple(
        map(_first, (q, k, v, mask))
    ),
    "fft": lambda real, *rest: (_first(real), _first(real)),
    "grouped_mm": _grouped_mm,
    "grouped_mm_weight_backward": _grouped_weight,
    "histogram": lambda ids, bins: ids.new_empty((bins,)),
    "cross_entropy": _loss,
    "cross_entropy_backward": lambda grad, logits, *rest: _first(logits),
}

for name, schema in SCHEMAS.items():
    LIBRARY.define(name + schema)
    LIBRARY.impl(name, TYPES[name], "Meta")

OPS = torch.ops.shardplan


def _save_operands(ctx: Context, inputs: Sequence[Any], output: Any) -> None:
    """Save every argument: tensors for autograd, others as attributes, in the same order."""
    ctx.save_for_backward(*(each if isinstance(each, Tensor) else None for each in inputs))
    ctx.others = tuple(None if isinstance(each, Tensor) else each for each in inputs)


def _over_rows(grad: Tensor) -> Tensor:
    return grad.sum(list(range(grad.dim() - 1))) if grad.dim() > 1 else grad


def _addmm_backward(ctx: Context, grad: Tensor) -> Gradients:
    _, x, weight = ctx.saved_tensors
    return _over_rows(grad), OPS.linear(grad, weight), OPS.rows_product(x, grad)


def _linear_backward(ctx: Context, grad: Tensor) -> Gradients:
    x, weight, bias = ctx.saved_tensors
    wanted = ctx.needs_input_grad
    return (
        OPS.matmul(grad, weight) if wanted[0] else None,
        OPS.rows_product(grad, x) if wanted[1] else None,
        None if bias is None else _over_rows(grad),
    )


def _dropout_backward(ctx: Context, grad: Tensor) -> Gradients:
    """The gradient is dropped as the operand was: the same seed draws the same mask."""
    return OPS.dropout(grad, *ctx.others[1:]), None, None


def _rms_norm_backward(ctx: Context, grad: Tensor) -> Gradients:
    x, weight, _ = ctx.saved_tensors
    return (*OPS.rms_norm_backward(grad, x, weight, ctx.others[2]), None)


def _rope_backward(ctx: Context, grad: Tensor) -> Gradients:
    _, cos, sin, _ = ctx.saved_tensors
    return OPS.rope(grad, cos, sin, not ctx.others[3]), None, None, None


def _attention_backward(ctx: Context, grad: Tensor) -> Gradients:
    query, key, value, mask = ctx.saved_tensors[:4]
    operands = query, key, value, grad, mask, *ctx.others[4:6], *ctx.named
    if any(ctx.needs_input_grad[3:4]):
        return (*OPS.scaled_dot_product_attention_bias_backward(*operands), None, None)
    return (*OPS.scaled_dot_product_attention_backward(*operands), None, None, None)


def _save_attention(ctx: Context, inputs: Sequence[Any], keyword_only_inputs: dict[str, Any], output: Any) -> None:
    _save_operands(ctx, inputs, output)
    ctx.named = keyword_only_inputs["scale"], keyword_only_inputs["seed"]


def _save_transform(ctx: Context, inputs: Sequence[Any], output: Any) -> None:
    ctx.is_real, (*_, ctx.dims, ctx.inverse) = inputs[1] is None, inputs
    ctx.set_materialize_grads(False)


def _fft_backward(ctx: Context, real: Tensor | None, imag: Tensor | None) -> Gradients:
    """The gradient of a transform is that of the other sign, as its matrix is symmetric."""
    real = torch.zeros_like(imag) if real is None else real
    grads = OPS.fft(real, imag, ctx.dims, not ctx.inverse)
    return grads[0], None if ctx.is_real else grads[1], None, None


def _grouped_backward(ctx: Context, grad: Tensor) -> Gradients:
    x, weight, ends = ctx.saved_tensors
    return OPS.grouped_mm(grad, weight.transpose(1, 2), ends), OPS.grouped_mm_weight_backward(x, grad, ends), None


def _save_loss(ctx: Context, inputs: Sequence[Any], output: Any) -> None:
    logits, labels, ctx.ignored = inputs
    ctx.save_for_backward(logits, labels, output[1])


def _loss_backward(ctx: Context, grad: Tensor, _: Tensor) -> Gradients:
    return OPS.cross_entropy_backward(grad, *ctx.saved_tensors, ctx.ignored), None, None


for op, backward, keep in (
    ("addmm", _addmm_backward, _save_operands),
    ("dropout", _dropout_backward, _save_operands),
    ("linear", _linear_backward, _save_operands),
    ("rms_norm", _rms_norm_backward, _save_operands),
    ("rope", _rope_backward, _save_operands),
    ("scaled_dot_product_attention", _attention_backward, _save_attention),
    ("fft", _fft_backward, _save_transform),
    ("grouped_mm", _grouped_backward, _save_operands),
    ("cross_entropy", _loss_backward, _save_loss),
):
    torch.library.register_autograd(f"shardplan::{op}", backward, setup_context=keep, lib=LIBRARY)
