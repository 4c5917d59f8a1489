"""A model's name -> an exported program. Everything happens on the meta device: tensors have no storage.

A model of transformers is the one with a head that its type is trained with: sequence to sequence, masked or causal
language model, image classifier. Its loss is the mean cross entropy of its logits and of labels [batch, sequence] (the
next tokens, for a causal one) or [batch].
"""

from __future__ import annotations

import importlib
import inspect
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from planner.errors import InvalidGraph, InvalidRequest
from planner.frontends.torch.aten_call import DTYPES
from planner.frontends.torch.joint_graph import ModuleWithLoss

ATTENTION = "shardplan"
"""transformers' name for attention as plain scaled_dot_product_attention calls."""

SDPA_WANTED = "one whose attention is a replaceable scaled_dot_product_attention, such as gpt2 or llama"

FLOATS = ("f32", "bf16", "f16", "f64")

Example = tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """What differs from the default configuration of a transformers model; `config` has its own names."""

    layers: int | None = None
    dtype: str = "f32"
    config: Mapping[str, object] = field(default_factory=dict)


def export_model(
    model: str, batch: int, seq: int | None, *, options: CaptureOptions, train: bool = False
) -> ExportedProgram:
    """`model` in evaluation mode, exported without decomposition; to be trained: its loss, with autograd."""
    for name, size in {"batch": batch, "seq": seq, "layers": options.layers}.items():
        if size is not None and size < 1:
            raise InvalidRequest(name, got=size, wanted="at least 1")
    source, _, rest = model.partition(":")
    with torch.device("meta"), torch.set_grad_enabled(train):
        if source == "transformers":
            module, args, kwargs = _load_published(rest, batch, seq, options=options, train=train)
        else:
            module, args, kwargs = _load_user_module(source, rest, batch, seq=seq)
        return trace_module(module.eval(), args, kwargs, name=model)


def trace_module(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, name: str
) -> ExportedProgram:
    """Raises InvalidGraph, with the line of the model's code, for one that cannot be traced."""
    try:
        return torch.export.export(module, args, dict(kwargs), strict=False)
    except Exception as failure:  # the model's own code runs, and may raise anything
        wanted = "fixed sizes, no branches on data"
        raise InvalidGraph(
            "torch.export cannot trace the model", where=name, got=_format_failure(failure), wanted=wanted
        ) from failure


def _format_failure(failure: Exception) -> str:
    """The first line of what it says, and the last line of code outside of torch that led there."""
    first = f"{type(failure).__name__}: {str(failure).strip()}".splitlines()[0]
    frames = [frame for frame in traceback.extract_tb(failure.__traceback__) if not _is_torch(frame.filename)]
    inner = [frame for frame in frames if frame.filename != __file__]
    return f"{first} ({Path(inner[-1].filename).name}:{inner[-1].lineno})" if inner else first


def _is_torch(filename: str) -> bool:
    return filename.startswith(("<", str(Path(torch.__file__).parent)))


def _load_user_module(module: str, function: str, batch: int, *, seq: int | None) -> Example:
    where = f"{module}:{function}"
    if not module or not function:
        raise InvalidRequest("model", got=where, wanted="transformers:<model type> or module:function")
    try:
        example = getattr(importlib.import_module(module), function)(batch=batch, seq=seq)
    except Exception as failure:
        raise InvalidRequest("model cannot be built", where=where, got=_format_failure(failure)) from failure
    match example:
        case (torch.nn.Module() as built, tuple() as args, dict() as kwargs):
            return built, args, kwargs
        case _:
            got = type(example).__name__
            raise InvalidRequest("model", where=where, got=got, wanted="(module, args, kwargs)")


def _load_published(kind: str, batch: int, seq: int | None, *, options: CaptureOptions, train: bool) -> Example:
    """A model of transformers and its inputs, without padding; labels first where it is to be trained."""
    module = _build_model(kind, options)
    if "pixel_values" in inspect.signature(module.forward).parameters:
        inputs, labelled = _image_example(module.config, batch), [batch]
    else:
        inputs = _text_example(kind, module, batch, seq=seq)
        labelled = list(inputs["input_ids"].shape)
    if not train:
        return module, (), inputs
    return ModuleWithLoss(module, _cross_entropy), (), {"labels": torch.zeros(labelled, dtype=torch.int64), **inputs}


