"""What rules for complex calls are written in: pairs of real nodes, and the real calls that are inserted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch._guards import detect_fake_mode
from torch.fx import Node
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves

ATEN = torch.ops.aten


class Pair(NamedTuple):
    """The real and the imaginary part of a complex value."""

    real: Any
    imag: Any


class Parts:
    """Emits real calls in the place of one complex call."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        """Insert a call before the complex one."""
        with self.node.graph.inserting_before(self.node):
            made = self.node.graph.call_function(target, args, kwargs)
        made.meta = dict(self.node.meta)
        values, named = map_arg((args, kwargs), lambda each: each.meta["val"])
        mode = detect_fake_mode(tree_leaves((values, named)))
        with mode or nullcontext(), torch.no_grad():
            made.meta["val"] = target(*values, **named)
        return made

    def multiply(self, x: Any, y: Any) -> Any:
        return self.call(ATEN.mul.Tensor, x, y) if isinstance(x, Node) else self.call(ATEN.mul.Tensor, y, x)

    def add(self, x: Any, y: Any) -> Any:
        return self.call(ATEN.add.Tensor, x, y)

    def negate(self, x: Any) -> Any:
        return self.call(ATEN.neg.default, x)


Rule = Callable[..., Any]
"""A function of `Parts` and the call's arguments, complex ones as pairs; it returns a pair or a real node."""


def read_parts(parts: Parts, x: Any) -> Pair:
    """Return the parts of complex numbers that are held as a real node with a last dim of two."""
    return Pair(*(parts.call(ATEN.select.int, x, -1, position) for position in (0, 1)))
