"""Forward passes of the families, from token ids to logits. Parameters have the names of the published checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from planner.frontends.graph_builder import DocumentValue
from planner.frontends.zoo import layers
from planner.frontends.zoo.model_builder import ModelBuilder
from planner.frontends.zoo.models import Model


def gpt(builder: ModelBuilder, model: Model, ids: DocumentValue, capacity: float) -> DocumentValue:
    """Build GPT-2: learned positions, layer norms, one product for query, key and value, gelu, a tied head."""
    batch, sequence = ids.shape
    width = model.width
    words = builder.input("transformer.wte.weight", [model.vocabulary, width])
    places = builder.input("transformer.wpe.weight", [max(model.positions, sequence), width])
    at = builder.emit("arange", [], (sequence,), dtype="i64")
    tokens = builder.emit("embedding", [words, ids], [batch, sequence, width])
    x = builder.emit("add", [tokens, builder.emit("embedding", [places, at], [sequence, width])])
    for layer in range(model.layers):
        with builder.within(f"transformer.h.{layer}"):
            x = _gpt_block(builder, model, x)
    x = layers.layer_norm(builder, "transformer.ln_f", x, model=model)
    return builder.emit("linear", [x, words], [batch, sequence, model.vocabulary])


def _gpt_block(builder: ModelBuilder, model: Model, x: DocumentValue) -> DocumentValue:
    joined = layers.affine(
        builder, "attn.c_attn", layers.layer_norm(builder, "ln_1", x, model=model), width=3 * model.width
    )
    parts = builder.emit_all("split", [joined], [x.type] * 3, attrs={"dim": 2})
    mixed = layers.attention(builder, *(layers.split_heads(builder, part, [model.heads]) for part in parts))
    x = builder.emit("add", [x, layers.affine(builder, "attn.c_proj", mixed, width=model.width)])
    wide = layers.affine(
        builder, "mlp.c_fc", layers.layer_norm(builder, "ln_2", x, model=model), width=model.feed_forward
    )
    active = builder.emit("gelu", [wide], approximate="tanh")
    return builder.emit("add", [x, layers.affine(builder, "mlp.c_proj", active, width=model.width)])


def llama(builder: ModelBuilder, model: Model, ids: DocumentValue, capacity: float) -> DocumentValue:
    """Build Llama or Mixtral: RMS norms, rotary positions, grouped queries, a gated feed-forward network or experts."""
    batch, sequence = ids.shape
    words = builder.input("model.embed_tokens.weight", [model.vocabulary, model.width])
    angles = [
        builder.input(f"model.rotary_emb.{name}", [sequence, model.head // 2], "buffer") for name in ("cos", "sin")
    ]
    x = builder.emit("embedding", [words, ids], [batch, sequence, model.width])
    for layer in range(model.layers):
        with builder.within(f"model.layers.{layer}"):
            normed = layers.rms_norm(builder, "input_layernorm", x, model=model)
            x = builder.emit("add", [x, _llama_attention(builder, model, normed, angles=angles)])
            normed = layers.rms_norm(builder, "post_attention_layernorm", x, model=model)
            fed = (
                layers.experts(builder, normed, model, capacity=capacity)
                if model.experts
                else layers.gated_mlp(builder, normed, model)
            )
            x = builder.emit("add", [x, fed])
    return layers.linear(
        builder, "lm_head", layers.rms_norm(builder, "model.norm", x, model=model), width=model.vocabulary
    )


def _llama_attention(
    builder: ModelBuilder, model: Model, x: DocumentValue, *, angles: list[DocumentValue]
) -> DocumentValue:
    groups, members = model.kv_heads, model.heads // model.kv_heads
    shared = [groups, 1] if members > 1 else [groups]
    own = [groups, members] if members > 1 else [groups]
    query = layers.split_heads(builder, layers.linear(builder, "self_attn.q_proj", x, width=model.width), own)
    key = layers.split_heads(builder, layers.linear(builder, "self_attn.k_proj", x, width=groups * model.head), shared)
    value = layers.split_heads(
        builder, layers.linear(builder, "self_attn.v_proj", x, width=groups * model.head), shared
    )
    query, key = (builder.emit("rope", [each, *angles]) for each in (query, key))
    return layers.linear(builder, "self_attn.o_proj", layers.attention(builder, query, key, value), width=model.width)


FAMILIES: Mapping[str, Callable[[ModelBuilder, Model, DocumentValue, float], DocumentValue]] = MappingProxyType(
    {"gpt": gpt, "llama": llama, "mixtral": llama}
)
