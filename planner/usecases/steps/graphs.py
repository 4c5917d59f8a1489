"""Graphs of one micro batch of published training steps: forward, backward, and what is recomputed.

Models come from the zoo's builder and layers. GPT's block has separate products for query, key and value, so that they
split by heads; where the source had no fused attention, scores are computed op by op (q k^T, softmax, p v).

Recomputation inserts copies of forward ops before the layer's backward ops, which read the copies:

    full        every op of a layer, its last product included
    attention   the attention core of a layer (Korthikanti et al., 2022, "selective")
    per op      all but fused attention and every second product (TorchTitan's "selective" with option "op")

Parameters that are stored in another dtype are cast twice: before their first use in the forward pass, and again in
the backward pass. So what is gathered for one pass is not kept for the other (FSDP with reshard after forward).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from planner.frontends.graph_builder import DocumentValue
from planner.frontends.zoo import layers
from planner.frontends.zoo.attention import attention, split_heads
from planner.frontends.zoo.families import build_logits
from planner.frontends.zoo.model_builder import ModelBuilder
from planner.frontends.zoo.models import Model
from planner.frontends.zoo.training import cross_entropy, differentiate
from planner.frontends.zoo.update import Training, append_update, next_values
from planner.ir.graph import value_id

Document = dict[str, Any]
PRODUCTS = ("linear", "addmm")
CORE = ("scaled_dot_product_attention", "einsum", "softmax")


def micro_batch(model: Model, batch: int, seq: int, dtype: str, fused: bool) -> Document:
    """Return forward and backward pass; the outputs are the loss and the gradients of all parameters in order."""
    w = ModelBuilder(dtype)
    ids, labels = (w.input(name, [batch, seq], "input", dtype="i64") for name in ("input_ids", "labels"))
    logits = _gpt(w, model, ids, fused=fused) if model.family == "gpt" else build_logits(w, model, ids, capacity=1.0)
    loss, seed = cross_entropy(w, logits, labels)
    found = differentiate(w, [node for node in w.nodes if node["phase"] == "forward"], (logits, seed))
    return w.document("micro batch", [loss, *(found[parameter.id] for parameter in w.parameters)])


def optimizer(parameters: Iterable[Document], dtype: str) -> Document:
    """Return Adam's update of parameters whose gradients are inputs."""
    w = ModelBuilder(dtype)
    kept = [w.input(entry["id"], entry["shape"]) for entry in parameters]
    grads = {value.id: w.input(f"{value.id}.grad", value.shape, "input") for value in kept}
    append_update(w, grads, Training("adam"))
    return w.document("update", next_values(w))


def _gpt(w: ModelBuilder, model: Model, ids: DocumentValue, *, fused: bool) -> DocumentValue:
    batch, seq = ids.shape
    words = w.input("wte.weight", [model.vocabulary, model.width])
    places = w.input("wpe.weight", [seq, model.width])
    x = w.emit("add", [w.emit("embedding", [words, ids], [batch, seq, model.width]), places])
    for layer in range(model.layers):
        with w.within(f"h.{layer}"):
            x = _gpt_block(w, model, x, fused=fused)
    x = layers.layer_norm(w, "ln_f", x, model=model)
    return w.emit("linear", [x, words], [batch, seq, model.vocabulary])


def _gpt_block(w: ModelBuilder, model: Model, x: DocumentValue, *, fused: bool) -> DocumentValue:
    normed = layers.layer_norm(w, "ln_1", x, model=model)
    heads = [
        split_heads(w, layers.affine(w, f"attn.{name}", normed, width=model.width), [model.heads]) for name in "qkv"
    ]
    mixed = attention(w, heads) if fused else _scores(w, *heads)
    x = w.emit("add", [x, layers.affine(w, "attn.c_proj", mixed, width=model.width)])
    wide = layers.affine(w, "mlp.c_fc", layers.layer_norm(w, "ln_2", x, model=model), width=model.feed_forward)
    active = w.emit("gelu", [wide], approximate="tanh")
    return w.emit("add", [x, layers.affine(w, "mlp.c_proj", active, width=model.width)])


