"""A plain transformer as a graph document: blocks of attention and a feed-forward layer, forward only."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]


class _Writer:
    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.inputs: list[Document] = []
        self.nodes: list[Document] = []

    def input(self, name: str, shape: list[int], kind: str = "parameter", dtype: str | None = None) -> str:
        record = {"id": name, "kind": kind, "name": name, "shape": shape, "dtype": dtype or self.dtype}
        self.inputs.append(record)
        return name

    def node(self, op: str, inputs: list[str], shape: list[int], scope: str, **attrs: Any) -> str:
        name = f"{scope}.{op}{len(self.nodes)}"
        outputs = [{"shape": shape, "dtype": self.dtype}]
        self.nodes.append({"id": name, "op": op, "inputs": inputs, "attrs": attrs, "outputs": outputs, "scope": scope})
        return name


def transformer(
    blocks: int = 4,
    d: int = 1024,
    ff: int = 4096,
    heads: int = 16,
    batch: int = 32,
    seq: int = 128,
    dtype: str = "f32",
) -> Document:
    """Return the graph document of `blocks` pre-norm blocks: linear layers with bias, causal attention, gelu."""
    w = _Writer(dtype)
    full, split, wide = [batch, seq, d], [batch, heads, seq, d // heads], [batch, seq, ff]

    def norm(x: str, scope: str, name: str) -> str:
        weights = [w.input(f"{scope}.{name}.{part}", [d]) for part in ("weight", "bias")]
        return w.node("layer_norm", [x, *weights], full, scope, normalized_dims=1, eps=1e-5)

    def linear(x: str, scope: str, name: str, shape: list[int], inner: int) -> str:
        weight = w.input(f"{scope}.{name}.weight", [shape[-1], inner])
        bias = w.input(f"{scope}.{name}.bias", [shape[-1]])
        return w.node("linear", [x, weight, bias], shape, scope)

    def by_head(x: str, scope: str) -> str:
        reshaped = w.node("reshape", [x], [batch, seq, heads, d // heads], scope)
        return w.node("transpose", [reshaped], split, scope, permutation=[0, 2, 1, 3])

    x = w.input("x", full, "input")
    for block in range(blocks):
        scope = f"h{block}"
        normed = norm(x, scope, "ln_1")
        query, key, value = (by_head(linear(normed, scope, name, full, d), scope) for name in "qkv")
        mixed = w.node("scaled_dot_product_attention", [query, key, value], split, scope, causal=True)
        back = w.node("transpose", [mixed], [batch, seq, heads, d // heads], scope, permutation=[0, 2, 1, 3])
        merged = w.node("reshape", [back], full, scope)
        x = w.node("add", [x, linear(merged, scope, "o", full, d)], full, scope)
        hidden = linear(norm(x, scope, "ln_2"), scope, "up", wide, d)
        active = w.node("gelu", [hidden], wide, scope, approximate="tanh")
        x = w.node("add", [x, linear(active, scope, "down", full, ff)], full, scope)
    return {
        "format": "shardplan.graph",
        "version": 1,
        "name": f"transformer-{blocks}x{d}",
        "producer": {"name": "shardplan.benchmarks", "version": "1"},
        "inputs": w.inputs,
        "nodes": w.nodes,
        "outputs": [x],
        "annotations": [],
    }
