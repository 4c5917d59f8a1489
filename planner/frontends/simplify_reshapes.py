"""Reshapes that stand in the way, and how they go.

A dim made of several loops can only be split along the major one. transformers' Conv1D (GPT-2) makes such a dim,

    [b, s, k] -> reshape [b*s, k] -> addmm [b*s, n] -> reshape [b, s, n]

and s could not be split. But a product takes the rows of x one by one, whatever dims count them: it can read x as
it was, and both reshapes go. Its bias must be the same for every row, so of rank 1 or 0.

A reshape of a reshape can read what the first one read, if the boundaries of the dims at both ends (where a dim
begins: the product of the sizes to its right) divide one another. Otherwise the direct way can be worse: from
[4, 6] to [6, 4] no loop is common to both ends, while by way of [24] each half of the way has some.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from planner.ir.graph import value_id
from planner.ir.sharding import Shape

X_AND_WEIGHT = {"addmm": (1, 2), "linear": (0, 1)}
"""Where the ops whose x may have any rank read x and the weight; what else they read is a bias."""

Node = dict[str, Any]
Shapes = Mapping[str, Shape]


def simplify_reshapes(nodes: Sequence[Node], outputs: Sequence[str], inputs: Shapes) -> tuple[list[Node], list[str]]:
    """Nodes and outputs, given the shapes of the inputs, without the reshapes in the way; in linear time.

    A value that more than one node reads, or that is an output, stays.
    """
    nodes, outputs = _unmerge_rows(nodes, outputs, _collect_shapes(inputs, nodes))
    return _join_chains(nodes, outputs, _collect_shapes(inputs, nodes)), outputs


def _collect_shapes(inputs: Shapes, nodes: Iterable[Node]) -> Shapes:
    made = {value_id(n["id"], k): tuple(o["shape"]) for n in nodes for k, o in enumerate(n["outputs"])}
    return {**inputs, **made}


def _unmerge_rows(nodes: Sequence[Node], outputs: Sequence[str], shapes: Shapes) -> tuple[list[Node], list[str]]:
    """A product's id stands for what the reshape after it made."""
    around = _find_surrounding_reshapes(nodes, outputs, shapes)
    gone = {reshape["id"] for pair in around.values() for reshape in pair}
    now = {after["id"]: product for product, (_, after) in around.items()}
    kept = []
    for node in nodes:
        if node["id"] in around:
            before, after = around[node["id"]]
            inputs = [before["inputs"][0] if value == before["id"] else value for value in node["inputs"]]
            node = node | {"inputs": inputs, "outputs": after["outputs"]}
        if node["id"] not in gone:
            kept.append(node | {"inputs": [now.get(value, value) for value in node["inputs"]]})
    return kept, [now.get(value, value) for value in outputs]


def _find_surrounding_reshapes(
    nodes: Sequence[Node], outputs: Sequence[str], shapes: Shapes
) -> dict[str, tuple[Node, Node]]:
    """Product -> the reshape that merges the rows of x, and the one that splits them again.

    The first lowers the rank and the second raises it, so no reshape is both.
    """
    reshapes = {node["id"]: node for node in nodes if node["op"] == "reshape"}
    readers = _find_only_readers(nodes, outputs)
    found = {}
    for node in nodes:
        if node["op"] not in X_AND_WEIGHT or node["id"] not in readers:
            continue
        x, weight = X_AND_WEIGHT[node["op"]]
        before, after = reshapes.get(node["inputs"][x]), reshapes.get(readers[node["id"]]["id"])
        if before is None or after is None or before["id"] not in readers:
            continue
        source, merged, result = (shapes[value] for value in (*before["inputs"], before["id"], after["id"]))
        biases = [value for place, value in enumerate(node["inputs"]) if place not in (x, weight)]
        keeps_rows = source[-1:] == merged[-1:] and source[:-1] == result[:-1]
        if len(source) > len(merged) and keeps_rows and all(len(shapes[bias]) <= 1 for bias in biases):
            found[node["id"]] = before, after
    return found


def _join_chains(nodes: Iterable[Node], outputs: Sequence[str], shapes: Shapes) -> list[Node]:
    kept = {node["id"]: node for node in nodes}
    readers = _find_only_readers(kept.values(), outputs)
    for name, node in list(kept.items()):
        first = kept.get(node["inputs"][0]) if node["op"] == "reshape" else None
        if first is None or first["op"] != "reshape" or first["id"] not in readers:
            continue
        if _do_boundaries_divide(shapes[first["inputs"][0]], shapes[name]):
            kept[name] = node | {"inputs": first["inputs"]}
            del kept[first["id"]]
    return list(kept.values())


def _do_boundaries_divide(*shapes: Shape) -> bool:
    boundaries = {size for shape in shapes for size in accumulate(reversed(shape), operator.mul)}
    return all(high % low == 0 for low, high in pairwise(sorted(boundaries)))


def _find_only_readers(nodes: Iterable[Node], outputs: Iterable[str]) -> dict[str, Node]:
    """Value -> the node that reads it, where nothing else does and no output is it."""
    read = [(value, node) for node in nodes for value in node["inputs"]]
    count = Counter([*(value for value, _ in read), *outputs])
    return {value: node for value, node in read if count[value] == 1}
