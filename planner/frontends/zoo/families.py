"""The families' forward passes, from token ids to logits. Parameters have the names of the published checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from planner.frontends.graph_builder import DocumentValue
from planner.frontends.zoo import layers
from planner.frontends.zoo.model_builder import ModelBuilder
from planner.frontends.zoo.models import Model


def gpt(w: ModelBuilder, model: Model, ids: DocumentValue, capacity: float) -> DocumentValue:
    """Learned positions, layer norms, one product for query, key and value, gelu; the head is the embedding."""
    batch, sequence = ids.shape
    width = model.width
    words = w.input("transformer.wte.weight", [model.vocabulary, width])
    places = w.input("transformer.wpe.weight", [max(model.positions, sequence), width])
    at = w.emit("arange", [], (sequence,), dtype="i64")
    tokens = w.emit("embedding", [words, ids], [batch, sequence, width])
    x = w.emit("add", [tokens, w.emit("embedding", [places, at], [sequence, width])])
    for layer in range(model.layers):
        with w.within(f"transformer.h.{layer}"):
            x = _gpt_block(w, model, x)
    x = layers.layer_norm(w, "transformer.ln_f", x, model=model)
    return w.emit("linear", [x, words], [batch, sequence, model.vocabulary])


def _gpt_block(w: ModelBuilder, model: Model, x: DocumentValue) -> DocumentValue:
    joined = layers.affine(w, "attn.c_attn", layers.layer_norm(w, "ln_1", x, model=model), width=3 * model.width)
    parts = w.emit_all("split", [joined], [x.type] * 3, attrs={"dim": 2})
    mixed = layers.attention(w, *(layers.split_heads(w, part, [model.heads]) for part in parts))
    x = w.emit("add", [x, layers.affine(w, "attn.c_proj", mixed, width=model.width)])
    wide = layers.affine(w, "mlp.c_fc", layers.layer_norm(w, "ln_2", x, model=model), width=model.feed_forward)
    active = w.emit("gelu", [wide], approximate="tanh")
    return w.emit("add", [x, layers.affine(w, "mlp.c_proj", active, width=model.width)])


def llama(w: ModelBuilder, model: Model, ids: DocumentValue, capacity: float) -> DocumentValue:
    """RMS norms, rotary positions, queries that share keys, a gated feed-forward network or experts."""
    batch, sequence = ids.shape
    words = w.input("model.embed_tokens.weight", [model.vocabulary, model.width])
    angles = [w.input(f"model.rotary_emb.{name}", [sequence, model.head // 2], "buffer") for name in ("cos", "sin")]
    x = w.emit("embedding", [words, ids], [batch, sequence, model.width])
    for layer in range(model.layers):
        with w.within(f"model.layers.{layer}"):
            normed = layers.rms_norm(w, "input_layernorm", x, model=model)
            x = w.emit("add", [x, _llama_attention(w, model, normed, angles=angles)])
            normed = layers.rms_norm(w, "post_attention_layernorm", x, model=model)
            fed = (
                layers.experts(w, normed, model, capacity=capacity)
                if model.experts
                else layers.gated_mlp(w, normed, model)
            )
            x = w.emit("add", [x, fed])
    return layers.linear(w, "lm_head", layers.rms_norm(w, "model.norm", x, model=model), width=model.vocabulary)


def _llama_attention(w: ModelBuilder, model: Model, x: DocumentValue, *, angles: list[DocumentValue]) -> DocumentValue:
    groups, members = model.kv_heads, model.heads // model.kv_heads
    shared = [groups, 1] if members > 1 else [groups]
    own = [groups, members] if members > 1 else [groups]
    query = layers.split_heads(w, layers.linear(w, "self_attn.q_proj", x, width=model.width), own)
    key = layers.split_heads(w, layers.linear(w, "self_attn.k_proj", x, width=groups * model.head), shared)
    value = layers.split_heads(w, layers.linear(w, "self_attn.v_proj", x, width=groups * model.head), shared)
    query, key = (w.emit("rope", [each, *angles]) for each in (query, key))
    return layers.linear(w, "self_attn.o_proj", layers.attention(w, query, key, value), width=model.width)


FAMILIES: Mapping[str, Callable[[ModelBuilder, Model, DocumentValue, float], DocumentValue]] = MappingProxyType(
    {"gpt": gpt, "llama": llama, "mixtral": llama}
)
