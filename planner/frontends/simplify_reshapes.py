"""Removal of reshapes that keep dims from being split.

A dim that merges several loops can only be split along the major one. transformers' Conv1D (GPT-2) merges two,

    [b, s, k] -> reshape [b*s, k] -> addmm [b*s, n] -> reshape [b, s, n]

so that s could not be split. But a product treats every row of x alike, whatever dims count the rows: it can read x in
its original shape, and both reshapes are removed. The bias must be the same for every row, so its rank is 0 or 1.

A reshape of a reshape can read the first one's operand directly if the boundaries of the dims at both ends (the
product of the sizes to the right of a dim) divide one another. Otherwise the direct reshape can be worse: [4, 6] and
[6, 4] have no loop in common, while a reshape through [24] shares one on each side.
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
"""The operand numbers of x and weight, for ops whose x may have any rank; any other operand is a bias."""

Node = dict[str, Any]
Shapes = Mapping[str, Shape]


def simplify_reshapes(nodes: Sequence[Node], outputs: Sequence[str], inputs: Shapes) -> tuple[list[Node], list[str]]:
    """Return nodes and outputs without the removable reshapes, in linear time; `inputs` maps inputs to their shapes.

    A reshape stays if more than one node reads it or if it is an output.
    """
    nodes, outputs = _unmerge_rows(nodes, outputs, _collect_shapes(inputs, nodes))
    return _join_chains(nodes, outputs, _collect_shapes(inputs, nodes)), outputs


def _collect_shapes(inputs: Shapes, nodes: Iterable[Node]) -> Shapes:
    results = {value_id(n["id"], k): tuple(o["shape"]) for n in nodes for k, o in enumerate(n["outputs"])}
    return {**inputs, **results}


def _unmerge_rows(nodes: Sequence[Node], outputs: Sequence[str], shapes: Shapes) -> tuple[list[Node], list[str]]:
    """Let products read and write the shapes of the reshapes around them; readers of the second read the product."""
    around = _find_surrounding_reshapes(nodes, outputs, shapes)
    removed = {reshape["id"] for pair in around.values() for reshape in pair}
    renamed = {after["id"]: product for product, (_, after) in around.items()}
    kept = []
    for node in nodes:
        if node["id"] in around:
            before, after = around[node["id"]]
            inputs = [before["inputs"][0] if value == before["id"] else value for value in node["inputs"]]
            node = node | {"inputs": inputs, "outputs": after["outputs"]}
        if node["id"] not in removed:
            kept.append(node | {"inputs": [renamed.get(value, value) for value in node["inputs"]]})
    return kept, [renamed.get(value, value) for value in outputs]


def _find_surrounding_reshapes(
    nodes: Sequence[Node], outputs: Sequence[str], shapes: Shapes
) -> dict[str, tuple[Node, Node]]:
    """Return, by product, the reshape that merges the rows of x and the one that splits them again.

    The first lowers the rank and the second raises it, so no reshape is in two pairs.
    """
    reshapes = {node["id"]: node for node in nodes if node["op"] == "reshape"}
    readers = _find_only_readers(nodes, outputs)
    pairs = {}
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
            pairs[node["id"]] = before, after
    return pairs


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
    """Return the reader of every value that has one reader and is no output."""
    read = [(value, node) for node in nodes for value in node["inputs"]]
    count = Counter([*(value for value, _ in read), *outputs])
    return {value: node for value, node in read if count[value] == 1}
