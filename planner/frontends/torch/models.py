"""A model's name -> an exported program. Everything happens on the meta device: tensors have no storage."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram

from planner.errors import InvalidGraph, InvalidRequest
from planner.frontends.torch.call import DTYPES

ATTENTION = "shardplan"
"""transformers' name for attention as plain scaled_dot_product_attention calls."""

SDPA_WANTED = "one whose attention is a replaceable scaled_dot_product_attention, such as gpt2 or llama"

FLOATS = ("f32", "bf16", "f16", "f64")

Example = tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Options:
    """What differs from the default configuration of a transformers model; `config` has its own names."""

    layers: int | None = None
    dtype: str = "f32"
    config: Mapping[str, object] = field(default_factory=dict)


def exported(model: str, batch: int, seq: int, options: Options) -> ExportedProgram:
    """`model` in evaluation mode, exported without decomposition and without autograd."""
    for name, size in {"batch": batch, "seq": seq, "layers": options.layers}.items():
        if size is not None and size < 1:
            raise InvalidRequest(name, got=size, wanted="at least 1")
    source, _, rest = model.partition(":")
    with torch.device("meta"), torch.no_grad():
        if source == "transformers":
            module, args, kwargs = _causal_lm(rest, batch, seq, options)
        else:
            module, args, kwargs = _users_own(source, rest, batch, seq)
        try:
            return torch.export.export(module.eval(), args, kwargs, strict=False)
        except Exception as failure:  # the model's own code runs, and may raise anything
            what, wanted = "torch.export cannot trace the model", "fixed sizes, no branches on data"
            raise InvalidGraph(what, where=model, got=_told(failure), wanted=wanted) from failure


def _told(failure: Exception) -> str:
    """The first line of what it says."""
    return f"{type(failure).__name__}: {str(failure).strip()}".splitlines()[0]


def _users_own(module: str, function: str, batch: int, seq: int) -> Example:
    where = f"{module}:{function}"
    if not module or not function:
        raise InvalidRequest("model", got=where, wanted="transformers:<model type> or module:function")
    try:
        example = getattr(importlib.import_module(module), function)(batch=batch, seq=seq)
    except Exception as failure:
        raise InvalidRequest("model cannot be built", where=where, got=_told(failure)) from failure
    match example:
        case (torch.nn.Module() as built, tuple() as args, dict() as kwargs):
            return built, args, kwargs
        case _:
            got = type(example).__name__
            raise InvalidRequest("model", where=where, got=got, wanted="(module, args, kwargs)")


def _causal_lm(kind: str, batch: int, seq: int, options: Options) -> Example:
    """A causal language model with ones as attention mask: sequences without padding."""
    module = _built(kind, options)
    limit = getattr(module.config, "max_position_embeddings", None)
    if isinstance(limit, int) and seq > limit:
        raise InvalidRequest("seq", where=kind, got=seq, wanted=f"at most {limit} positions")
    inputs = {"input_ids": torch.zeros(batch, seq, dtype=torch.int64)}
    if "attention_mask" in inspect.signature(module.forward).parameters:
        inputs["attention_mask"] = torch.ones(batch, seq, dtype=torch.int64)
    return module, (), {**inputs, "use_cache": False}


def _built(kind: str, options: Options) -> Any:
    """The model with fresh weights, which have no storage here."""
    from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, AutoModelForCausalLM

    if kind not in CONFIG_MAPPING or CONFIG_MAPPING[kind] not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise InvalidRequest("not a causal language model", got=kind, wanted="a model type such as gpt2")
    # A model with attention code of its own would take the missing mask for "every key is visible".
    if not MODEL_FOR_CAUSAL_LM_MAPPING[CONFIG_MAPPING[kind]]._supports_sdpa:
        raise InvalidRequest("model type", got=kind, wanted=SDPA_WANTED)
    if options.dtype not in FLOATS:
        raise InvalidRequest("dtype", where=kind, got=options.dtype, wanted=f"one of {', '.join(FLOATS)}")
    overrides = dict(options.config)
    if options.layers is not None:
        overrides["num_hidden_layers"] = options.layers
    _register_attention()
    try:
        config, dtype = CONFIG_MAPPING[kind](**overrides), DTYPES[options.dtype]
        return AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION, dtype=dtype)
    except KeyError as missing:
        raise InvalidRequest("model type", where=_told(missing), got=kind, wanted=SDPA_WANTED) from missing
    except (AssertionError, TypeError, ValueError) as refused:
        raise InvalidRequest("model cannot be built", where=kind, got=_told(refused)) from refused


def _register_attention() -> None:
    """Makes transformers say `is_causal` where the mask is plainly causal.

    While it is traced it would compute the mask, since it cannot look at values. The padding mask is ours and
    all ones: it is left out.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    def mask(
        *,
        q_length: int,
        kv_length: int,
        local_size: int | None = None,
        allow_is_causal_skip: bool = True,
        attention_mask: torch.Tensor | None = None,
        **rest: Any,
    ) -> torch.Tensor | None:
        lengths = {"q_length": q_length, "kv_length": kv_length, "local_size": local_size}
        if allow_is_causal_skip and q_length == kv_length and (local_size is None or q_length < local_size):
            return None
        return sdpa_mask(**lengths, allow_is_causal_skip=allow_is_causal_skip, **rest)

    AttentionInterface.register(ATTENTION, sdpa_attention_forward)
    AttentionMaskInterface.register(ATTENTION, mask)
