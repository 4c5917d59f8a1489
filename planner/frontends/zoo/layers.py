"""Layers of the families.

Attention works on [batch, kv heads, queries per key, sequence, head]; the third dim is absent where every query has
its own key. Queries that share a key read it broadcast, so that the key is split with the heads and never repeated.

A layer of experts dispatches by capacity, as GShard does (D. Lepikhin et al., 2020): every expert takes at most
c = ceil(capacity * active * sequence / experts) tokens of each sequence, first choices before second ones, and drops
the rest. All sizes are therefore static. The expert is a dim like any other: splitting it is expert parallelism, and
the all-to-all is the reshard between tokens split by batch and tokens split by expert. The products of the experts
cost as much as `active` of them, not all. The products with the one-hot dispatch are counted as they are; they cost a
few per cent of the experts' own.

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


def linear(builder: ModelBuilder, name: str, x: DocumentValue, *, width: int) -> DocumentValue:
    """Multiply x by the transpose of a weight [width, last dim of x]."""
    weight = builder.input(f"{name}.weight", [width, x.shape[-1]])
    return builder.emit("linear", [x, weight], [*x.shape[:-1], width])


def affine(builder: ModelBuilder, name: str, x: DocumentValue, *, width: int) -> DocumentValue:
    """Multiply x by a weight [last dim of x, width] and add a bias."""
    weight, bias = builder.input(f"{name}.weight", [x.shape[-1], width]), builder.input(f"{name}.bias", [width])
    return builder.emit("addmm", [bias, x, weight], [*x.shape[:-1], width])


def layer_norm(builder: ModelBuilder, name: str, x: DocumentValue, *, model: Model) -> DocumentValue:
    weights = [builder.input(f"{name}.{part}", x.shape[-1:]) for part in ("weight", "bias")]
    return builder.emit("layer_norm", [x, *weights], eps=model.eps)


def rms_norm(builder: ModelBuilder, name: str, x: DocumentValue, *, model: Model) -> DocumentValue:
    return builder.emit("rms_norm", [x, builder.input(f"{name}.weight", x.shape[-1:])], eps=model.eps)


def split_heads(builder: ModelBuilder, x: DocumentValue, heads: Sequence[int]) -> DocumentValue:
    """Rearrange [batch, sequence, width] to [batch, *heads, sequence, head]."""
    batch, sequence, width = x.shape
    head = width // math.prod(heads)
    apart = builder.emit("reshape", [x], [batch, sequence, *heads, head])
    count = len(heads)
    order = [0, *range(2, 2 + count), 1, 2 + count]
    return builder.emit("transpose", [apart], [batch, *heads, sequence, head], permutation=order)


def attention(builder: ModelBuilder, query: DocumentValue, key: DocumentValue, value: DocumentValue) -> DocumentValue:
    """Apply causal attention to [batch, *heads, sequence, head]; return [batch, sequence, width]."""
    mixed = builder.emit("scaled_dot_product_attention", [query, key, value], causal=True)
    batch, *heads, sequence, head = mixed.shape
    count = len(heads)
    order = [0, 1 + count, *range(1, 1 + count), 2 + count]
    back = builder.emit("transpose", [mixed], [batch, sequence, *heads, head], permutation=order)
    return builder.emit("reshape", [back], [batch, sequence, math.prod(heads) * head])


def gated_mlp(builder: ModelBuilder, x: DocumentValue, model: Model) -> DocumentValue:
    """Apply the feed-forward network of Llama: down(silu(gate x) * up x)."""
    gate = linear(builder, "mlp.gate_proj", x, width=model.feed_forward)
    up = linear(builder, "mlp.up_proj", x, width=model.feed_forward)
    hidden = builder.emit("multiply", [builder.emit("silu", [gate]), up])
    return linear(builder, "mlp.down_proj", hidden, width=model.width)


def experts(builder: ModelBuilder, x: DocumentValue, model: Model, *, capacity: float) -> DocumentValue:
    """Apply one network like `gated_mlp` per expert; each token visits `model.active` of them."""
    batch, sequence, width = x.shape
    count, wide = model.experts, model.feed_forward
    slots = min(sequence, math.ceil(capacity * model.active * sequence / count))
    dispatch, combine = route_tokens(builder, linear(builder, "mlp.gate", x, width=count), model.active, slots=slots)
    shape = [batch, count, slots, width]
    tokens = builder.emit("einsum", [dispatch, x], shape, equation="b s e c, b s d -> b e c d")
    inner = [builder.input(f"mlp.experts.{name}", [count, wide, width]) for name in ("gate_proj", "up_proj")]
    hidden = [batch, count, slots, wide]
    gate, up = (
        builder.emit("einsum", [tokens, weight], hidden, equation="b e c d, e f d -> b e c f") for weight in inner
    )
    active = builder.emit("multiply", [builder.emit("silu", [gate]), up])
    down = builder.input("mlp.experts.down_proj", [count, width, wide])
    expert_out = builder.emit("einsum", [active, down], shape, equation="b e c f, e d f -> b e c d")
    return builder.emit("einsum", [combine, expert_out], x.shape, equation="b s e c, b e c d -> b s d")


def route_tokens(
    builder: ModelBuilder, logits: DocumentValue, active: int, *, slots: int
) -> tuple[DocumentValue, DocumentValue]:
    """Return dispatch and combine, [batch, sequence, expert, slot], for router logits [batch, sequence, expert]."""
    batch, sequence, count = logits.shape
    best = TensorType((batch, sequence, active), logits.dtype), TensorType((batch, sequence, active), "i64")
    places = builder.emit_all("topk", [logits], best, attrs={"dim": 2})[1]
    places = builder.emit("transpose", [places], [batch, active, sequence], permutation=[0, 2, 1])
    hit = one_hot(builder, places, count)
    turn = builder.emit("reshape", [builder.cast(hit, "i64")], [batch, active * sequence, count])
    turns = builder.emit("multiply", [builder.emit("cumsum", [turn], dim=1), turn])
    mine = builder.emit("sum", [turns], turns.shape[:2], dims=[2])
    slot = builder.cast(one_hot(builder, builder.emit("reshape", [mine], places.shape), slots, start=1), logits.dtype)
    chosen = builder.cast(hit, logits.dtype)
    score = builder.emit("einsum", [logits, chosen], places.shape, equation="b s e, b k s e -> b k s")
    weight = builder.emit("softmax", [score], dim=1)
    shape = [batch, sequence, count, slots]
    return (
        builder.emit("einsum", [chosen, slot], shape, equation="b k s e, b k s c -> b s e c"),
        builder.emit("einsum", [weight, chosen, slot], shape, equation="b k s, b k s e, b k s c -> b s e c"),
    )


def one_hot(builder: ModelBuilder, places: DocumentValue, count: int, *, start: int = 0) -> DocumentValue:
    """Return bool [..., count]: whether a place equals start, start + 1, ...; all false for a place beyond them."""
    every = builder.emit("arange", [], (count,), dtype=places.dtype, start=start)
    apart = builder.emit("reshape", [places], [*places.shape, 1])
    return builder.emit("equal", [apart, every], [*places.shape, count], dtype="bool")
