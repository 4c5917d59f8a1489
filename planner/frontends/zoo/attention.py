"""Attention of the families.

It works on [batch, kv heads, queries per key, sequence, head]; the third dim is absent where every query has its own
key. Queries that share a key read it broadcast, so that the key is split with the heads and never repeated.

Latent attention (DeepSeek-AI, DeepSeek-V2, 2024) projects tokens to a low rank first, queries apart from keys and
values. Only a part of a head of its own is turned by position; that of the keys is shared by all heads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from planner.frontends.graph_builder import DocumentValue
from planner.frontends.zoo.layers import linear, rms_norm
from planner.frontends.zoo.model_builder import KeyValueCache, ModelBuilder
from planner.frontends.zoo.models import Model
from planner.ir.graph import TensorType


@dataclass(frozen=True, slots=True)
class Reach:
    """What the queries of a layer attend to: the last `window` keys (0: all), at positions with these angles."""

    angles: Sequence[DocumentValue]
    window: int


def split_heads(builder: ModelBuilder, x: DocumentValue, heads: Sequence[int]) -> DocumentValue:
    """Rearrange [batch, sequence, width] to [batch, *heads, sequence, head]."""
    batch, sequence, width = x.shape
    head = width // math.prod(heads)
    apart = builder.emit("reshape", [x], [batch, sequence, *heads, head])
    count = len(heads)
    order = [0, *range(2, 2 + count), 1, 2 + count]
    return builder.emit("transpose", [apart], [batch, *heads, sequence, head], permutation=order)


def attention(
    builder: ModelBuilder, operands: Sequence[DocumentValue], *, window: int = 0, scale: float | None = None
) -> DocumentValue:
    """Apply causal attention to query, key and value [batch, *heads, sequence, head], and to the scores of sinks.

    With a cache that has a length, the one query attends to the cached keys too. Return [batch, sequence, width].
    """
    query, _, value, *sinks = operands
    attrs: dict[str, Any] = ({} if scale is None else {"scale": scale}) | ({"sinks": True} if sinks else {})
    shape = [*query.shape[:-1], value.shape[-1]]
    if builder.cache is not None:
        operands = _keep(builder, builder.cache, operands, window=window)
    if builder.cache is not None and builder.cache.length is not None:
        mixed = builder.emit("cached_attention", operands, shape, **attrs)
    else:
        attrs |= {"causal": True} | ({"window": window} if window else {})
        mixed = builder.emit("scaled_dot_product_attention", operands, shape, **attrs)
    batch, *heads, sequence, head = mixed.shape
    count = len(heads)
    order = [0, 1 + count, *range(1, 1 + count), 2 + count]
    back = builder.emit("transpose", [mixed], [batch, sequence, *heads, head], permutation=order)
    return builder.emit("reshape", [back], [batch, sequence, math.prod(heads) * head])


def _keep(
    builder: ModelBuilder, cache: KeyValueCache, operands: Sequence[DocumentValue], *, window: int
) -> Sequence[DocumentValue]:
    """Keep the keys and values that later tokens attend to. Return the operands of attention, with the cache if any.

    A layer with a window keeps those of the last tokens only, in any order: keys are turned by their positions already.
    """
    query, key, value, *sinks = operands
    most = window - 1 if window else cache.tokens
    if cache.length is None:
        dim = len(key.shape) - 2
        kept = min(most or key.shape[dim], key.shape[dim])
        for each in (key, value):
            shape, first = [*each.shape[:dim], kept, each.shape[-1]], each.shape[dim] - kept
            last = builder.emit("slice", [each], shape, dim=dim, start=first, stop=first + kept) if first else each
            cache.written.append(last)
        return operands
    room = [*key.shape[:-2], min(most, cache.tokens)]
    past = [
        builder.input(f"{name}_cache", [*room, each.shape[-1]], "buffer")
        for name, each in (("key", key), ("value", value))
    ]
    cache.written += [key, value]
    return [query, *past, key, value, cache.length, *sinks]


def grouped_attention(builder: ModelBuilder, model: Model, x: DocumentValue, *, reach: Reach) -> DocumentValue:
    """Apply attention whose query heads share keys and values, without the projection of its result."""
    groups, members, style = model.kv_heads, model.heads // model.kv_heads, model.style
    shared = [groups, 1] if members > 1 else [groups]
    own = [groups, members] if members > 1 else [groups]

    def project(name: str, heads: Sequence[int]) -> DocumentValue:
        width = math.prod(heads) * model.head
        joined = linear(builder, f"self_attn.{name}_proj", x, width=width, has_bias=style.has_biases)
        return split_heads(builder, joined, heads)

    query, key, value = project("q", own), project("k", shared), project("v", shared)
    if style.has_head_norms:
        query, key = (
            rms_norm(builder, f"self_attn.{name}_norm", each, model=model) for name, each in (("q", query), ("k", key))
        )
    query, key = (builder.emit("rope", [each, *reach.angles]) for each in (query, key))
    sinks = []
    if style.has_sinks:
        sinks = [builder.reshape(builder.input("self_attn.sinks", [model.heads]), [*own, 1, 1])]
    scale = model.query_scalar**-0.5 if model.query_scalar else None
    return attention(builder, [query, key, value, *sinks], window=reach.window, scale=scale)


def latent_attention(builder: ModelBuilder, model: Model, x: DocumentValue, *, reach: Reach) -> DocumentValue:
    """Apply attention to latent queries, keys and values, without the projection of its result."""
    heads, head, turned = model.heads, model.head, model.turned_width
    latent = linear(builder, "self_attn.q_a_proj", x, width=model.query_rank)
    latent = rms_norm(builder, "self_attn.q_a_layernorm", latent, model=model)
    joined = linear(builder, "self_attn.q_b_proj", latent, width=heads * (head + turned))
    plain, part = split_last(builder, split_heads(builder, joined, [heads]), [head, turned])
    query = _join_turned(builder, plain, builder.emit("rope", [part, *reach.angles]))
    joined = linear(builder, "self_attn.kv_a_proj_with_mqa", x, width=model.kv_rank + turned)
    latent, part = split_last(builder, joined, [model.kv_rank, turned])
    latent = rms_norm(builder, "self_attn.kv_a_layernorm", latent, model=model)
    joined = linear(builder, "self_attn.kv_b_proj", latent, width=2 * heads * head)
    plain, value = split_last(builder, split_heads(builder, joined, [heads]), [head, head])
    part = builder.emit("rope", [split_heads(builder, part, [1]), *reach.angles])
    key = _join_turned(builder, plain, builder.emit("expand", [part], (*query.shape[:-1], turned)))
    return attention(builder, [query, key, value], window=reach.window)


def split_last(builder: ModelBuilder, x: DocumentValue, widths: Sequence[int]) -> list[DocumentValue]:
    """Split the last dim of x into parts of these widths."""
    types = [TensorType((*x.shape[:-1], width), x.dtype) for width in widths]
    return builder.emit_all("split", [x], types, attrs={"dim": len(x.shape) - 1})


def _join_turned(builder: ModelBuilder, plain: DocumentValue, turned: DocumentValue) -> DocumentValue:
    shape = [*plain.shape[:-1], plain.shape[-1] + turned.shape[-1]]
    return builder.emit("concat", [plain, turned], shape, dim=len(shape) - 1)
