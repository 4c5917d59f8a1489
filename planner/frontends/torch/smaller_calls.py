"""Calls that torch has only kernels for, written as smaller calls, which have rows and gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


ATEN = torch.ops.aten
SMALLER_CALLS: Mapping[torch._ops.OpOverload, Callable[..., Any]] = {
    ATEN.copy.default: copy,
    ATEN.embedding_bag.default: embedding_bag,
    ATEN.embedding_bag.padding_idx: embedding_bag,
    ATEN._embedding_bag.default: embedding_bag,
}
