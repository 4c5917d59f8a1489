"""Tiny instances of the models of transformers, by family, which model_zoo_coverage imports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.import_coverage import is_not_exportable
from planner.errors import ShardplanError
from planner.frontends.torch import import_torch

SIZES = {
    2: "num_hidden_layers num_layers n_layer n_layers encoder_layers decoder_layers num_decoder_layers "
    "num_encoder_layers encoder_num_layers decoder_num_layers num_key_value_heads num_experts_per_tok",
    4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads num_experts "
    "num_local_experts n_routed_experts",
    16: "head_dim d_kv attention_head_size embedding_size_per_head",
    32: "image_size patch_embed_dim",
    64: "hidden_size d_model n_embd dim embedding_size hidden_dim emb_dim",
    128: "vocab_size intermediate_size d_ff ffn_dim encoder_ffn_dim decoder_ffn_dim n_inner moe_intermediate_size "
    "shared_expert_intermediate_size max_position_embeddings n_positions",
    0: "pad_token_id",
    1: "bos_token_id decoder_start_token_id",
}
OVERRIDES = {name: size for size, names in SIZES.items() for name in names.split()}
LAYERS = {name: size for name, size in OVERRIDES.items() if "layer" in name}
ATTEMPTS: tuple[dict[str, int], ...] = (
    OVERRIDES,
    {name: size for name, size in OVERRIDES.items() if name != "head_dim"},
    LAYERS,
    {},
)
"""The sizes of tiny instances. Not every configuration takes them all: the first that can be exported is used."""
REQUIRED: dict[str, dict[str, Any]] = {
    "dbrx": {"attn_config": {"rope_theta": 10000.0}},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "esm": {"vocab_size": 128},
    "hunyuan_v1_dense": {"head_dim": 16},
    "hunyuan_v1_moe": {"head_dim": 16},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "ministral": {"head_dim": 16},
    "musicgen": {"num_codebooks": 2},
    "musicgen_melody": {"num_codebooks": 2},
    "nemotron": {"num_key_value_heads": 2},
    "perceiver": {"max_position_embeddings": 16},  # as many as there are logits
    "xmod": {"default_language": "en_XX"},
}
"""What configurations must be given, because their defaults leave it out."""


def list_types() -> dict[str, str]:
    """Return the types of transformers that have a head we train, each with its family."""
    from transformers import (
        CONFIG_MAPPING,
        MODEL_FOR_CAUSAL_LM_MAPPING,
        MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING,
        MODEL_FOR_MASKED_LM_MAPPING,
        MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    )

    heads = {  # in the order in which the frontend chooses a head
        "sequence to sequence": MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
        "encoder": MODEL_FOR_MASKED_LM_MAPPING,
        "causal": MODEL_FOR_CAUSAL_LM_MAPPING,
        "vision": MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING,
    }
    families = {
        kind: next((family for family, head in heads.items() if CONFIG_MAPPING[kind] in head), "")
        for kind in sorted(CONFIG_MAPPING)
    }
    return {kind: family for kind, family in families.items() if family}


def import_type(kind: str, train: str | None) -> dict[str, Any]:
    """Return the document of a tiny instance of a type of transformers."""
    for sizes in ATTEMPTS[:-1]:
        try:
            return _import_sized(kind, train, sizes)
        except ShardplanError as refusal:
            if not is_not_exportable(str(refusal)):
                raise
    return _import_sized(kind, train, ATTEMPTS[-1])


def _import_sized(kind: str, train: str | None, sizes: Mapping[str, int]) -> dict[str, Any]:
    # Here, because the table is read where torch is not installed.
    from planner.frontends.torch.capture import model_class
    from planner.frontends.torch.published_config import list_defaults

    defaults = list_defaults(kind, model_class(kind))
    config = {name: size for name, size in sizes.items() if any(_has_size(each, name) for each in defaults)}
    return import_torch(f"transformers:{kind}", batch=2, seq=16, config=config | REQUIRED.get(kind, {}), train=train)


def _has_size(config: Any, name: str) -> bool:
    try:
        return isinstance(getattr(config, name, None), int) or (name.endswith("_token_id") and hasattr(config, name))
    except Exception:  # noqa: BLE001 - some configurations refuse to name a size that differs from layer to layer
        return False
