"""Patterns of ATen nodes, and the values that their names are bound to by a match.

A pattern is a tuple (head, parts ...): ("mul", "x", ("rsqrt", "y")) is x times rsqrt(y). A head stands for several ATen
overloads (HEADS); a string matches any value or number, the same one wherever it is repeated; a number matches itself,
a list a list. Operands of commutative ops match in either order. Casts, copies and eval-mode dropout between the pieces
are skipped; a replacement checks with `of_one_dtype` that both ends have one dtype.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch.fx import Graph, Node

ATEN = torch.ops.aten
VIEWS = (ATEN.view.default, ATEN.reshape.default, ATEN._unsafe_view.default, ATEN.flatten.using_ints)
HEADS: Mapping[str, tuple[Any, ...]] = {
    "add": (ATEN.add.Tensor, ATEN.add.Scalar),
    "addmm": (ATEN.addmm.default,),
    "attention": (ATEN.scaled_dot_product_attention.default,),
    "cat": (ATEN.cat.default,),
    "expand": (ATEN.expand.default,),
    "loss": (ATEN.cross_entropy_loss.default,),
    "mean": (ATEN.mean.dim,),
    "mul": (ATEN.mul.Tensor, ATEN.mul.Scalar),
    "neg": (ATEN.neg.default,),
    "pow": (ATEN.pow.Tensor_Scalar,),
    "rsqrt": (ATEN.rsqrt.default,),
    "slice": (ATEN.slice.Tensor,),
    "square": (ATEN.square.default,),
    "tanh": (ATEN.tanh.default,),
    "upsample": tuple(getattr(ATEN, f"upsample_nearest{rank}d").vec for rank in (1, 2, 3)),
    "unsqueeze": (ATEN.unsqueeze.default,),
    "view": VIEWS,
}
COMMUTES = ("add", "mul")
CASTS = (
    ATEN.to.dtype,
    ATEN.to.dtype_layout,
    ATEN._to_copy.default,
    ATEN.contiguous.default,
    ATEN.clone.default,
    ATEN.alias.default,
)
Pattern = Any
Bindings = Mapping[str, Any]


def strip_casts(value: Any) -> Any:
    """Return the value before casts, copies and dropout that does nothing."""
    while isinstance(value, Node) and (value.target in CASTS or _is_idle_dropout(value)):
        value = value.args[0]
    return value


def _is_idle_dropout(node: Node) -> bool:
    return node.target is ATEN.dropout.default and not (node.args[1] and node.args[2])


def match_pattern(pattern: Pattern, value: Any, bound: Bindings) -> Iterator[Bindings]:
    """Yield the bindings of every match of `value` with `pattern` that agrees with `bound`."""
    if isinstance(pattern, str):
        if pattern not in bound or strip_casts(bound[pattern]) == strip_casts(value):
            yield {pattern: value, **bound}
    elif isinstance(pattern, tuple):
        node = strip_casts(value)
        head, *parts = pattern
        if isinstance(node, Node) and node.target in HEADS[head]:
            orders = (node.args, node.args[::-1]) if head in COMMUTES else (node.args,)
            yield from chain.from_iterable(_match_all(parts, operands, bound) for operands in orders)
    elif isinstance(pattern, list):
        if isinstance(value, list):
            yield from _match_all(pattern, value, bound)
    elif isinstance(value, (int, float)) and math.isclose(value, pattern, rel_tol=1e-6):
        yield bound


def _match_all(patterns: Sequence[Pattern], values: Sequence[Any], bound: Bindings) -> Iterator[Bindings]:
    if not patterns:
        yield from [bound] * (not values)
    elif values:
        for first in match_pattern(patterns[0], values[0], bound):
            yield from _match_all(patterns[1:], values[1:], first)


@dataclass(frozen=True, slots=True)
class PatternMatch:
    """The last node of a matched pattern, and the values of the pattern's names."""

    graph: Graph
    root: Node
    bound: Bindings

    def __getitem__(self, name: str) -> Any:
        return self.bound[name]

    def wide(self, name: str) -> Any:
        """Return the value of a name, before casts if it has the dtype of the result there."""
        value, before = self[name], strip_casts(self[name])
        return before if tensor_type_of(before).dtype == tensor_type_of(self.root).dtype else value

    def of_one_dtype(self, *values: Node) -> bool:
        return {tensor_type_of(value).dtype for value in values} == {tensor_type_of(self.root).dtype}

    def call(self, target: Any, *args: Any, after: Node | None = None, **kwargs: Any) -> Node:
        """Insert a call before the root, or after another node."""
        place = self.root if after is None else after.next
        with self.graph.inserting_before(place):
            node = self.graph.call_function(target, args, kwargs)
        types = torch.fx.node.map_arg((args, kwargs), tensor_type_of)
        node.meta = {**(after or self.root).meta, "val": target(*types[0], **types[1])}
        return node


def tensor_type_of(node: Node) -> Any:
    """Return the type of a node's value, as a tensor without storage."""
    return node.meta["val"]