def _cross_entropy(made: Any, labels: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(made.logits.flatten(0, -2), labels.flatten())


def _image_example(config: Any, batch: int) -> dict[str, Any]:
    sides = (config.image_size,) * 2 if isinstance(config.image_size, int) else tuple(config.image_size)
    return {"pixel_values": torch.zeros(batch, config.num_channels, *sides, dtype=config.dtype)}


def _text_example(kind: str, module: Any, batch: int, *, seq: int | None) -> dict[str, Any]:
    if seq is None:
        raise InvalidRequest("seq", where=kind, got="none", wanted="a number of tokens")
    limit = getattr(module.config, "max_position_embeddings", None)
    if isinstance(limit, int) and seq > limit:
        raise InvalidRequest("seq", where=kind, got=seq, wanted=f"at most {limit} positions")
    taken = inspect.signature(module.forward).parameters
    names = ["input_ids"] + ["decoder_input_ids"] * module.config.is_encoder_decoder
    inputs: dict[str, Any] = {name: torch.zeros(batch, seq, dtype=torch.int64) for name in names}
    if "attention_mask" in taken:
        inputs["attention_mask"] = torch.ones(batch, seq, dtype=torch.int64)
    return inputs | ({"use_cache": False} if "use_cache" in taken else {})


def _model_class(kind: str) -> Any:
    """The class of the model with the head that its type is trained with."""
    from transformers import (
        CONFIG_MAPPING,
        MODEL_FOR_CAUSAL_LM_MAPPING,
        MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING,
        MODEL_FOR_MASKED_LM_MAPPING,
        MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    )

    heads = (
        MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
        MODEL_FOR_MASKED_LM_MAPPING,
        MODEL_FOR_CAUSAL_LM_MAPPING,
        MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING,
    )
    known = kind in CONFIG_MAPPING
    found = [mapping[CONFIG_MAPPING[kind]] for mapping in heads if known and CONFIG_MAPPING[kind] in mapping]
    if not found:
        wanted = "a type of language models or image classifiers, such as gpt2, bert, t5, vit, llama or mixtral"
        raise InvalidRequest("model type", got=kind, wanted=wanted)
    return found[0][0] if isinstance(found[0], tuple) else found[0]


def _build_model(kind: str, options: CaptureOptions) -> Any:
    """The model with fresh weights, which have no storage here."""
    from transformers import CONFIG_MAPPING

    model = _model_class(kind)
    # A model with attention code of its own would take the missing mask for "every key is visible".
    if not model._supports_sdpa:
        raise InvalidRequest("model type", got=kind, wanted=SDPA_WANTED)
    if options.dtype not in FLOATS:
        raise InvalidRequest("dtype", where=kind, got=options.dtype, wanted=f"one of {', '.join(FLOATS)}")
    overrides = dict(options.config)
    if options.layers is not None:
        overrides["num_hidden_layers"] = options.layers
    _register_attention()
    try:
        config, dtype = CONFIG_MAPPING[kind](**overrides), DTYPES[options.dtype]
        if options.layers is not None and hasattr(config, "num_decoder_layers"):
            config.num_decoder_layers = options.layers
        return model._from_config(config, attn_implementation=ATTENTION, dtype=dtype)
    except KeyError as missing:
        raise InvalidRequest("model type", where=_format_failure(missing), got=kind, wanted=SDPA_WANTED) from missing
    except (AssertionError, TypeError, ValueError) as refused:
        raise InvalidRequest("model cannot be built", where=kind, got=_format_failure(refused)) from refused


def _register_attention() -> None:
    """Makes transformers say `is_causal` where the mask is plainly causal, and nothing where all is visible.

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
        allow_is_bidirectional_skip: bool = False,
        attention_mask: torch.Tensor | None = None,
        **rest: Any,
    ) -> torch.Tensor | None:
        if allow_is_bidirectional_skip and (local_size is None or kv_length < local_size):
            return None
        lengths = {"q_length": q_length, "kv_length": kv_length, "local_size": local_size}
        if allow_is_causal_skip and q_length == kv_length and (local_size is None or q_length < local_size):
            return None
        return sdpa_mask(**lengths, allow_is_causal_skip=allow_is_causal_skip, **rest)

    AttentionInterface.register(ATTENTION, sdpa_attention_forward)
    AttentionMaskInterface.register(ATTENTION, mask)
