"""torch's primitive ops (`torch.ops.prims`), in which its decompositions end, as ATen calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

ATEN, OPS = torch.ops.aten, torch.ops.prims

RENAMED = {
    "erf_inv": "erfinv",
    "fill": "fill.Scalar",
    "pow": "pow.Tensor_Tensor",
    "rev": "flip",
    "shift_left": "bitwise_left_shift",
    "shift_right_arithmetic": "bitwise_right_shift",
    "transpose": "permute",
    "view_of": "alias",
    "where": "where.self",
}
"""Primitive ops whose ATen namesake has another name or overload, but the same arguments."""
SAME = (
    "abs acos acosh as_strided as_strided_scatter asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or "
    "bitwise_xor cat ceil clone cos cosh digamma div eq erf erfc exp exp2 expm1 floor fmax fmin fmod gcd ge gt "
    "hypot isfinite le lgamma log log10 log1p log2 lt maximum minimum mul ne neg reciprocal remainder reshape round "
    "rsqrt sign signbit sin sinh sqrt sub add tan tanh trunc scalar_tensor"
)


def _overload(name: str) -> Callable[..., Any]:
    """Return an overload of ATen; without one in the name, that for two tensors, or else the default."""
    packet, _, overload = name.partition(".")
    overloads = getattr(ATEN, packet)
    return getattr(overloads, overload or ("Tensor" if "Tensor" in overloads.overloads() else "default"))  # type: ignore[no-any-return]


def _broadcast(a: Any, shape: Sequence[int], broadcast_dimensions: Sequence[int]) -> Any:
    thin = [1] * len(shape)
    for size, dim in zip(a.shape, broadcast_dimensions, strict=True):
        thin[dim] = size
    return a.reshape(thin).expand(shape)


def _collapse(a: Any, start: int, end: int) -> Any:
    return a.flatten(start, end)


def _split_dim(a: Any, dim: int, outer_length: int) -> Any:
    return a.unflatten(dim, (outer_length, -1))


def _squeeze(a: Any, dimensions: Sequence[int]) -> Any:
    return a.squeeze(tuple(dimensions))


def _reduce(op: str) -> Callable[..., Any]:
    """Return a reduction in the operand's dtype; no dims are all."""

    def reduce(inp: Any, dims: Sequence[int] | None, *, output_dtype: Any = None) -> Any:
        result = getattr(inp, op)(tuple(range(inp.dim())) if dims is None else tuple(dims))
        return result.to(inp.dtype if output_dtype is None else output_dtype)

    return reduce


def _product(inp: Any, dims: Sequence[int] | None, *, output_dtype: Any = None) -> Any:
    for dim in sorted(range(inp.dim()) if dims is None else dims, reverse=True):
        inp = inp.prod(dim)
    return inp if output_dtype is None else inp.to(output_dtype)


def _variance(inp: Any, dims: Sequence[int] | None, correction: float | None = 1, *, output_dtype: Any = None) -> Any:
    return ATEN.var.correction(inp, dims, correction=1 if correction is None else correction)


def _iota(length: int, *, start: int, step: int, dtype: Any, device: Any, requires_grad: bool) -> Any:
    return torch.arange(start, start + length * step, step, dtype=dtype, device=device)


def _normal(shape: Sequence[int], *, mean: float, std: float, dtype: Any, device: Any, **rest: Any) -> Any:
    return torch.randn(shape, dtype=dtype, device=device) * std + mean


def _uniform(shape: Sequence[int], *, low: float, high: float, dtype: Any, device: Any, **rest: Any) -> Any:
    return torch.rand(shape, dtype=dtype, device=device) * (high - low) + low


def _empty(shape: Sequence[int], *layout: Any, dtype: Any, device: Any, requires_grad: bool) -> Any:
    return torch.zeros(shape, dtype=dtype, device=device)


PRIMS: dict[Any, Callable[..., Any]] = {
    **{getattr(OPS, name).default: _overload(RENAMED.get(name, name)) for name in (*RENAMED, *SAME.split())},
    OPS.amax.default: _reduce("amax"),
    OPS.amin.default: _reduce("amin"),
    OPS.broadcast_in_dim.default: _broadcast,
    OPS.collapse.default: _collapse,
    OPS.collapse_view.default: _collapse,
    OPS.convert_element_type.default: lambda a, dtype: a.to(dtype),
    OPS.device_put.default: lambda a, device, non_blocking=False: a,
    OPS.empty_permuted.default: _empty,
    OPS.empty_strided.default: _empty,
    OPS.iota.default: _iota,
    OPS.normal.default: _normal,
    OPS.prod.default: _product,
    OPS.split_dim.default: _split_dim,
    OPS.squeeze.default: _squeeze,
    OPS.sum.default: _reduce("sum"),
    OPS.uniform.default: _uniform,
    OPS.var.default: _variance,
}
