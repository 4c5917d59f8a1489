"""Groups of small ATen calls that are one op: match in an exported graph by their structure and replaced.

`planner.frontends.torch.pattern_match` describes how a pattern is written.

    rms_norm   w x / sqrt(mean(x^2) + eps)                                 Zhang, Sennrich, 2019
    gelu       x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2           Hendrycks, Gimpel, 2016
    rope       x cos + (-x2, x1) sin, of halves x1, x2, cos and sin of equal halves      Su et al., 2021
    addmm      a product of flattened rows, reshaped back afterwards
    attention  with keys and values repeated for the queries that share them
    loss       the mean cross entropy of flattened logits
    upsample   copies of each element along spatial dims: a dim for the copies, broadcast and merged

Only the last node of a group is replaced. Inner nodes with other readers stay; dead code elimination removes the rest.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from torch.fx import Graph, Node

from planner.frontends.torch import custom_ops
from planner.frontends.torch.pattern_match import (
    ATEN,
    CASTS,
    HEADS,
    VIEWS,
    Pattern,
    PatternMatch,
    match_pattern,
    strip_casts,
    tensor_type_of,
)

ANGLES = (
    ATEN.cos.default,
    ATEN.sin.default,
    ATEN.detach.default,
    ATEN.unsqueeze.default,
    ATEN.mul.Tensor,
    ATEN.mul.Scalar,
    *CASTS,
    *VIEWS,
)
"""Ops that may lie between the concatenation of two equal halves and the value read as cos or sin."""


def replace_rms_norm(match: PatternMatch) -> Node | None:
    x, weight, eps = match.wide("x"), match.wide("w"), match["eps"]
    fits = (
        isinstance(weight, Node)
        and tensor_type_of(weight).shape == tensor_type_of(x).shape[-1:]
        and isinstance(eps, float)
    )
    if not fits or tensor_type_of(x).shape != tensor_type_of(match.root).shape or not match.of_one_dtype(x, weight):
        return None
    return match.call(custom_ops.OPS.rms_norm.default, x, weight, eps)


def replace_gelu(match: PatternMatch) -> Node | None:
    x = match.wide("x")
    return match.call(ATEN.gelu.default, x, approximate="tanh") if match.of_one_dtype(x) else None


def replace_rope(match: PatternMatch) -> Node | None:
    x, half = match.wide("x"), match["half"]
    halves = [_half(match, match[name]) for name in ("cos", "sin")]
    if 2 * half != tensor_type_of(x).shape[-1] or match["end"] < 2 * half or None in halves:
        return None
    if len(
        {tensor_type_of(x).shape[-2], *(tensor_type_of(each).shape[0] for each in halves if each)}
    ) > 1 or not match.of_one_dtype(x):
        return None
    return match.call(custom_ops.OPS.rope.default, x, *halves)


def _half(match: PatternMatch, angles: Any) -> Node | None:
    """Return the first half [sequence, half] of the last dim of `angles`; None unless its halves are known to be equal.

    They are if the value is computed elementwise from the concatenation of a tensor with itself.
    """
    while isinstance(angles, Node) and angles.target is ATEN.unsqueeze.default and _keeps_rows(angles):
        angles = angles.args[0]
    if (
        not isinstance(angles, Node)
        or len(tensor_type_of(angles).shape) < 2
        or math.prod(tensor_type_of(angles).shape[:-2]) != 1
    ):
        return None
    rows, width = tensor_type_of(angles).shape[-2:]
    joined: Any = angles
    while isinstance(joined, Node) and joined.target in ANGLES and tensor_type_of(joined).shape[-1] == width:
        joined = joined.args[0]
    if not isinstance(joined, Node) or next(match_pattern(("cat", ["f", "f"], -1), joined, {}), None) is None:
        return None
    for reader in angles.users:
        if reader.target is ATEN.slice.Tensor and reader.args[1:] == (
            len(tensor_type_of(angles).shape) - 1,
            0,
            width // 2,
        ):
            return next(iter(reader.users))
    cut = match.call(ATEN.slice.Tensor, angles, len(tensor_type_of(angles).shape) - 1, 0, width // 2, after=angles)
    return match.call(ATEN.view.default, cut, [rows, width // 2], after=cut)


def _keeps_rows(node: Node) -> bool:
    """Return whether a view keeps the last two dims of its operand."""
    return bool(tensor_type_of(node).shape[-2:] == tensor_type_of(node.args[0]).shape[-2:])


def replace_addmm(match: PatternMatch) -> Node | None:
    """Replace the product, unless it has other readers: it would then be computed twice."""
    x, weight, bias = (match[name] for name in ("x", "w", "bias"))
    if len(match.root.args[0].users) > 1 or len(strip_casts(match.root.args[0]).users) > 1:
        return None
    keeps = (*tensor_type_of(x).shape[:-1], tensor_type_of(weight).shape[1]) == tuple(tensor_type_of(match.root).shape)
    fits = (
        keeps
        and tensor_type_of(x).shape[-1] == tensor_type_of(weight).shape[0]
        and len(tensor_type_of(bias).shape) == 1
    )
    return match.call(custom_ops.OPS.addmm.default, bias, x, weight) if fits else None


def replace_attention(match: PatternMatch) -> Node | None:
    """Read shared keys and values before they are repeated to [batch, heads, copies, sequence, head]."""
    query, key, value = (match[name] for name in "qkv")
    whole = [
        len(tensor_type_of(each).shape) == 4 and tensor_type_of(each).shape[-2:] == tensor_type_of(query).shape[-2:]
        for each in (key, value)
    ]
    if (
        not all(whole)
        or tensor_type_of(query).shape[1] % tensor_type_of(key).shape[1]
        or match.root.kwargs.get("enable_gqa")
    ):
        return None
    rest, named = match.root.args[3:], {**match.root.kwargs, "enable_gqa": True}
    return match.call(ATEN.scaled_dot_product_attention.default, query, key, value, *rest, **named)


def replace_loss(match: PatternMatch) -> Node | None:
    """Replace a mean cross entropy without class weights and label smoothing."""
    logits, labels = match["logits"], match["labels"]
    rest = zip(("weight", "reduction", "ignore_index", "label_smoothing"), match.root.args[2:], strict=False)
    given = {"reduction": 1, "ignore_index": -100, **dict(rest), **match.root.kwargs}
    plain = given["reduction"] == 1 and given.get("weight") is None and not given.get("label_smoothing")
    flat = len(tensor_type_of(match.root.args[0]).shape) == 2 and len(tensor_type_of(match.root.args[1]).shape) == 1
    fits = flat and tensor_type_of(logits).shape == (
        *tensor_type_of(labels).shape,
        tensor_type_of(match.root.args[0]).shape[-1],
    )
    if not (plain and fits and match.of_one_dtype(logits)):
        return None
    both = match.call(custom_ops.OPS.cross_entropy.default, logits, labels, given["ignore_index"])
    return match.call(operator.getitem, both, 0)


def replace_upsample(match: PatternMatch) -> Node | None:
    """Replace an upsampling to multiples of the sizes by views, whose gradients are views and a sum."""
    x, shape, made = match["x"], tensor_type_of(match["x"]).shape, tensor_type_of(match.root).shape
    if any(large % small for small, large in zip(shape[2:], made[2:], strict=True)):
        return None
    scales = [large // small for small, large in zip(shape[2:], made[2:], strict=True)]
    apart = match.call(ATEN.view.default, x, [*shape[:2], *chain.from_iterable((size, 1) for size in shape[2:])])
    copied = [*shape[:2], *chain.from_iterable(zip(shape[2:], scales, strict=True))]
    return match.call(ATEN.reshape.default, match.call(ATEN.expand.default, apart, copied), list(made))


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

PATTERNS: tuple[tuple[Callable[[PatternMatch], Node | None], Iterable[Pattern]], ...] = (
    (replace_rms_norm, [("mul", "w", ("mul", "x", root)) for root in ROOTS]),
    (replace_gelu, [("mul", ("mul", 0.5, "x"), ("add", 1, bent)) for bent in BENT]),
    (replace_rope, [("add", ("mul", "x", "cos"), ("mul", TURNED, "sin"))]),
    (replace_addmm, [("view", ("addmm", "bias", ("view", "x", "rows"), "w"), "shape")]),
    (
        replace_attention,
        [("attention", "q", REPEATED["k"], REPEATED["v"], *["mask", "p", "causal"][:n]) for n in range(4)],
    ),
    (replace_upsample, [("upsample", "x", "size", "scales")]),
    (replace_loss, [("loss", *flat, *"rsio"[:n]) for flat in FLATTENED for n in range(5)]),
)


def replace_patterns(graph: Graph) -> dict[str, str]:
    """Replace every matching pattern in place; return the names of the replaced nodes and of their replacements."""
    for checked in graph.find_nodes(op="call_function", target=ATEN._assert_tensor_metadata.default):
        graph.erase_node(checked)
    replaced = {}
    for node in list(graph.nodes):
        for replace, patterns in PATTERNS:
            matches = chain.from_iterable(
                match_pattern(pattern, node, {}) for pattern in patterns if _heads(pattern, node)
            )
            fused = next(filter(None, (replace(PatternMatch(graph, node, bound)) for bound in matches)), None)
            if fused is not None:
                node.replace_all_uses_with(fused)
                replaced[node.name] = fused.name
                break
    graph.eliminate_dead_code()
    return replaced


def _heads(pattern: Pattern, node: Node) -> bool:
    """Return whether the node itself, not its value before a cast, is the last node of a pattern."""
    return node.op == "call_function" and node.target in HEADS[pattern[0]]
