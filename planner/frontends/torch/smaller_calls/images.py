"""Pools, paddings and resizing of images, on [..., spatial dims]."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._decomp import decomposition_table

ATEN = torch.ops.aten


def _per_dim(given: int | Sequence[int], rank: int) -> list[int]:
    listed = [given] if isinstance(given, int) else list(given)
    return listed * rank if len(listed) == 1 else listed


def _pooled(size: int, window: int, stride: int, padding: int, *, ceil_mode: bool) -> int:
    """Return how many windows there are; none starts in the padding behind."""
    count = (size + 2 * padding - window + (stride - 1 if ceil_mode else 0)) // stride + 1
    return count - 1 if ceil_mode and (count - 1) * stride >= size + padding else count


def _pad_for(
    x: Any, windows: list[int], strides: list[int], *, paddings: list[int], counts: list[int], fill: float
) -> Any:
    """Pad so that all windows fit without further padding."""
    rank, widths = len(windows), []
    for size, window, stride, padding, count in zip(x.shape[-rank:], windows, strides, paddings, counts, strict=True):
        widths.append((padding, max(0, (count - 1) * stride + window - size - padding)))
    return torch.nn.functional.pad(x, [each for pair in reversed(widths) for each in pair], value=fill)


def _positions_in_windows(
    size: int, window: int, stride: int, padding: int, *, count: int, padded: bool, like: Any
) -> Any:
    """Return how many elements each window of a mean counts, the padding among them or not."""
    starts = torch.arange(count, device=like.device) * stride - padding
    ends = (starts + window).clamp(max=size + padding)
    return (ends - starts if padded else ends.clamp(max=size) - starts.clamp(min=0)).to(like.dtype)


def average_pool(rank: int) -> Callable[..., Any]:
    """Return a mean over windows whose divisors differ, as a sum over equal windows that is divided."""

    def pool(
        self: Any,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        windows = _per_dim(kernel_size, rank)
        strides = _per_dim(stride, rank) if stride else windows
        paddings = _per_dim(padding, rank)
        each = list(zip(self.shape[-rank:], windows, strides, paddings, strict=True))
        counts = [_pooled(*dim, ceil_mode=ceil_mode) for dim in each]
        same = counts == [_pooled(*dim, ceil_mode=False) for dim in each]
        if same and (count_include_pad or not any(paddings)) and divisor_override is None:
            return NotImplemented
        x = _pad_for(self, windows, strides, paddings=paddings, counts=counts, fill=0)
        function = getattr(torch.nn.functional, f"avg_pool{rank}d")
        summed = function(x, windows, strides) * math.prod(windows)
        if divisor_override is not None:
            return summed / divisor_override
        for position, (dim, count) in enumerate(zip(each, counts, strict=True)):
            divisor = _positions_in_windows(*dim, count=count, padded=count_include_pad, like=self)
            summed = summed / divisor.reshape([-1, *[1] * (rank - 1 - position)])
        return summed

    return pool


def max_pool(rank: int) -> Callable[..., Any]:
    """Return a maximum over windows that reach over the end, of a padded operand."""

    def pool(
        self: Any, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ) -> Any:
        windows, paddings = (_per_dim(each, rank) for each in (kernel_size, padding))
        strides, dilations = _per_dim(stride, rank) if stride else windows, _per_dim(dilation, rank)
        reach = [apart * (taps - 1) + 1 for apart, taps in zip(dilations, windows, strict=True)]
        each = list(zip(self.shape[-rank:], reach, strides, paddings, strict=True))
        counts = [_pooled(*dim, ceil_mode=ceil_mode) for dim in each]
        if counts == [_pooled(*dim, ceil_mode=False) for dim in each]:
            return NotImplemented
        x = _pad_for(self, reach, strides, paddings=paddings, counts=counts, fill=-math.inf)
        return getattr(ATEN, f"max_pool{rank}d").default(x, windows, strides, 0, dilations)

    return pool


def adaptive_average_pool(rank: int) -> Callable[..., Any]:
    """Return a mean over windows of different sizes, as a product with a matrix for each dim."""

    def pool(self: Any, output_size: Sequence[int]) -> Any:
        if _equal_windows(self, output_size, rank) is not None:
            return NotImplemented
        for position, made in enumerate(_per_dim(output_size, rank)):
            dim = self.dim() - rank + position
            self = _multiply_dim(self, _shares(self.shape[dim], made, self), dim)
        return self

    return pool


def adaptive_max_pool(rank: int) -> Callable[..., Any]:
    """Return a maximum over equal windows, and its positions."""

    def pool(self: Any, output_size: Sequence[int]) -> Any:
        windows = _equal_windows(self, output_size, rank)
        if windows is None:
            return NotImplemented
        return getattr(ATEN, f"max_pool{rank}d_with_indices").default(self, windows)

    return pool


def _equal_windows(x: Any, output_size: Sequence[int], rank: int) -> list[int] | None:
    """Return the windows of an adaptive pool; None if they are not equal."""
    pairs = list(zip(x.shape[-rank:], _per_dim(output_size, rank), strict=True))
    return [size // made for size, made in pairs] if all(size % made == 0 for size, made in pairs) else None


def _shares(size: int, made: int, like: Any) -> Any:
    """Return [made, size]: the share of each element in each mean of an adaptive pool."""
    row, column = torch.arange(made, device=like.device), torch.arange(size, device=like.device)
    starts, ends = row * size // made, ((row + 1) * size + made - 1) // made
    inside = (column >= starts[:, None]) & (column < ends[:, None])
    return inside.to(like.dtype) / (ends - starts)[:, None].to(like.dtype)


def _multiply_dim(x: Any, matrix: Any, dim: int) -> Any:
    """Return the product of a matrix with one dim of x."""
    return (x.movedim(dim, -1) @ matrix.mT).movedim(-1, dim)


def pad(self: Any, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Any:
    """Pad by elements that are there, which are read again."""
    if mode == "constant":
        return NotImplemented
    return _pad_by_lookup(self, pad, mode)


def _pad_by_lookup(x: Any, widths: Sequence[int], mode: str) -> Any:
    for position in range(len(widths) // 2):
        dim, (low, high) = x.dim() - 1 - position, widths[2 * position : 2 * position + 2]
        size = x.shape[dim]
        places = torch.arange(-low, size + high, device=x.device)
        if mode == "circular":
            places = places % size
        elif mode == "reflect":
            places = (size - 1) - (places.abs() - (size - 1)).abs()
        else:
            places = places.clamp(0, size - 1)
        x = x.index_select(dim, places)
    return x


def replication_pad(self: Any, padding: Sequence[int]) -> Any:
    return _pad_by_lookup(self, padding, "replicate")


def reflection_pad(self: Any, padding: Sequence[int]) -> Any:
    return _pad_by_lookup(self, padding, "reflect")


def grid_sample(self: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Any:
    if self.dim() != 4:
        return NotImplemented
    return decomposition_table[ATEN.grid_sampler_2d.default](
        self, grid, interpolation_mode, padding_mode, align_corners
    )


def _triangle_filter(x: Any) -> Any:
    return (1 - x.abs()).clamp(min=0)


def _cubic_filter(x: Any, a: float = -0.5) -> Any:
    x = x.abs()
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1, (((x - 5) * x + 8) * x - 4) * a
    return torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros_like(x)))


def resize_smoothly(function: Callable[[Any], Any], support: int) -> Callable[..., Any]:
    """Return a resize with antialiasing, as a product with a matrix for each dim."""

    def resize(
        x: Any, output_size: Sequence[int] | None, align_corners: bool, scale_factors: Sequence[float] | None = None
    ) -> Any:
        if align_corners:
            return NotImplemented
        sizes, factors = output_size, scale_factors or (None, None)
        if sizes is None:
            sizes = [int(size * factor) for size, factor in zip(x.shape[-2:], factors, strict=True)]
        for dim, made, factor in zip((-2, -1), sizes, factors, strict=True):
            step = 1 / factor if factor else x.shape[dim] / made
            shares = _filter_shares(x.shape[dim], made, step, function=function, support=support, like=x)
            x = _multiply_dim(x, shares, x.dim() + dim)
        return x

    return resize


def _filter_shares(
    size: int, made: int, step: float, *, function: Callable[[Any], Any], support: int, like: Any
) -> Any:
    """Return [made, size]: the share of each element in each filtered one."""
    reach, dtype = max(step, 1.0), torch.promote_types(like.dtype, torch.float32)
    centres = (torch.arange(made, device=like.device, dtype=dtype) + 0.5) * step
    starts = (centres - support * reach + 0.5).floor().clamp(min=0)
    ends = (centres + support * reach + 0.5).floor().clamp(max=size)
    places = torch.arange(size, device=like.device, dtype=dtype)
    weights = function((places + 0.5 - centres[:, None]) / reach)
    inside = (places >= starts[:, None]) & (places < ends[:, None])
    weights = torch.where(inside, weights, torch.zeros_like(weights))
    return (weights / weights.sum(1, keepdim=True)).to(like.dtype)


CALLS: Mapping[Any, Callable[..., Any]] = {
    ATEN._adaptive_avg_pool2d.default: adaptive_average_pool(2),
    ATEN._adaptive_avg_pool3d.default: adaptive_average_pool(3),
    ATEN._upsample_bicubic2d_aa.vec: resize_smoothly(_cubic_filter, 2),
    ATEN._upsample_bilinear2d_aa.vec: resize_smoothly(_triangle_filter, 1),
    ATEN.adaptive_avg_pool1d.default: adaptive_average_pool(1),
    ATEN.adaptive_avg_pool2d.default: adaptive_average_pool(2),
    ATEN.adaptive_avg_pool3d.default: adaptive_average_pool(3),
    ATEN.adaptive_max_pool2d.default: adaptive_max_pool(2),
    ATEN.adaptive_max_pool3d.default: adaptive_max_pool(3),
    ATEN.avg_pool1d.default: average_pool(1),
    ATEN.avg_pool2d.default: average_pool(2),
    ATEN.avg_pool3d.default: average_pool(3),
    ATEN.grid_sampler.default: grid_sample,
    ATEN.max_pool1d.default: max_pool(1),
    ATEN.max_pool2d.default: max_pool(2),
    ATEN.max_pool3d.default: max_pool(3),
    ATEN.pad.default: pad,
    ATEN.reflection_pad1d.default: reflection_pad,
    ATEN.reflection_pad2d.default: reflection_pad,
    ATEN.reflection_pad3d.default: reflection_pad,
    ATEN.replication_pad1d.default: replication_pad,
    ATEN.replication_pad2d.default: replication_pad,
    ATEN.replication_pad3d.default: replication_pad,
}
