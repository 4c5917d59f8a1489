"""Transforms of functions within a model, `torch.func.vmap`, `grad` and `jvp`, which torch.export records as they are.

The transformed function is traced alone, below the transform, and its plain calls run in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._functorch import apis, eager_transforms
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing, make_fx
from torch.utils._pytree import tree_flatten, tree_unflatten

TRANSFORMS = (
    (apis, "vmap_impl"),
    (eager_transforms, "grad_impl"),
    (eager_transforms, "grad_and_value_impl"),
    (eager_transforms, "_jvp_with_argnums"),
)
"""What carries out each transform, by its module."""


def run_plain_calls(transform: Callable[..., Any]) -> Callable[..., Any]:
    """Return a transform that runs the plain calls that it comes to."""
    inside = False

    def run(*given: Any, **named: Any) -> Any:
        nonlocal inside
        if inside:
            return transform(*given, **named)
        leaves, structure = tree_flatten((given, named))
        places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

        def call(*tensors: torch.Tensor) -> Any:
            filled = list(leaves)
            for place, tensor in zip(places, tensors, strict=True):
                filled[place] = tensor
            again, keywords = tree_unflatten(filled, structure)
            return transform(*again, **keywords)

        operands = [leaves[place] for place in places]
        inside = True
        try:
            with disable_proxy_modes_tracing(), torch._C.DisableTorchFunction():
                plain = make_fx(call)(*operands)
        finally:
            inside = False
        return plain(*operands)

    return run
