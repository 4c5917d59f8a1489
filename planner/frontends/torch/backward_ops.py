"""Rows for the calls that autograd emits: gradients of the ops of the other rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.frontends.graph_builder import DocumentValue
from planner.frontends.torch.aten_call import AtenCall, AtenRow, DropoutSeed
from planner.frontends.torch.matmul_attention import pass_argument, read_attention, repeat_groups
from planner.ir.graph import TensorType


def pointwise(op: str, grad: str, saved: str) -> AtenRow:
    """Return a row that computes the gradient from the argument `grad` and the saved operand or result."""
    return lambda call: call.emit(op, *(call.cast(call[each], call.result.dtype) for each in (grad, saved)))


def gelu(call: AtenCall) -> DocumentValue:
    return call.emit("gelu_backward", call["grad_output"], call["self"], approximate=call["approximate"])


def threshold(call: AtenCall) -> DocumentValue:
    call.demand(f"a threshold of {call['threshold']}", call["threshold"] == 0)
    return call.emit("relu_backward", call["grad_output"], call["self"])


def softmax(call: AtenCall) -> DocumentValue:
    call.demand("a change of dtype", call["grad_output"].dtype == call.result.dtype)
    dim = call["dim"] % len(call.result.shape)
    return call.emit("softmax_backward", call["grad_output"], call["output"], dim=dim)


def log_softmax(call: AtenCall) -> DocumentValue:
    """dy - exp(y) sum(dy), from ops that leave the dim free to be split."""
    grad, output, shape, dtype = call["grad_output"], call["output"], call.result.shape, call.result.dtype
    call.demand("a change of dtype", grad.dtype == dtype)
    dim = call["dim"] % len(shape)
    total = call.step("sum", [grad], (*shape[:dim], 1, *shape[dim + 1 :]), dims=[dim], keepdim=True)
    share = call.step("multiply", [call.step("exp", [output], shape, dtype=dtype), total])
    return call.emit("subtract", grad, share)


def layer_norm(call: AtenCall) -> Sequence[DocumentValue]:
    """The gradients of x and its weights; the backward op computes mean and deviation again."""
    x, weight, bias = (call[each] for each in ("input", "weight", "bias"))
    return _norm(call, "layer_norm_backward", call["mean"].eps, whole=pass_argument(x, weight, bias))


def native_rms_norm(call: AtenCall) -> Sequence[DocumentValue]:
    return _norm(call, "rms_norm_backward", call["rstd"].eps, whole=pass_argument(call["input"], call["weight"]))


def _norm(call: AtenCall, op: str, eps: float, *, whole: list[DocumentValue]) -> Sequence[DocumentValue]:
    """Emit the backward op of a norm; `whole` is x, then weight and bias if the norm has them."""
    wanted = replace(call, results=tuple(value.type for value in whole))
    return wanted.emit_all(op, call["grad_out"], *whole[:2], normalized_dims=len(call["normalized_shape"]), eps=eps)


def rms_norm(call: AtenCall) -> Sequence[DocumentValue]:
    """The backward of the custom op `rms_norm`."""
    return call.emit_all("rms_norm_backward", call["grad"], call["x"], call["weight"], eps=call["eps"])


def attention(call: AtenCall) -> Sequence[DocumentValue]:
    """The gradients of query, key, value and, if requested, of the bias."""
    query, key, value = call["query"], call["key"], call["value"]
    grad = next(call[name] for name in ("grad_out", "grad_out_", "grad") if name in call.arguments)
    mask = call.arguments.get("attn_mask", call.arguments.get("attn_bias"))
    saved = call.arguments.get("logsumexp")
    seeded = {**call.arguments, "seed": saved.seed} if isinstance(saved, DropoutSeed) else call.arguments
    call.demand("a dropout of unknown seed", "seed" in seeded or not call.arguments.get("dropout_p"))
    attrs = read_attention(replace(call, arguments=seeded))
    whole = [query, key, value, *([mask] if _needs_bias(call) else [])]
    apart = [repeat_groups(call, each, query, key=key) for each in whole[:3]]
    operands = pass_argument(
        *apart, repeat_groups(call, grad, query, key=key), mask and repeat_groups(call, mask, query, key=key)
    )
    if apart == whole[:3]:
        wanted = replace(call, results=tuple(each.type for each in whole))
        return wanted.emit_all("scaled_dot_product_attention_backward", *operands, **attrs)
    types = [TensorType(each.shape, query.dtype) for each in (*apart, *operands[4:])][: len(whole)]
    gradients = call.step_all("scaled_dot_product_attention_backward", operands, types, **attrs)
    return [call.reshape(each, like.shape) for each, like in zip(gradients, whole, strict=True)]


def _needs_bias(call: AtenCall) -> bool:
    return len(call.results) > 3 and call.arguments.get("grad_input_mask", [True] * 4)[3]


def embedding(call: AtenCall) -> DocumentValue:
    """The gradient of the table; positions equal to `padding_idx` contribute nothing."""
    call.demand("scale_grad_by_freq", not call["scale_grad_by_freq"])
    grad, ids, padding = call["grad_output"], call["indices"], call["padding_idx"]
    if padding < 0:
        return call.emit("embedding_backward", grad, ids)
    counted = call.step("not_equal", [ids], dtype="bool", scalar=padding)
    places = call.step("where", [counted, ids, call.full(-1, (), ids.dtype)], ids.shape, dtype=ids.dtype)
    return call.emit("embedding_backward", grad, places, beyond="drop")


def slice_(call: AtenCall) -> DocumentValue:
    """The gradient of the slice, padded with zeros to the shape of what was sliced; None has no elements."""
    grad, shape = call["grad_output"], call.result.shape
    if grad is None:
        return call.full(0, shape, call.result.dtype)
    dim = call["dim"] % len(shape)
    start, stop, step = slice(call["start"], call["end"], call["step"]).indices(shape[dim])
    if step > 1:
        grad = _spread(call, grad, dim, step=step)
        stop = min(start + grad.shape[dim], shape[dim])
        grad = call.cut(grad, dim, stop=stop - start)
    return _pad_dim(call, grad, dim, low=start, high=shape[dim] - stop)


def _spread(call: AtenCall, grad: DocumentValue, dim: int, *, step: int) -> DocumentValue:
    """Insert `step` - 1 zeros behind every position along a dim."""
    before, count, behind = grad.shape[:dim], grad.shape[dim], grad.shape[dim + 1 :]
    thin = call.reshape(grad, (*before, count, 1, *behind))
    high = [step - 1 if i == dim + 1 else 0 for i in range(len(thin.shape))]
    groups = call.step("pad", [thin], (*before, count, step, *behind), low=[0] * len(high), high=high)
    return call.reshape(groups, (*before, count * step, *behind))


def select(call: AtenCall) -> DocumentValue:
    grad, shape = call["grad_output"], call.result.shape
    dim = call["dim"] % len(shape)
    start = call["index"] % shape[dim]
    thin = call.reshape(grad, (*shape[:dim], 1, *shape[dim + 1 :]))
    return _pad_dim(call, thin, dim, low=start, high=shape[dim] - start - 1)


def _pad_dim(call: AtenCall, value: DocumentValue, dim: int, *, low: int, high: int) -> DocumentValue:
    before, after = ([width if i == dim else 0 for i in range(len(value.shape))] for width in (low, high))
    return call.emit("pad", value, low=before, high=after) if low or high else value


def rows_product(call: AtenCall) -> DocumentValue:
    """left^T right over all dims but the last; each of these dims has a loop of its own and may stay split."""
    left, right = call["left"], call["right"]
    rows = " ".join(f"r{i}" for i in range(len(left.shape) - 1))
    return call.emit("einsum", left, right, equation=f"{rows} m, {rows} n -> m n" if rows else "m, n -> m n")


def grouped(call: AtenCall) -> Sequence[DocumentValue]:
    """The gradients of the rows and of the weights of a grouped product."""
    x, weight, ends, grad = (call[each] for each in ("input", "weight", "offs", "grad_output"))
    experts, k, n = weight.shape
    turned = call.step("transpose", [weight], (experts, n, k), permutation=[0, 2, 1])
    return [
        call.step("grouped_mm", [grad, turned, ends], x.shape, dtype=x.dtype),
        call.step("grouped_mm_weight_backward", [x, grad, ends], weight.shape, dtype=weight.dtype),
    ]
