"""Code of torch that torch.export cannot trace, replaced while a module is traced by code with the same results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.distributions import Distribution
from torch.nn.modules import transformer
from torch.nn.modules.batchnorm import _BatchNorm


@contextmanager
def traceable_modules() -> Iterator[None]:
    """Replace, meanwhile, code of torch that branches on data: checks, and an average over all batches so far."""
    with ExitStack() as stack:
        stack.enter_context(_replace(transformer, "_detect_is_causal_mask", _is_marked_causal))
        stack.enter_context(_replace(_BatchNorm, "forward", _normalize_batch))
        stack.enter_context(_replace(Distribution, "_validate_args", False))
        yield


@contextmanager
def _replace(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _is_marked_causal(mask: Any, is_causal: bool | None = None, size: int | None = None) -> bool:
    """Return whether the caller says that a mask is causal; one that may be is used as a mask."""
    return is_causal is True


_FORWARD = _BatchNorm.forward


def _normalize_batch(self: Any, input: Any) -> Any:  # noqa: A002 - the name becomes the input's
    """Normalise a batch; without a momentum, running statistics are the mean of those of all batches."""
    if not (self.training and self.track_running_stats and self.momentum is None):
        return _FORWARD(self, input)
    self._check_input_dim(input)
    self.num_batches_tracked.add_(1)
    batch = torch.zeros_like(self.running_mean), torch.zeros_like(self.running_var)
    y = torch.nn.functional.batch_norm(input, *batch, self.weight, self.bias, True, 1.0, self.eps)
    for running, measured in zip((self.running_mean, self.running_var), batch, strict=True):
        running.add_((measured - running) / self.num_batches_tracked)
    return y
