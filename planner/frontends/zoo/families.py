"""Forward passes of the families, from token ids to logits. Parameters have the names of the published checkpoints."""

from __future__ import annotations

from planner.errors import InvalidRequest
from planner.frontends.graph_builder import DocumentValue
from planner.frontends.zoo import layers
from planner.frontends.zoo.attention import Reach, attention, grouped_attention, latent_attention, split_heads
from planner.frontends.zoo.experts import experts
from planner.frontends.zoo.model_builder import ModelBuilder
from planner.frontends.zoo.models import Model


def gpt(builder: ModelBuilder, model: Model, ids: DocumentValue, *, capacity: float) -> DocumentValue:
    """Build GPT-2: learned positions, layer norms, one product for query, key and value, gelu, a tied head."""
    batch, sequence = ids.shape
    width = model.width
    words = builder.input("transformer.wte.weight", [model.vocabulary, width])
    rows = max(model.positions, _count_positions(builder, sequence))
    places = builder.input("transformer.wpe.weight", [rows, width])
    length = builder.cache and builder.cache.length
    at = builder.reshape(length, [1]) if length else builder.emit("arange", [], (sequence,), dtype="i64")
    tokens = builder.emit("embedding", [words, ids], [batch, sequence, width])
    x = builder.emit("add", [tokens, builder.emit("embedding", [places, at], [sequence, width])])
    for layer in range(model.layers):
        with builder.within(f"transformer.h.{layer}"):
            x = _gpt_block(builder, model, x)
    x = _last_token(builder, layers.layer_norm(builder, "transformer.ln_f", x, model=model))
    return builder.emit("linear", [x, words], [*x.shape[:2], model.vocabulary])


def _count_positions(builder: ModelBuilder, sequence: int) -> int:
    """Return how many positions there may be: those of the cache, and those of the graph's own tokens."""
    return sequence + (builder.cache.tokens if builder.cache else 0)


def _last_token(builder: ModelBuilder, x: DocumentValue) -> DocumentValue:
    """Return the last token of [batch, sequence, width] where only the next one is predicted, else all."""
    batch, sequence, width = x.shape
    if builder.cache is None or sequence == 1:
        return x
    return builder.emit("slice", [x], [batch, 1, width], dim=1, start=sequence - 1, stop=sequence)


def _gpt_block(builder: ModelBuilder, model: Model, x: DocumentValue) -> DocumentValue:
    joined = layers.affine(
        builder, "attn.c_attn", layers.layer_norm(builder, "ln_1", x, model=model), width=3 * model.width
    )
    parts = builder.emit_all("split", [joined], [x.type] * 3, attrs={"dim": 2})
    mixed = attention(builder, [split_heads(builder, part, [model.heads]) for part in parts])
    x = builder.emit("add", [x, layers.affine(builder, "attn.c_proj", mixed, width=model.width)])
    wide = layers.affine(
        builder, "mlp.c_fc", layers.layer_norm(builder, "ln_2", x, model=model), width=model.feed_forward
    )
    active = builder.emit("gelu", [wide], approximate="tanh")
    return builder.emit("add", [x, layers.affine(builder, "mlp.c_proj", active, width=model.width)])


def decoder(builder: ModelBuilder, model: Model, ids: DocumentValue, *, capacity: float) -> DocumentValue:
    """Build Llama and its kin: RMS norms, rotary positions, gated feed-forward networks or experts.

    Weights of Gemma's norms are those of its checkpoints plus one. The parts of latent heads that are turned have their
    pairs in halves, not side by side as in DeepSeek's checkpoints.
    """
    if builder.cache is not None and model.kv_rank:
        wanted = "a model without latent attention, whose cache is of another kind"
        raise InvalidRequest("keys and values to keep", got=model.family, wanted=wanted)
    batch, sequence = ids.shape
    words = builder.input("model.embed_tokens.weight", [model.vocabulary, model.width])
    angles = _angles(builder, model, sequence, name="rotary_emb")
    local = _angles(builder, model, sequence, name="rotary_emb_local") if model.style.turns_locally else angles
    x = builder.emit("embedding", [words, ids], [batch, sequence, model.width])
    if model.style.scales_words:
        x = builder.emit("multiply", [x], scalar=model.width**0.5)
    for layer in range(model.layers):
        window = model.window_of(layer)
        with builder.within(f"model.layers.{layer}"):
            x = _add_attention(builder, model, x, reach=Reach(local if window else angles, window))
            x = _add_feed_forward(builder, model, x, capacity=capacity if model.has_experts(layer) else None)
    x = _last_token(builder, layers.rms_norm(builder, "model.norm", x, model=model))
    head = words if model.style.is_tied else builder.input("lm_head.weight", words.shape)
    return builder.emit("linear", [x, head], [*x.shape[:2], model.vocabulary])


def _angles(builder: ModelBuilder, model: Model, sequence: int, *, name: str) -> list[DocumentValue]:
    half = model.rotated // 2
    shape = [_count_positions(builder, sequence), half]
    tables = [builder.input(f"model.{name}.{part}", shape, "buffer") for part in ("cos", "sin")]
    if builder.cache is None or builder.cache.length is None:
        return tables
    at = builder.reshape(builder.cache.length, [1])
    return [builder.emit("embedding", [table, at], [1, half]) for table in tables]


def _add_attention(builder: ModelBuilder, model: Model, x: DocumentValue, *, reach: Reach) -> DocumentValue:
    attend = latent_attention if model.kv_rank else grouped_attention
    mixed = attend(builder, model, layers.rms_norm(builder, "input_layernorm", x, model=model), reach=reach)
    mixed = layers.linear(builder, "self_attn.o_proj", mixed, width=model.width, has_bias=model.style.has_biases)
    if model.style.has_post_norms:
        mixed = layers.rms_norm(builder, "post_attention_layernorm", mixed, model=model)
    return builder.emit("add", [x, mixed])


def _add_feed_forward(
    builder: ModelBuilder, model: Model, x: DocumentValue, *, capacity: float | None
) -> DocumentValue:
    """Add the result of experts with this capacity, or of one network (None)."""
    has_post_norms = model.style.has_post_norms
    name = "pre_feedforward_layernorm" if has_post_norms else "post_attention_layernorm"
    normed = layers.rms_norm(builder, name, x, model=model)
    if capacity is None:
        fed = layers.gated_mlp(builder, "mlp", normed, model=model, hidden=model.feed_forward)
    else:
        fed = experts(builder, normed, model, capacity=capacity)
    if has_post_norms:
        fed = layers.rms_norm(builder, "post_feedforward_layernorm", fed, model=model)
    return builder.emit("add", [x, fed])


def build_logits(builder: ModelBuilder, model: Model, ids: DocumentValue, *, capacity: float) -> DocumentValue:
    """Build the forward pass of a model; return logits [batch, sequence, vocabulary]."""
    return (gpt if model.family == "gpt" else decoder)(builder, model, ids, capacity=capacity)
