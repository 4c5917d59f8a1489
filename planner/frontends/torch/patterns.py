"""Small pieces that together are one row: found in an exported graph by their structure, and replaced by one op.

How a pattern is written and matched: `planner.frontends.torch.pattern_match`.

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
"""What may stand between two equal halves and what is read as cos and sin."""


def replace_rms_norm(found: PatternMatch) -> Node | None:
    x, weight, eps = found.wide("x"), found.wide("w"), found["eps"]
    fits = (
        isinstance(weight, Node)
        and tensor_type_of(weight).shape == tensor_type_of(x).shape[-1:]
        and isinstance(eps, float)
    )
    if not fits or tensor_type_of(x).shape != tensor_type_of(found.root).shape or not found.of_one_dtype(x, weight):
        return None
    return found.call(custom_ops.OPS.rms_norm.default, x, weight, eps)


def replace_gelu(found: PatternMatch) -> Node | None:
    x = found.wide("x")
    return found.call(ATEN.gelu.default, x, approximate="tanh") if found.of_one_dtype(x) else None


def replace_rope(found: PatternMatch) -> Node | None:
    x, half = found.wide("x"), found["half"]
    halves = [_half(found, found[name]) for name in ("cos", "sin")]
    if 2 * half != tensor_type_of(x).shape[-1] or found["end"] < 2 * half or None in halves:
        return None
    if len(
        {tensor_type_of(x).shape[-2], *(tensor_type_of(each).shape[0] for each in halves if each)}
    ) > 1 or not found.of_one_dtype(x):
        return None
    return found.call(custom_ops.OPS.rope.default, x, *halves)


def _half(found: PatternMatch, angles: Any) -> Node | None:
    """[sequence, half]: the first of the two equal halves of a value's last dim; none if they are not known equal."""
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
    cut = found.call(ATEN.slice.Tensor, angles, len(tensor_type_of(angles).shape) - 1, 0, width // 2, after=angles)
    return found.call(ATEN.view.default, cut, [rows, width // 2], after=cut)


def _keeps_rows(node: Node) -> bool:
    """Whether a view has the two last dims of what it reads."""
    return bool(tensor_type_of(node).shape[-2:] == tensor_type_of(node.args[0]).shape[-2:])


def replace_addmm(found: PatternMatch) -> Node | None:
    """Unless somebody else reads the product, which would then be made twice."""
    x, weight, bias = (found[name] for name in ("x", "w", "bias"))
    if len(found.root.args[0].users) > 1 or len(strip_casts(found.root.args[0]).users) > 1:
        return None
    keeps = (*tensor_type_of(x).shape[:-1], tensor_type_of(weight).shape[1]) == tuple(tensor_type_of(found.root).shape)
    fits = (
        keeps
        and tensor_type_of(x).shape[-1] == tensor_type_of(weight).shape[0]
        and len(tensor_type_of(bias).shape) == 1
    )
    return found.call(custom_ops.OPS.addmm.default, bias, x, weight) if fits else None


def replace_attention(found: PatternMatch) -> Node | None:
    """Of shared keys and values [batch, heads, 1 -> copies, sequence, head] as they were before the copies."""
    query, key, value = (found[name] for name in "qkv")
    whole = [
        len(tensor_type_of(each).shape) == 4 and tensor_type_of(each).shape[-2:] == tensor_type_of(query).shape[-2:]
        for each in (key, value)
    ]
    if (
        not all(whole)
        or tensor_type_of(query).shape[1] % tensor_type_of(key).shape[1]
        or found.root.kwargs.get("enable_gqa")
    ):
        return None
    rest, named = found.root.args[3:], {**found.root.kwargs, "enable_gqa": True}
    return found.call(ATEN.scaled_dot_product_attention.default, query, key, value, *rest, **named)


def replace_loss(found: PatternMatch) -> Node | None:
    """Of a mean without weights of classes or smoothing."""
    logits, labels = found["logits"], found["labels"]
    rest = zip(("weight", "reduction", "ignore_index", "label_smoothing"), found.root.args[2:], strict=False)
    given = {"reduction": 1, "ignore_index": -100, **dict(rest), **found.root.kwargs}
    plain = given["reduction"] == 1 and given.get("weight") is None and not given.get("label_smoothing")
    flat = len(tensor_type_of(found.root.args[0]).shape) == 2 and len(tensor_type_of(found.root.args[1]).shape) == 1
    fits = flat and tensor_type_of(logits).shape == (
        *tensor_type_of(labels).shape,
        tensor_type_of(found.root.args[0]).shape[-1],
    )
    if not (plain and fits and found.of_one_dtype(logits)):
        return None
    both = found.call(custom_ops.OPS.cross_entropy.default, logits, labels, given["ignore_index"])
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

PATTERNS: tuple[tuple[Callable[[PatternMatch], Node | None], Iterable[Pattern]], ...] = (
    (replace_rms_norm, [("mul", "w", ("mul", "x", root)) for root in ROOTS]),
    (replace_gelu, [("mul", ("mul", 0.5, "x"), ("add", 1, bent)) for bent in BENT]),
    (replace_rope, [("add", ("mul", "x", "cos"), ("mul", TURNED, "sin"))]),
    (replace_addmm, [("view", ("addmm", "bias", ("view", "x", "rows"), "w"), "shape")]),
    (
        replace_attention,
        [("attention", "q", REPEATED["k"], REPEATED["v"], *["mask", "p", "causal"][:n]) for n in range(4)],
    ),
    (replace_loss, [("loss", *flat, *"rsio"[:n]) for flat in FLATTENED for n in range(5)]),
)


def replace_patterns(graph: Graph) -> dict[str, str]:
    """Replaces every pattern found; the names of the nodes that went, and of those in their place."""
    for checked in graph.find_nodes(op="call_function", target=ATEN._assert_tensor_metadata.default):
        graph.erase_node(checked)
    replaced = {}
    for node in list(graph.nodes):
        for make, patterns in PATTERNS:
            found = chain.from_iterable(
                match_pattern(pattern, node, {}) for pattern in patterns if _heads(pattern, node)
            )
            made = next(filter(None, (make(PatternMatch(graph, node, bound)) for bound in found)), None)
            if made is not None:
                node.replace_all_uses_with(made)
                replaced[node.name] = made.name
                break
    graph.eliminate_dead_code()
    return replaced


def _heads(pattern: Pattern, node: Node) -> bool:
    """Whether the node itself, not what it was before a cast, is the pattern's last piece."""
    return node.op == "call_function" and node.target in HEADS[pattern[0]]
