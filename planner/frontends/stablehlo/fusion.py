"""Fusion of pointwise ops into their only reader, as a compiler of StableHLO does.

JAX decomposes what other frameworks have ops for: a silu, an optimizer's update and their derivatives are trees of
pointwise ops whose inner values a compiled program never stores. A tree grows from its last op to the ops that it
reads, as long as these have the same shape and phase and no other reader. A cast to a narrower dtype is not fused: its
result is what should be sent if the layouts on its two sides differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from planner.frontends.graph_builder import Entry
from planner.ir.dtypes import DTYPE_BYTES
from planner.ir.graph import value_id
from planner.ops.fused_elementwise import FUSIBLE_OPS, MAX_STEPS

MAX_OPERANDS = 16


def fuse_pointwise(nodes: Sequence[Entry], inputs: Iterable[Entry], kept: Collection[str]) -> list[Entry]:
    """Replace every tree of pointwise ops by one node with the id of its last op, in linear time.

    `nodes` and `inputs` are entries of a document. The values in `kept` are not fused away.
    """
    read = Counter(value for node in nodes for value in node["inputs"]) + Counter(kept)
    growth = _FusionPass(read, {entry["id"]: entry["dtype"] for entry in inputs})
    for node in nodes:
        growth.add(node)
    return list(growth.nodes.values())


@dataclass(slots=True)
class _FusionTree:
    """The values that a tree reads from outside, in order, and its ops; the last op gives the tree its id."""

    last: Entry
    outside: dict[str, None] = field(default_factory=dict)
    ops: list[Entry] = field(default_factory=list)
    narrows: bool = False

    def node(self) -> Entry:
        number = {name: n for n, name in enumerate((*self.outside, *(op["id"] for op in self.ops)))}
        steps = [
            [op["op"], [number[name] for name in op["inputs"]], op["outputs"][0]["dtype"], op["attrs"]]
            for op in self.ops
        ]
        return self.last | {"op": "pointwise", "inputs": list(self.outside), "attrs": {"steps": steps}}

    def may_take(self, other: _FusionTree) -> bool:
        alike = other.last["outputs"][0]["shape"] == self.last["outputs"][0]["shape"]
        steps, outside = len(self.ops) + len(other.ops), len(self.outside) + len(other.outside)
        few = steps < MAX_STEPS and outside + len(self.last["inputs"]) <= MAX_OPERANDS
        return alike and few and other.last["phase"] == self.last["phase"] and not other.narrows


@dataclass(slots=True)
class _FusionPass:
    """One pass over the nodes; `read` counts the uses of every value, `dtypes` holds the dtypes so far."""

    read: Mapping[str, int]
    dtypes: dict[str, str]
    trees: dict[str, _FusionTree] = field(default_factory=dict)
    nodes: dict[str, Entry] = field(default_factory=dict)

    def add(self, node: Entry) -> None:
        self.dtypes |= {value_id(node["id"], k): made["dtype"] for k, made in enumerate(node["outputs"])}
        if node["op"] in FUSIBLE_OPS and "rule" not in node:
            tree = self._grown(node)
            self.trees[node["id"]] = tree
            node = tree.node() if len(tree.ops) > 1 else node
        self.nodes[node["id"]] = node

    def _grown(self, node: Entry) -> _FusionTree:
        tree = _FusionTree(node, narrows=self._narrows(node))
        for name, times in Counter[str](node["inputs"]).items():
            inner = self.trees.get(name)
            if inner is not None and self.read[name] == times and tree.may_take(inner):
                tree.outside |= inner.outside
                tree.ops += inner.ops
                del self.nodes[name], self.trees[name]
            else:
                tree.outside[name] = None
        tree.ops.append(node)
        return tree

    def _narrows(self, node: Entry) -> bool:
        made, (source, *_) = node["outputs"][0]["dtype"], node["inputs"]
        return node["op"] == "cast" and DTYPE_BYTES[made] < DTYPE_BYTES[self.dtypes[source]]
