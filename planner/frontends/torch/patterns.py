"""Small pieces that together are one row: found in an exported graph by their structure, and replaced by one op.

A pattern is written inside out, as (head, parts ...): ("mul", "x", ("rsqrt", "y")) is x times rsqrt(y). A head stands
for several ATen overloads (HEADS), a string for any value or number (the same one wherever the name stands again), a
number for itself, a list for a list. Operands of what commutes may stand in either order. Casts, copies and eval-mode
dropout between the pieces are looked through: whether the whole is of one dtype is asked of its ends.

    rms_norm   w x / sqrt(mean(x^2) + eps)                                 Zhang, Sennrich, 2019
    gelu       x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2           Hendrycks, Gimpel, 2016
    rope       x cos + (-x2, x1) sin, of halves x1, x2, cos and sin of equal halves      Su et al., 2021
    addmm      a product of flattened rows, shaped as before
    attention  with keys and values repeated for the queries that share them
    loss       the mean cross entropy of flattened logits

Only the last piece is replaced: pieces that somebody else reads stay, the others die.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch.fx import Graph, Node

from planner.frontends.torch import fused

A = torch.ops.aten
VIEWS = (A.view.default, A.reshape.default, A._unsafe_view.default, A.flatten.using_ints)
HEADS: Mapping[str, tuple[Any, ...]] = {
    "add": (A.add.Tensor, A.add.Scalar),
    "addmm": (A.addmm.default,),
    "attention": (A.scaled_dot_product_attention.default,),
    "cat": (A.cat.default,),
    "expand": (A.expand.default,),
    "loss": (A.cross_entropy_loss.default,),
    "mean": (A.mean.dim,),
    "mul": (A.mul.Tensor, A.mul.Scalar),
    "neg": (A.neg.default,),
    "pow": (A.pow.Tensor_Scalar,),
    "rsqrt": (A.rsqrt.default,),
    "slice": (A.slice.Tensor,),
    "square": (A.square.default,),
    "tanh": (A.tanh.default,),
    "unsqueeze": (A.unsqueeze.default,),
    "view": VIEWS,
}
COMMUTES = ("add", "mul")
CASTS = (A.to.dtype, A.to.dtype_layout, A._to_copy.default, A.contiguous.default, A.clone.default, A.alias.default)
ANGLES = (
    A.cos.default,
    A.sin.default,
    A.detach.default,
    A.unsqueeze.default,
    A.mul.Tensor,
    A.mul.Scalar,
    *CASTS,
    *VIEWS,
)
"""What may stand between two equal halves and what is read as cos and sin."""

Pattern = Any
Bound = Mapping[str, Any]


def source(value: Any) -> Any:
    """What a value was before casts, copies and dropout that does nothing."""
    while isinstance(value, Node) and (value.target in CASTS or _is_idle_dropout(value)):
        value = value.args[0]
    return value


def _is_idle_dropout(node: Node) -> bool:
    return node.target is A.dropout.default and not (node.args[1] and node.args[2])


def bindings(pattern: Pattern, value: Any, bound: Bound) -> Iterator[Bound]:
    """Every way to read `value` as `pattern` that agrees with what is bound already."""
    if isinstance(pattern, str):
        if pattern not in bound or source(bound[pattern]) == source(value):
            yield {pattern: value, **bound}
    elif isinstance(pattern, tuple):
        node = source(value)
        head, *parts = pattern
        if isinstance(node, Node) and node.target in HEADS[head]:
            orders = (node.args, node.args[::-1]) if head in COMMUTES else (node.args,)
            yield from chain.from_iterable(_each(parts, given, bound) for given in orders)
    elif isinstance(pattern, list):
        if isinstance(value, list):
            yield from _each(pattern, value, bound)
    elif isinstance(value, (int, float)) and math.isclose(value, pattern, rel_tol=1e-6):
        yield bound


def _each(patterns: Sequence[Pattern], values: Sequence[Any], bound: Bound) -> Iterator[Bound]:
    if not patterns:
        yield from [bound] * (not values)
    elif values:
        for first in bindings(patterns[0], values[0], bound):
            yield from _each(patterns[1:], values[1:], first)


@dataclass(frozen=True, slots=True)
class Found:
    """A pattern's last piece, and what its names stand for."""

    graph: Graph
    root: Node
    bound: Bound

    def __getitem__(self, name: str) -> Any:
        return self.bound[name]

    def wide(self, name: str) -> Any:
        """The value of a name, before casts, in the dtype of the result."""
        value, before = self[name], source(self[name])
        return before if kind(before).dtype == kind(self.root).dtype else value

    def of_one_dtype(self, *values: Node) -> bool:
        return {kind(value).dtype for value in values} == {kind(self.root).dtype}

    def call(self, target: Any, *args: Any, after: Node | None = None, **kwargs: Any) -> Node:
        """A node in the root's place, or after another."""
        place = self.root if after is None else after.next
        with self.graph.inserting_before(place):
            node = self.graph.call_function(target, args, kwargs)
        types = torch.fx.node.map_arg((args, kwargs), kind)
        node.meta = {**(after or self.root).meta, "val": target(*types[0], **types[1])}
        return node