def _scores(w: ModelBuilder, query: DocumentValue, key: DocumentValue, value: DocumentValue) -> DocumentValue:
    batch, heads, seq, head = query.shape
    scores = w.emit("einsum", [query, key], [batch, heads, seq, seq], equation="b h s e, b h t e -> b h s t")
    shares = w.emit("softmax", [scores], dim=3)
    mixed = w.emit("einsum", [shares, value], query.shape, equation="b h s t, b h t e -> b h s e")
    back = w.emit("transpose", [mixed], [batch, seq, heads, head], permutation=[0, 2, 1, 3])
    return w.emit("reshape", [back], [batch, seq, heads * head])


def recomputed(document: Document, what: str) -> Document:
    """Return the document with the ops that `what` names computed again before each layer's backward pass."""
    chosen: dict[str, list[Document]] = defaultdict(list)
    for node in document["nodes"]:
        if node["scope"] and node["phase"] == "forward":
            chosen[node["scope"]].append(node)
    made = {scope: _copies(RECOMPUTED[what](nodes)) for scope, nodes in chosen.items()}
    nodes: list[Document] = []
    for node in document["nodes"]:
        if node["scope"] in made and node["phase"] == "backward":
            names, copies = made[node["scope"]]
            nodes += copies
            copies.clear()
            node = {**node, "inputs": [names.get(value, value) for value in node["inputs"]]}
        nodes.append(node)
    return {**document, "nodes": nodes}


def _per_op(nodes: list[Document]) -> list[Document]:
    products = [node["id"] for node in nodes if node["op"] in PRODUCTS]
    kept = {*products[::2], *(node["id"] for node in nodes if node["op"] == CORE[0])}
    return [node for node in nodes if node["id"] not in kept]


RECOMPUTED: dict[str, Callable[[list[Document]], list[Document]]] = {
    "none": lambda nodes: [],
    "full": lambda nodes: nodes,
    "attention": lambda nodes: [node for node in nodes if node["op"] in CORE],
    "per op": _per_op,
}


def _copies(nodes: list[Document]) -> tuple[dict[str, str], list[Document]]:
    """Return the names of recomputed values, and the ops that compute them."""
    names = {value: f"{value}~" for node in nodes for value in _values(node)}
    return names, [
        {**node, "id": f"{node['id']}~", "phase": "backward", "inputs": [names.get(v, v) for v in node["inputs"]]}
        for node in nodes
    ]


def _values(node: Document) -> list[str]:
    if len(node["outputs"]) > 1:
        raise ValueError(f"{node['op']} with several results is not made a second time")
    return [node["id"]]


def stored(document: Document, dtype: str, reduced: str) -> Document:
    """Store parameters in `dtype` and cast them before each pass; cast gradients to `reduced`."""
    parameters = {entry["id"]: entry for entry in document["inputs"] if entry["kind"] == "parameter"}
    inputs = [{**entry, "dtype": dtype} if entry["id"] in parameters else entry for entry in document["inputs"]]
    loss, *grads = document["outputs"]
    shapes = dict(zip(grads, (entry["shape"] for entry in parameters.values()), strict=True))
    known = {entry["dtype"] for entry in parameters.values()}
    left = {grad: f"{grad}.{reduced}" if known != {reduced} else grad for grad in grads}
    nodes: list[Document] = []
    for phase in ("forward", "backward"):
        listed = [node for node in document["nodes"] if node["phase"] == phase]
        read = {v: f"{v}.{phase}" for node in listed for v in node["inputs"] if v in parameters}
        nodes += [_cast(read[v], v, parameters[v]["shape"], parameters[v]["dtype"]) for v in read]
        for node in listed:
            nodes.append({**node, "inputs": [read.get(value, value) for value in node["inputs"]]})
            made = [value for value in _list_values(node) if left.get(value, value) != value]
            nodes += [_cast(left[value], value, shapes[value], reduced) for value in made]
    return {**document, "inputs": inputs, "nodes": nodes, "outputs": [loss, *(left[grad] for grad in grads)]}


def _list_values(node: Document) -> list[str]:
    return [value_id(node["id"], k) for k in range(len(node["outputs"]))]


def _cast(name: str, value: str, shape: list[int], dtype: str) -> Document:
    made = [{"shape": shape, "dtype": dtype}]
    return {"id": name, "op": "cast", "inputs": [value], "attrs": {}, "outputs": made, "scope": "", "phase": "forward"}
