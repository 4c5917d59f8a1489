"""Elementwise functions, sums and distances."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

DIRECT_DISTANCES = 25
"""The most rows of which torch computes distances from differences; of more it takes products."""


def xlogy(self: Any, other: Any) -> Any:
    """Return x log(y), and 0 where x is 0."""
    x = self if isinstance(self, torch.Tensor) else torch.full((), self, device=other.device)
    y = other if isinstance(other, torch.Tensor) else torch.full((), other, device=self.device)
    dtype = torch.result_type(x, y)
    product = x.to(dtype) * torch.where(x == 0, torch.ones_like(y), y).log()
    return torch.where(x == 0, torch.zeros_like(product), product)


def log_sigmoid(self: Any) -> tuple[Any, Any]:
    """Return log(sigmoid(x)) and exp(-|x|), from which torch computes the gradient."""
    power = (-self.abs()).exp()
    return self.clamp(max=0) - power.log1p(), power


def logit_backward(grad_output: Any, self: Any, eps: float | None = None) -> Any:
    share = grad_output / (self * (1 - self))
    return share if eps is None else torch.where((self < eps) | (self > 1 - eps), torch.zeros_like(share), share)


def scaled(function: str, factor: float, *, before: bool = False) -> Callable[[Any], Any]:
    """Return the function of `factor` times its operand (`before`), or `factor` times the function."""
    return lambda self: getattr(self * factor, function)() if before else getattr(self, function)() * factor


def addbmm(self: Any, batch1: Any, batch2: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    return self * beta + torch.bmm(batch1, batch2).sum(0) * alpha


def bilinear(input1: Any, input2: Any, weight: Any, bias: Any = None) -> Any:
    y = torch.einsum("...i,oij,...j->...o", input1, weight, input2)
    return y if bias is None else y + bias


def weight_norm(v: Any, g: Any, dim: int = 0) -> Any:
    """Return v with the norm g over all dims but one."""
    return weight_norm_interface(v, g, dim)[0]


def weight_norm_interface(v: Any, g: Any, dim: int = 0) -> tuple[Any, Any]:
    others = [other for other in range(v.dim()) if dim < 0 or other != dim % v.dim()]
    norm = v.square().sum(others, keepdim=True).sqrt()
    return v * (g / norm), norm


def distances(x1: Any, x2: Any, p: float = 2, compute_mode: int | None = None) -> Any:
    """Return the distances in the norm `p` between all rows of two tensors."""
    products = compute_mode == 1 or (compute_mode != 2 and max(x1.shape[-2], x2.shape[-2]) > DIRECT_DISTANCES)
    if p == 2 and products:
        squares = x1.square().sum(-1)[..., :, None] + x2.square().sum(-1)[..., None, :] - 2 * x1 @ x2.mT
        return _root(squares.clamp(min=0))
    difference = (x1[..., :, None, :] - x2[..., None, :, :]).abs()
    if p == 1:
        return difference.sum(-1)
    if p == math.inf:
        return difference.amax(-1)
    return _root(difference.square().sum(-1)) if p == 2 else difference.pow(p).sum(-1).pow(1 / p)


def _root(squares: Any) -> Any:
    """Return the square root, whose gradient at 0 is 0."""
    zero = squares == 0
    return torch.where(zero, torch.zeros_like(squares), torch.where(zero, torch.ones_like(squares), squares).sqrt())


ATEN = torch.ops.aten
BEFORE_GRADIENT: Mapping[Any, Callable[..., Any]] = {
    ATEN._weight_norm.default: weight_norm,
    ATEN._weight_norm_interface.default: weight_norm_interface,
    ATEN.addbmm.default: addbmm,
    ATEN.bilinear.default: bilinear,
    ATEN.cdist.default: distances,
    ATEN._cdist_forward.default: distances,
}
CALLS: Mapping[Any, Callable[..., Any]] = {
    ATEN.erfc.default: lambda self: 1 - self.erf(),
    ATEN.exp2.default: scaled("exp", math.log(2), before=True),
    ATEN.frac.default: lambda self: self - self.trunc(),
    ATEN.hypot.default: lambda self, other: (self.square() + other.square()).sqrt(),
    ATEN.log10.default: scaled("log", 1 / math.log(10)),
    ATEN.log2.default: scaled("log", 1 / math.log(2)),
    ATEN.log_sigmoid_forward.default: log_sigmoid,
    ATEN.logit_backward.default: logit_backward,
    ATEN.xlogy.Tensor: xlogy,
    ATEN.xlogy.Scalar_Other: xlogy,
    ATEN.xlogy.Scalar_Self: xlogy,
}
