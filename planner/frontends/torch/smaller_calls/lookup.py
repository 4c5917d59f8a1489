"""Reading and writing at positions, and views that are no rearrangement of dims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

import torch


def copy(self: Any, src: Any, non_blocking: bool = False) -> Any:
    """Return `src` in the shape and the dtype of `self`."""
    return src.to(self.dtype).expand(self.shape)


def embedding_bag(
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """Return the sum (mode 0) or the mean (1) of the looked up rows of each bag, and three results that nobody reads.

    Position n belongs to the last bag whose offset is n or less.
    """
    if mode not in (0, 1) or scale_grad_by_freq:
        return NotImplemented
    starts = offsets[:-1] if include_last_offset else offsets
    positions = torch.arange(indices.numel(), device=indices.device, dtype=starts.dtype)
    bag = (positions[:, None] >= starts[None, :]).sum(1) - 1
    counted = torch.ones_like(indices, dtype=weight.dtype)
    if padding_idx is not None and padding_idx >= 0:
        counted = (indices != padding_idx).to(weight.dtype)
    rows = torch.nn.functional.embedding(indices, weight) * counted[:, None]
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[:, None]
    summed = torch.zeros(starts.shape[0], weight.shape[1], dtype=rows.dtype, device=rows.device)
    summed = summed.scatter_add(0, bag[:, None].expand(rows.shape), rows)
    sizes = torch.zeros(starts.shape[0], dtype=rows.dtype, device=rows.device).scatter_add(0, bag, counted)
    return (summed / sizes.clamp(min=1)[:, None] if mode == 1 else summed), bag, sizes, sizes


def index(self: Any, indices: Sequence[Any]) -> Any:
    """Read at positions in dims apart, which become the first dims of the result."""
    dims = [dim for dim, ids in enumerate(indices) if ids is not None]
    if _is_adjacent(dims) or any(indices[dim].dtype == torch.bool for dim in dims):
        return NotImplemented
    return self.movedim(dims, list(range(len(dims))))[tuple(indices[dim] for dim in dims)]


def index_put(self: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    """Write at positions in dims apart, or where a mask over the first dims is true."""
    dims = [dim for dim, ids in enumerate(indices) if ids is not None]
    if len(dims) == 1 and dims == [0] and indices[0].dtype == torch.bool:
        return _put_masked(self, indices[0], values, accumulate=accumulate)
    if _is_adjacent(dims) or any(indices[dim].dtype == torch.bool for dim in dims):
        return NotImplemented
    front = list(range(len(dims)))
    moved = self.movedim(dims, front).index_put([indices[dim] for dim in dims], values, accumulate)
    return moved.movedim(front, dims)


def _is_adjacent(dims: Sequence[int]) -> bool:
    return list(dims) == list(range(dims[0], dims[0] + len(dims)))


def _put_masked(self: Any, mask: Any, values: Any, *, accumulate: bool) -> Any:
    """Write where a mask is true: one value for all, or one for each true element in turn."""
    whole = mask.reshape(*mask.shape, *[1] * (self.dim() - mask.dim())).expand(self.shape)
    if values.dim() > self.dim() - mask.dim() and values.shape[0] != 1:
        source = values.expand(values.shape[0], *self.shape[mask.dim() :])
        written = masked_scatter(self, whole, source.to(self.dtype))
        return torch.where(whole, self + written, self) if accumulate else written
    written = values.reshape(values.shape[1:] if values.dim() > self.dim() - mask.dim() else values.shape)
    return torch.where(whole, self + written if accumulate else written.to(self.dtype), self)


def masked_scatter(self: Any, mask: Any, source: Any) -> Any:
    """Write the elements of `source` in turn where the mask is true."""
    shape = torch.broadcast_shapes(self.shape, mask.shape)
    whole = mask.expand(shape)
    taken = source.flatten()[_turns(whole, source.numel())].reshape(shape)
    return torch.where(whole, taken, self.expand(shape))


def masked_scatter_backward(grad_output: Any, mask: Any, sizes: Sequence[int]) -> Any:
    whole, count = mask.expand(grad_output.shape), torch.Size(sizes).numel()
    counted = torch.where(whole, grad_output, torch.zeros_like(grad_output)).flatten()
    return counted.new_zeros(count).index_put((_turns(whole, count),), counted, accumulate=True).reshape(sizes)


def _turns(mask: Any, count: int) -> Any:
    """Return how many true elements come before each, as positions in a source of `count` elements."""
    return (mask.flatten().to(torch.int64).cumsum(0) - 1).clamp(0, count - 1)


def put(self: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    flat = self.flatten().index_put((index.flatten(),), source.flatten(), accumulate)
    return flat.reshape(self.shape)


def scatter_reduce(self: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> Any:
    """Reduce the written elements of each position, with those that are there where `include_self`."""
    if reduce == "prod" or (include_self and reduce != "mean" and src.shape == index.shape):
        return NotImplemented
    written = src[tuple(slice(size) for size in index.shape)]
    kind = "sum" if reduce == "mean" else reduce
    total = self if include_self else self.scatter(dim, index, _neutral(kind, self.dtype))
    total = total.scatter_reduce(dim, index, written, kind)
    if reduce != "mean":
        return total
    counts = torch.ones_like(self) if include_self else torch.ones_like(self).scatter(dim, index, 0)
    counts = counts.scatter_add(dim, index, torch.ones_like(written))
    return total / counts if total.dtype.is_floating_point else total // counts


def _neutral(reduce: str, dtype: Any) -> float:
    """Return the number that a reduction with any other returns unchanged."""
    if reduce == "sum":
        return 0
    if dtype.is_floating_point:
        return -inf if reduce == "amax" else inf
    return int(torch.iinfo(dtype).min if reduce == "amax" else torch.iinfo(dtype).max)


def diagonal(self: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    rows, columns = _diagonal_positions(self.shape[dim1], self.shape[dim2], offset, device=self.device)
    return self.movedim((dim1, dim2), (-2, -1))[..., rows, columns]


def diagonal_backward(grad_output: Any, input_sizes: Sequence[int], offset: int, dim1: int, dim2: int) -> Any:
    rows, columns = _diagonal_positions(input_sizes[dim1], input_sizes[dim2], offset, device=grad_output.device)
    zeros = grad_output.new_zeros(input_sizes).movedim((dim1, dim2), (-2, -1))
    before = [None] * (len(input_sizes) - 2)
    return torch.ops.aten.index_put(zeros, [*before, rows, columns], grad_output).movedim((-2, -1), (dim1, dim2))


def _diagonal_positions(height: int, width: int, offset: int, *, device: Any) -> tuple[Any, Any]:
    count = min(height + min(offset, 0), width - max(offset, 0))
    places = torch.arange(count, device=device)
    return places + max(-offset, 0), places + max(offset, 0)


def unfold(self: Any, dimension: int, size: int, step: int) -> Any:
    """Return windows along a dim, which become the last dim."""
    windows = _windows(self.shape[dimension], size, step, device=self.device)
    return self.movedim(dimension, -1)[..., windows].movedim(-2, dimension % self.dim())


def unfold_backward(grad_in: Any, input_sizes: Sequence[int], dim: int, size: int, step: int) -> Any:
    windows = _windows(input_sizes[dim], size, step, device=grad_in.device)
    zeros = grad_in.new_zeros(input_sizes).movedim(dim, -1)
    before = [None] * (len(input_sizes) - 1)
    moved = grad_in.movedim(dim % len(input_sizes), -2)
    return torch.ops.aten.index_put(zeros, [*before, windows], moved, True).movedim(-1, dim)


def _windows(length: int, size: int, step: int, *, device: Any) -> Any:
    starts = torch.arange((length - size) // step + 1, device=device) * step
    return starts[:, None] + torch.arange(size, device=device)


def as_strided(self: Any, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Any:
    """Read the elements of a contiguous tensor at positions of its memory."""
    if not self.is_contiguous():
        return NotImplemented
    places = _strided_places(size, stride, storage_offset or 0, device=self.device)
    return self.flatten()[places.flatten()].reshape(size)


def as_strided_scatter(
    self: Any, src: Any, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Any:
    if not self.is_contiguous():
        return NotImplemented
    places = _strided_places(size, stride, storage_offset or 0, device=self.device)
    return self.flatten().index_put((places.flatten(),), src.flatten()).reshape(self.shape)


def _strided_places(size: Sequence[int], stride: Sequence[int], offset: int, *, device: Any) -> Any:
    places = torch.full((), offset, dtype=torch.int64, device=device)
    for count, step in zip(size, stride, strict=True):
        places = places[..., None] + torch.arange(count, device=device) * step
    return places


def lower_triangle(row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None, **rest: Any) -> Any:
    """Return the rows and the columns of the elements on and below a diagonal."""
    widths = (torch.arange(row, device=device) + offset + 1).clamp(0, col)
    count = sum(_clamp(r + offset + 1, col) for r in range(row))
    return _triangle(widths, torch.zeros_like(widths), count, dtype=dtype)


def upper_triangle(row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None, **rest: Any) -> Any:
    """Return the rows and the columns of the elements on and above a diagonal."""
    starts = (torch.arange(row, device=device) + offset).clamp(0, col)
    count = sum(col - _clamp(r + offset, col) for r in range(row))
    return _triangle(col - starts, starts, count, dtype=dtype)


def _clamp(number: int, high: int) -> int:
    return min(max(number, 0), high)


def _triangle(widths: Any, starts: Any, count: int, *, dtype: Any) -> Any:
    """Return positions row by row, of which each row has as many as `widths` says, from the column `starts` on."""
    ends = widths.cumsum(0)
    places = torch.arange(count, device=widths.device)
    rows = (places[:, None] >= ends[None, :]).sum(1)
    columns = places - (ends - widths)[rows] + starts[rows]
    return torch.stack([rows, columns]).to(dtype or torch.int64)


ATEN = torch.ops.aten
BEFORE_GRADIENT: Mapping[Any, Callable[..., Any]] = {
    ATEN.copy.default: copy,
    ATEN.embedding_bag.default: embedding_bag,
    ATEN.embedding_bag.padding_idx: embedding_bag,
    ATEN._embedding_bag.default: embedding_bag,
}
CALLS: Mapping[Any, Callable[..., Any]] = {
    ATEN.as_strided.default: as_strided,
    ATEN.as_strided_scatter.default: as_strided_scatter,
    ATEN.diagonal.default: diagonal,
    ATEN.diagonal_backward.default: diagonal_backward,
    ATEN.index.Tensor: index,
    ATEN.index_put.default: index_put,
    ATEN.masked_scatter.default: masked_scatter,
    ATEN.masked_scatter_backward.default: masked_scatter_backward,
    ATEN.put.default: put,
    ATEN.scatter_reduce.two: scatter_reduce,
    ATEN.trace.default: lambda self: diagonal(self).sum(),
    ATEN.tril_indices.default: lower_triangle,
    ATEN.triu_indices.default: upper_triangle,
    ATEN.unfold.default: unfold,
    ATEN.unfold_backward.default: unfold_backward,
}
