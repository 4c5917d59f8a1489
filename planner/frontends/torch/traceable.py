"""Code of torch that torch.export cannot trace, replaced while a module is traced by code with the same results."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.autograd import Function
from torch.distributions import Distribution
from torch.nn import functional
from torch.nn.modules import transformer
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import CheckpointFunction

from planner.errors import UnsupportedOp
from planner.frontends.torch.function_transforms import TRANSFORMS, run_plain_calls
from planner.frontends.torch.own_gradients import OwnGradients, is_own


@contextmanager
def traceable_modules() -> Iterator[OwnGradients]:
    """Replace, meanwhile, code of torch, and yield the gradients that the traced model's code writes itself.

    Replaced are branches on data (checks, an average over all batches so far), results written to a given tensor or
    to running statistics of instances, sparse gradients, whose shape depends on data, functions with gradients of
    their own, transforms of functions, and checkpoints, which differentiate while they run. Packed sequences are
    refused.
    """
    own = OwnGradients()
    with ExitStack() as stack:
        for owner, name, value in (
            (transformer, "_detect_is_causal_mask", _is_marked_causal),
            (_BatchNorm, "forward", _normalize_batch),
            (Distribution, "_validate_args", False),
            (Function, "apply", classmethod(_apply_with(own))),
            (CheckpointFunction, "apply", staticmethod(_run_checkpointed)),
            (functional, "normalize", _normalize),
            (functional, "instance_norm", _normalize_instances),
            (functional, "gaussian_nll_loss", _gaussian_loss),
            (torch, "embedding", _embed_densely),
            (torch._VF, "_pack_padded_sequence", _refuse_packing),
        ):
            stack.enter_context(_replace(owner, name, value))
        for owner, name in TRANSFORMS:
            stack.enter_context(_replace(owner, name, run_plain_calls(getattr(owner, name))))
        yield own


@contextmanager
def _replace(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Set an attribute; one that a class inherits is left to it again afterwards."""
    if name not in vars(owner):
        setattr(owner, name, value)
        try:
            yield
        finally:
            delattr(owner, name)
        return
    before = vars(owner)[name]
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


def _refuse_packing(*given: Any) -> Any:
    wanted = "padded sequences, and a mask on what is read of the results"
    raise UnsupportedOp("a packed sequence", got="pack_padded_sequence", wanted=wanted)


_APPLY, _EMBEDDING = vars(Function)["apply"], torch.embedding
_NORMALIZE, _INSTANCES = functional.normalize, functional.instance_norm


def _apply_with(own: OwnGradients) -> Any:
    def apply(function: Any, *arguments: Any, **named: Any) -> Any:
        """Call a function; one of the model's code keeps its gradient where gradients are taken."""
        if named or not torch.is_grad_enabled() or not is_own(function):
            return _APPLY.__get__(None, function)(*arguments, **named)
        return own.apply(function, *arguments)

    return apply


def _run_checkpointed(function: Any, preserve: bool, *arguments: Any) -> Any:
    """Run a region: what is computed again for the backward pass is the plan's choice."""
    return function(*arguments)


def _normalize(input: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Any = None) -> Any:  # noqa: A002
    result = _NORMALIZE(input, p, dim, eps)
    return result if out is None else out.copy_(result)


def _gaussian_loss(
    input: Any,  # noqa: A002 - the name becomes the input's
    target: Any,
    var: Any,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Any:
    """The loss without a check of the variances; those that are clamped keep their gradient, as torch's do."""
    var = var * torch.ones_like(input) if isinstance(var, float) else var
    var = var.unsqueeze(-1) if var.shape == input.shape[:-1] != input.shape else var
    var = var + (var.clamp(min=eps) - var).detach()
    loss = 0.5 * (var.log() + (input - target) ** 2 / var) + (0.5 * math.log(2 * math.pi) if full else 0)
    return loss if reduction == "none" else getattr(loss, reduction)()


def _embed_densely(
    weight: Any, indices: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Any:
    return _EMBEDDING(weight, indices, padding_idx, scale_grad_by_freq, False)


def _normalize_instances(
    input: Any,  # noqa: A002 - the name becomes the input's
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Normalise each image; running statistics follow the mean of those of the images."""
    if running_mean is None or not use_input_stats:
        return _INSTANCES(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)
    dims = list(range(2, input.dim()))
    with torch.no_grad():
        running_mean.lerp_(input.mean(dims).mean(0), momentum)
        running_var.lerp_(input.var(dims).mean(0), momentum)
    return _INSTANCES(input, None, None, weight, bias, True, momentum, eps)
