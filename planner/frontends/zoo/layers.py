"""What the families are built of.

Attention works on values of dims (batch, kv heads, queries that share one, sequence, head): where every query has a
key of its own, without the third. Queries that share a key read it broadcast, so it is split with the heads, never
repeated.

A layer of experts dispatches by capacity, as GShard does (D. Lepikhin et al., 2020): every expert takes at most
c = ceil(capacity * active * sequence / experts) tokens of each sequence, first choices before second ones, and what
is over is left out. All sizes are then known beforehand, the expert is a dim like any other - split, it is expert
parallelism, and the all-to-all is the reshard between tokens split by sequence of the batch and tokens split by
expert - and the experts' products cost what `active` of them cost, not all. The products with the one-hot dispatch
are counted as they are; they are a few per cent of the experts' own.

    slot[b,k,s,c] is choice k of token s the c-th token of its expert?      chosen[b,k,s,e] is it expert e's?
    dispatch[b,s,e,c] = sum_k chosen slot      combine[b,s,e,c] = sum_k weight chosen slot
    weight[b,k,s] = softmax over k of the chosen experts' logits
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from planner.frontends.graph_builder import DocumentValue
from planner.frontends.zoo.model_builder import ModelBuilder
from planner.frontends.zoo.models import Model
from planner.ir.graph import TensorType


def linear(w: ModelBuilder, name: str, x: DocumentValue, *, width: int) -> DocumentValue:
    """x times a weight [width, x's last dim], transposed."""
    weight = w.input(f"{name}.weight", [width, x.shape[-1]])
    return w.emit("linear", [x, weight], [*x.shape[:-1], width])


def affine(w: ModelBuilder, name: str, x: DocumentValue, *, width: int) -> DocumentValue:
    """x times a weight [x's last dim, width], and a bias."""
    weight, bias = w.input(f"{name}.weight", [x.shape[-1], width]), w.input(f"{name}.bias", [width])
    return w.emit("addmm", [bias, x, weight], [*x.shape[:-1], width])


def layer_norm(w: ModelBuilder, name: str, x: DocumentValue, *, model: Model) -> DocumentValue:
    weights = [w.input(f"{name}.{part}", x.shape[-1:]) for part in ("weight", "bias")]
    return w.emit("layer_norm", [x, *weights], eps=model.eps)


def rms_norm(w: ModelBuilder, name: str, x: DocumentValue, *, model: Model) -> DocumentValue:
    return w.emit("rms_norm", [x, w.input(f"{name}.weight", x.shape[-1:])], eps=model.eps)


def split_heads(w: ModelBuilder, x: DocumentValue, heads: Sequence[int]) -> DocumentValue:
    """[batch, sequence, width] -> [batch, *heads, sequence, head]."""
    batch, sequence, width = x.shape
    head = width // math.prod(heads)
    apart = w.emit("reshape", [x], [batch, sequence, *heads, head])
    count = len(heads)
    order = [0, *range(2, 2 + count), 1, 2 + count]
    return w.emit("transpose", [apart], [batch, *heads, sequence, head], permutation=order)


def attention(w: ModelBuilder, query: DocumentValue, key: DocumentValue, value: DocumentValue) -> DocumentValue:
    """Causal; [batch, *heads, sequence, head] -> [batch, sequence, width]."""
    mixed = w.emit("scaled_dot_product_attention", [query, key, value], causal=True)
    batch, *heads, sequence, head = mixed.shape
    count = len(heads)
    order = [0, 1 + count, *range(1, 1 + count), 2 + count]
    back = w.emit("transpose", [mixed], [batch, sequence, *heads, head], permutation=order)
    return w.emit("reshape", [back], [batch, sequence, math.prod(heads) * head])


def gated_mlp(w: ModelBuilder, x: DocumentValue, model: Model) -> DocumentValue:
    """The feed-forward network of Llama: down(silu(gate x) * up x)."""
    gate = linear(w, "mlp.gate_proj", x, width=model.feed_forward)
    up = linear(w, "mlp.up_proj", x, width=model.feed_forward)
    hidden = w.emit("multiply", [w.emit("silu", [gate]), up])
    return linear(w, "mlp.down_proj", hidden, width=model.width)


def experts(w: ModelBuilder, x: DocumentValue, model: Model, *, capacity: float) -> DocumentValue:
    """A feed-forward network like `gated_mlp` for every expert, of which each token visits some."""
    batch, sequence, width = x.shape
    count, wide = model.experts, model.feed_forward
    slots = min(sequence, math.ceil(capacity * model.active * sequence / count))
    dispatch, combine = route_tokens(w, linear(w, "mlp.gate", x, width=count), model.active, slots=slots)
    shape = [batch, count, slots, width]
    taken = w.emit("einsum", [dispatch, x], shape, equation="b s e c, b s d -> b e c d")
    into = [w.input(f"mlp.experts.{name}", [count, wide, width]) for name in ("gate_proj", "up_proj")]
    hidden = [batch, count, slots, wide]
    gate, up = (w.emit("einsum", [taken, one], hidden, equation="b e c d, e f d -> b e c f") for one in into)
    active = w.emit("multiply", [w.emit("silu", [gate]), up])
    out = w.input("mlp.experts.down_proj", [count, width, wide])
    made = w.emit("einsum", [active, out], shape, equation="b e c f, e d f -> b e c d")
    return w.emit("einsum", [combine, made], x.shape, equation="b s e c, b e c d -> b s d")


def route_tokens(
    w: ModelBuilder, logits: DocumentValue, active: int, *, slots: int
) -> tuple[DocumentValue, DocumentValue]:
    """Dispatch and combine [batch, sequence, expert, slot] of the experts' logits [batch, sequence, expert]."""
    batch, sequence, count = logits.shape
    best = TensorType((batch, sequence, active), logits.dtype), TensorType((batch, sequence, active), "i64")
    places = w.emit_all("topk", [logits], best, attrs={"dim": 2})[1]
    places = w.emit("transpose", [places], [batch, active, sequence], permutation=[0, 2, 1])
    hit = one_hot(w, places, count)
    turn = w.emit("reshape", [w.cast(hit, "i64")], [batch, active * sequence, count])
    turns = w.emit("multiply", [w.emit("cumsum", [turn], dim=1), turn])
    mine = w.emit("sum", [turns], turns.shape[:2], dims=[2])
    slot = w.cast(one_hot(w, w.emit("reshape", [mine], places.shape), slots, start=1), logits.dtype)
    chosen = w.cast(hit, logits.dtype)
    score = w.emit("einsum", [logits, chosen], places.shape, equation="b s e, b k s e -> b k s")
    weight = w.emit("softmax", [score], dim=1)
    shape = [batch, sequence, count, slots]
    return (
        w.emit("einsum", [chosen, slot], shape, equation="b k s e, b k s c -> b s e c"),
        w.emit("einsum", [weight, chosen, slot], shape, equation="b k s, b k s e, b k s c -> b s e c"),
    )


def one_hot(w: ModelBuilder, places: DocumentValue, count: int, *, start: int = 0) -> DocumentValue:
    """[..., count] bool: whether a place is start, start + 1, ...; all false for one beyond them."""
    every = w.emit("arange", [], (count,), dtype=places.dtype, start=start)
    apart = w.emit("reshape", [places], [*places.shape, 1])
    return w.emit("equal", [apart, every], [*places.shape, count], dtype="bool")