def kind(node: Node) -> Any:
    """The type of a node's value, as a tensor without numbers."""
    return node.meta["val"]


def rms_norm(found: Found) -> Node | None:
    x, weight, eps = found.wide("x"), found.wide("w"), found["eps"]
    fits = isinstance(weight, Node) and kind(weight).shape == kind(x).shape[-1:] and isinstance(eps, float)
    if not fits or kind(x).shape != kind(found.root).shape or not found.of_one_dtype(x, weight):
        return None
    return found.call(fused.OPS.rms_norm.default, x, weight, eps)


def gelu(found: Found) -> Node | None:
    x = found.wide("x")
    return found.call(A.gelu.default, x, approximate="tanh") if found.of_one_dtype(x) else None


def rope(found: Found) -> Node | None:
    x, half = found.wide("x"), found["half"]
    halves = [_half(found, found[name]) for name in ("cos", "sin")]
    if 2 * half != kind(x).shape[-1] or found["end"] < 2 * half or None in halves:
        return None
    if len({kind(x).shape[-2], *(kind(each).shape[0] for each in halves if each)}) > 1 or not found.of_one_dtype(x):
        return None
    return found.call(fused.OPS.rope.default, x, *halves)


def _half(found: Found, angles: Any) -> Node | None:
    """[sequence, half]: the first of the two equal halves of a value's last dim; none if they are not known equal."""
    while isinstance(angles, Node) and angles.target is A.unsqueeze.default and _keeps_rows(angles):
        angles = angles.args[0]
    if not isinstance(angles, Node) or len(kind(angles).shape) < 2 or math.prod(kind(angles).shape[:-2]) != 1:
        return None
    rows, width = kind(angles).shape[-2:]
    joined: Any = angles
    while isinstance(joined, Node) and joined.target in ANGLES and kind(joined).shape[-1] == width:
        joined = joined.args[0]
    if not isinstance(joined, Node) or next(bindings(("cat", ["f", "f"], -1), joined, {}), None) is None:
        return None
    for reader in angles.users:
        if reader.target is A.slice.Tensor and reader.args[1:] == (len(kind(angles).shape) - 1, 0, width // 2):
            return next(iter(reader.users))
    cut = found.call(A.slice.Tensor, angles, len(kind(angles).shape) - 1, 0, width // 2, after=angles)
    return found.call(A.view.default, cut, [rows, width // 2], after=cut)


def _keeps_rows(node: Node) -> bool:
    """Whether a view has the two last dims of what it reads."""
    return bool(kind(node).shape[-2:] == kind(node.args[0]).shape[-2:])


def addmm(found: Found) -> Node | None:
    """Unless somebody else reads the product, which would then be made twice."""
    x, weight, bias = (found[name] for name in ("x", "w", "bias"))
    if len(found.root.args[0].users) > 1 or len(source(found.root.args[0]).users) > 1:
        return None
    keeps = (*kind(x).shape[:-1], kind(weight).shape[1]) == tuple(kind(found.root).shape)
    fits = keeps and kind(x).shape[-1] == kind(weight).shape[0] and len(kind(bias).shape) == 1
    return found.call(fused.OPS.addmm.default, bias, x, weight) if fits else None


def attention(found: Found) -> Node | None:
    """Of shared keys and values [batch, heads, 1 -> copies, sequence, head] as they were before the copies."""
    query, key, value = (found[name] for name in "qkv")
    whole = [len(kind(each).shape) == 4 and kind(each).shape[-2:] == kind(query).shape[-2:] for each in (key, value)]
    if not all(whole) or kind(query).shape[1] % kind(key).shape[1] or found.root.kwargs.get("enable_gqa"):
        return None
    rest, named = found.root.args[3:], {**found.root.kwargs, "enable_gqa": True}
    return found.call(A.scaled_dot_product_attention.default, query, key, value, *rest, **named)


def loss(found: Found) -> Node | None:
    """Of a mean without weights of classes or smoothing."""
    logits, labels = found["logits"], found["labels"]
    rest = zip(("weight", "reduction", "ignore_index", "label_smoothing"), found.root.args[2:], strict=False)
    given = {"reduction": 1, "ignore_index": -100, **dict(rest), **found.root.kwargs}
    plain = given["reduction"] == 1 and given.get("weight") is None and not given.get("label_smoothing")
    flat = len(kind(found.root.args[0]).shape) == 2 and len(kind(found.root.args[1]).shape) == 1
    fits = flat and kind(logits).shape == (*kind(labels).shape, kind(found.root.args[0]).shape[-1])
    if not (plain and fits and found.of_one_dtype(logits)):
        return None
    both = found.call(fused.OPS.cross_entropy.default, logits, labels, given["ignore_index"])
    return found.call(operator.getitem, both, 0)


SQUARES: tuple[Pattern, ...] = (("pow", "x", 2), ("mul", "x", "x"), ("square", "x"))
CUBES: tuple[Pattern, ...] = (("pow", "x", 3), ("mul", ("mul", "x", "x"), "x"))
ROOTS = [("rsqrt", ("add", ("mean", square, [-1], 1), "eps")) for square in SQUARES]
TURNED = ("cat", [("neg", ("slice", "x", "dim", "half", "end")), ("slice", "x", "dim", 0, "half")], -1)
BENT = [("tanh", ("mul", math.sqrt(2 / math.pi), ("add", "x", ("mul", 0.044715, cube)))) for cube in CUBES]
REPEATED = {name: ("view", ("expand", ("unsqueeze", name, 2), f"{name} shape"), f"{name} flat") for name in "kv"}

FLATTENED: list[Pattern] = [
    (("view", "logits", *"ab"[:n]), ("view", "labels", *"c"[:m])) for n in (1, 2) for m in (0, 1)
]
FLATTENED.append(("logits", "labels"))

PATTERNS: tuple[tuple[Callable[[Found], Node | None], Iterable[Pattern]], ...] = (
    (rms_norm, [("mul", "w", ("mul", "x", root)) for root in ROOTS]),
    (gelu, [("mul", ("mul", 0.5, "x"), ("add", 1, bent)) for bent in BENT]),
    (rope, [("add", ("mul", "x", "cos"), ("mul", TURNED, "sin"))]),
    (addmm, [("view", ("addmm", "bias", ("view", "x", "rows"), "w"), "shape")]),
    (attention, [("attention", "q", REPEATED["k"], REPEATED["v"], *["mask", "p", "causal"][:n]) for n in range(4)]),
    (loss, [("loss", *flat, *"rsio"[:n]) for flat in FLATTENED for n in range(5)]),
)


def combine(graph: Graph) -> dict[str, str]:
    """Replaces every pattern found; the names of the nodes that went, and of those in their place."""
    for checked in graph.find_nodes(op="call_function", target=A._assert_tensor_metadata.default):
        graph.erase_node(checked)
    replaced = {}
    for node in list(graph.nodes):
        for make, patterns in PATTERNS:
            found = chain.from_iterable(bindings(pattern, node, {}) for pattern in patterns if _heads(pattern, node))
            made = next(filter(None, (make(Found(graph, node, bound)) for bound in found)), None)
            if made is not None:
                node.replace_all_uses_with(made)
                replaced[node.name] = made.name
                break
    graph.eliminate_dead_code()
    return replaced


def _heads(pattern: Pattern, node: Node) -> bool:
    """Whether the node itself, not what it was before a cast, is the pattern's last piece."""
    return node.op == "call_function" and node.target in HEADS[pattern[0]]
