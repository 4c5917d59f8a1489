"""Gradients that a model's code writes itself, as subclasses of torch.autograd.Function, which torch.export leaves out.

While a module is traced, the results of such a function pass through the op `with_gradient`, which changes nothing
forward. When the graph is differentiated, the op calls the function's own `backward` on what `forward` has saved, so
that its calls become part of the backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch.autograd import Function

from planner.frontends.torch.custom_ops import LIBRARY, OPS, Gradients

WITHOUT = ("torch.", "functorch.")
"""Modules whose functions are traced through: those of torch, but for its distributions."""


class RecordedContext:
    """The object in which a function keeps values between its forward and its backward pass."""

    def __init__(self, arguments: Sequence[Any]) -> None:
        self.needs_input_grad = tuple(_is_differentiable(each) for each in arguments)
        self.saved_tensors: tuple[Tensor | None, ...] = ()
        self.materialize_grads = True

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for the backward pass."""
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Keep nothing: derivatives in forward mode are not taken."""

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Note nothing: results are values of their own."""

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Note nothing: what reads such a result has no gradient to give."""

    def set_materialize_grads(self, value: bool) -> None:
        """Say whether a gradient that is zero is given as zeros."""
        self.materialize_grads = value


@dataclass(slots=True, weakref_slot=True, eq=False)
class OwnGradient:
    """A call of a function: its context, where its tensor arguments stand, and the types of its results.

    `names` are the attributes of the context that are tensors, in the order in which they follow those saved.
    """

    function: Any
    context: RecordedContext
    tensors: Sequence[int]
    results: Sequence[tuple[torch.Size, torch.dtype] | None]
    names: list[str] = field(default_factory=list)

    def saved(self) -> list[Tensor]:
        """Return all tensors in the context."""
        self.names = [name for name, value in vars(self.context).items() if isinstance(value, Tensor)]
        kept = [each for each in self.context.saved_tensors if each is not None]
        return [*kept, *(getattr(self.context, name) for name in self.names)]

    def compute(self, grads: Sequence[Tensor | None], saved: Sequence[Tensor]) -> list[Tensor | None]:
        """Return the gradients of the tensor arguments, by the function's `backward`."""
        fresh, context = iter(saved), self.context
        context.saved_tensors = tuple(None if each is None else next(fresh) for each in context.saved_tensors)
        for name, value in zip(self.names, fresh, strict=True):
            setattr(context, name, value)
        given = iter(grads)
        outer = [None if kind is None else self._materialize(next(given), kind) for kind in self.results]
        found = self.function.backward(context, *outer)
        listed = found if isinstance(found, (tuple, list)) else (found,)
        return [listed[place] for place in self.tensors]

    def _materialize(self, grad: Tensor | None, kind: tuple[torch.Size, torch.dtype]) -> Tensor | None:
        if grad is None and self.context.materialize_grads:
            return torch.zeros(kind[0], dtype=kind[1])
        return grad


class OwnGradients:
    """The calls of functions with gradients of their own while one module is traced."""

    def __init__(self) -> None:
        self._calls: list[OwnGradient] = []

    def apply(self, function: Any, *arguments: Any) -> Any:
        """Call a function forward, and let its results have its gradient."""
        context = RecordedContext(arguments)
        with torch.no_grad():
            output = _call_forward(function, context, arguments)
        outputs = output if isinstance(output, tuple) else (output,)
        kinds = [(each.shape, each.dtype) if _is_differentiable(each) else None for each in outputs]
        places = [place for place, each in enumerate(arguments) if isinstance(each, Tensor)]
        call = OwnGradient(function, context, places, kinds)
        results = [each.detach() for each, kind in zip(outputs, kinds, strict=True) if kind is not None]
        if not results or not places:
            return output
        self._calls.append(call)
        number = next(NUMBERS)
        CALLS[number] = call
        passed = iter(OPS.with_gradient(results, [arguments[place] for place in places], call.saved(), number))
        changed = tuple(each if kind is None else next(passed) for each, kind in zip(outputs, kinds, strict=True))
        return changed if isinstance(output, tuple) else changed[0]


NUMBERS = count()
CALLS: WeakValueDictionary[int, OwnGradient] = WeakValueDictionary()
"""The calls by the numbers in the graphs; an exported program holds those of its module."""


def is_own(function: Any) -> bool:
    """Return whether a function's gradient is to be kept: it is of the model's code, or of torch's distributions."""
    module = function.__module__
    return module.startswith("torch.distributions.") or not module.startswith(WITHOUT)


def _is_differentiable(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype.is_floating_point


def _call_forward(function: Any, context: RecordedContext, arguments: Sequence[Any]) -> Any:
    if function.setup_context == Function.setup_context:
        return function.forward(context, *arguments)
    output = function.forward(*arguments)
    function.setup_context(context, arguments, output)
    return output


def _with_gradient(results: Sequence[Tensor], inputs: Any, saved: Any, number: int) -> list[Tensor]:
    return [torch.empty_like(each) for each in results]


def _keep(ctx: Any, inputs: Sequence[Any], output: Any) -> None:
    ctx.lengths, ctx.number = [len(each) for each in inputs[:3]], inputs[3]
    ctx.save_for_backward(*inputs[2])


def _backward(ctx: Any, grads: Sequence[Tensor | None]) -> Gradients:
    results, _, saved = ctx.lengths
    return [None] * results, CALLS[ctx.number].compute(grads, ctx.saved_tensors), [None] * saved, None


LIBRARY.define("with_gradient(Tensor[] results, Tensor[] inputs, Tensor[] saved, int number) -> Tensor[]")
LIBRARY.impl("with_gradient", _with_gradient, "Meta")
torch.library.register_autograd("shardplan::with_gradient", _backward, setup_context=_keep, lib=LIBRARY)
