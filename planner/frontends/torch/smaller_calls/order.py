"""Medians, running extremes, sorting, and drawing without replacement."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch


def kth_value(self: Any, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Any, Any]:
    """Return the k-th smallest element along a dim and its position."""
    dim = dim % max(1, self.dim())
    values, places = (each.narrow(dim, k - 1, 1) for each in self.sort(dim))
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


def median(self: Any, dim: int, keepdim: bool = False) -> tuple[Any, Any]:
    """Return the lower of the middle elements along a dim and its position."""
    return kth_value(self, (self.shape[dim] + 1) // 2, dim, keepdim)


def median_of_all(self: Any) -> Any:
    return median(self.flatten(), 0)[0]


def topk(self: Any, k: int, dim: int = -1, largest: bool = True, *rest: Any, **named: Any) -> tuple[Any, Any]:
    values, places = self.sort(dim, descending=largest)
    return values.narrow(dim, 0, k), places.narrow(dim, 0, k)


def _earlier(x: Any, dim: int, by: int, *, fill: float) -> Any:
    """Return x moved to later positions along a dim, where `fill` comes in."""
    widths = [0, 0] * (x.dim() - dim)
    widths[-2] = by
    # F.pad takes a float, which the least and the largest int64 are not.
    return ATEN.constant_pad_nd.default(x.narrow(dim, 0, x.shape[dim] - by), widths, fill)


def _lowest(dtype: torch.dtype, sign: int) -> float:
    if dtype.is_floating_point:
        return -sign * math.inf
    limits = torch.iinfo(dtype)
    lowest: int = limits.min if sign > 0 else limits.max
    return lowest


def running_extreme(wins: Callable[[Any, Any], Any], sign: int) -> Callable[[Any, int], tuple[Any, Any]]:
    """Return a function of the extremes up to each position of a dim, and the positions of the last of them.

    Windows that end at each position double in width, as in a scan by Hillis and Steele.
    """

    def scan(self: Any, dim: int) -> tuple[Any, Any]:
        dim = dim % max(1, self.dim())
        thin = [size if other == dim else 1 for other, size in enumerate(self.shape)]
        best, places = self, torch.arange(self.shape[dim], device=self.device).reshape(thin).expand(self.shape)
        width = 1
        while width < self.shape[dim]:
            before, where = (
                _earlier(best, dim, width, fill=_lowest(self.dtype, sign)),
                _earlier(places, dim, width, fill=0),
            )
            later = wins(best, before)
            best, places = torch.where(later, best, before), torch.where(later, places, where)
            width *= 2
        return best, places

    return scan


def log_cumsum_exp(self: Any, dim: int) -> Any:
    """Return the log of the sum of exp(x) up to each position of a dim."""
    dim, best, width = dim % max(1, self.dim()), self, 1
    while width < self.shape[dim]:
        best = torch.logaddexp(best, _earlier(best, dim, width, fill=torch.finfo(self.dtype).min))
        width *= 2
    return best


def search_sorted(
    sorted_sequence: Any,
    self: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    """Return how many elements of a sorted sequence are below each element."""
    if sorter is not None:
        return NotImplemented
    ends = sorted_sequence[..., None, :]
    below = ends <= self[..., None] if right or side == "right" else ends < self[..., None]
    return below.sum(-1).to(torch.int32 if out_int32 else torch.int64)


def permutation(n: int, *, dtype: Any = None, device: Any = None, **rest: Any) -> Any:
    """Return the integers below n in random order: the order of as many random numbers."""
    return torch.rand(n, device=device).argsort().to(dtype or torch.int64)


def multinomial(self: Any, num_samples: int, replacement: bool = False, **rest: Any) -> Any:
    """Draw positions with probabilities in proportion to `self`: the largest of p / e, e exponentially distributed."""
    if replacement:
        chances = self[..., None, :].expand(*self.shape[:-1], num_samples, self.shape[-1])
        return (chances / -torch.rand_like(chances).log()).argmax(-1)
    return (self / -torch.rand_like(self).log()).topk(num_samples)[1]


ATEN = torch.ops.aten
CALLS: Mapping[Any, Callable[..., Any]] = {
    ATEN.cummax.default: running_extreme(operator.ge, 1),
    ATEN.cummin.default: running_extreme(operator.le, -1),
    ATEN.kthvalue.default: kth_value,
    ATEN.logcumsumexp.default: log_cumsum_exp,
    ATEN.median.default: median_of_all,
    ATEN.median.dim: median,
    ATEN.multinomial.default: multinomial,
    ATEN.randperm.default: permutation,
    ATEN.searchsorted.Tensor: search_sorted,
    ATEN.topk.default: topk,
}
