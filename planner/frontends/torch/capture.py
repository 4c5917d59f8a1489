"""A model's name -> an exported program, on the meta device, where tensors have no storage.

A transformers model gets the head that its type is trained with: sequence to sequence, masked or causal language
model, or image classifier. Its loss is the mean cross entropy of logits and labels; labels are [batch, sequence] (the
next tokens, for a causal model) or [batch].
"""

from __future__ import annotations

import importlib
import inspect
import io
import sys
import traceback
import warnings
from collections.abc import Mapping
from contextlib import redirect_stderr, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from planner.errors import InvalidGraph, InvalidRequest, ShardplanError, UnsupportedOp
from planner.frontends.torch.aten_call import DTYPES
from planner.frontends.torch.joint_graph import ModuleWithLoss
from planner.frontends.torch.location import DATA_DEPENDENT_WANTED
from planner.frontends.torch.published_config import build_config
from planner.frontends.torch.traceable import traceable_modules

ATTENTION = "shardplan"
"""The name under which we register plain scaled_dot_product_attention with transformers."""

IMAGE_SIZE = 224
"""Pixels a side, for models whose configuration has no size: that of most image classifiers."""

IMAGE_CHANNELS = 3
"""Red, green and blue, for models whose configuration has no number of channels."""

DATA_DEPENDENT = (GuardOnDataDependentSymNode, DataDependentOutputException, DynamicOutputShapeException)
"""What torch raises where a shape, a number or a branch depends on data."""

INSTEAD = {
    "in the exported program constant's list": "no .data and no requires_grad_() in the forward pass: .detach(), and "
    "torch.func.grad",
    "in output, which is not a known type": "results in tuples, lists and dicts, or torch.export.register_dataclass",
    "uninitialized parameter": "a module that has run once, which gives lazy parameters their sizes",
    ".numpy() is not supported": "functions of torch alone",
    "FlexAttention": "scaled_dot_product_attention with a mask",
    "nested_tensor": "padded tensors and a mask",
    "quantized": "a module before it is quantized, or products with integer weights times their scales",
}
"""What to write in place of code that torch.export refuses, by a part of its message."""

FLOATS = ("f32", "bf16", "f16", "f64")

Example = tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """Overrides of the default configuration of a transformers model; `config` uses the names of that configuration."""

    layers: int | None = None
    dtype: str = "f32"
    config: Mapping[str, object] = field(default_factory=dict)


def export_model(
    model: str, batch: int, seq: int | None, *, options: CaptureOptions, train: bool = False
) -> ExportedProgram:
    """Export `model` without decomposition; with `train`, export its loss, with autograd.

    A transformers model is in training mode with `train`, with the dropout of its configuration, and else in evaluation
    mode; a module of your own is in the mode in which its function returns it.
    """
    for name, size in {"batch": batch, "seq": seq, "layers": options.layers}.items():
        if size is not None and size < 1:
            raise InvalidRequest(name, got=size, wanted="at least 1")
    source, _, rest = model.partition(":")
    with torch.device("meta"), torch.set_grad_enabled(train):
        if source == "transformers":
            module, args, kwargs = _load_published(rest, batch, seq, options=options, train=train)
            module.train(train)
        else:
            module, args, kwargs = _load_user_module(source, rest, batch, seq=seq)
        return trace_module(module, args, kwargs, name=model)


def trace_module(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, name: str
) -> ExportedProgram:
    """Export a module. Raises an error with the line of the model's code if it cannot be traced: UnsupportedOp where
    something depends on data, else InvalidGraph.
    """
    said = io.StringIO()
    try:
        # torch prints the graph of a failed trace; what it prints otherwise is passed on.
        with warnings.catch_warnings(), traceable_modules() as own_gradients, redirect_stderr(said):
            # Recurrent layers list their weights anew, which changes nothing.
            warnings.filterwarnings("ignore", "The tensor attributes? ", UserWarning)
            exported = torch.export.export(module, args, dict(kwargs), strict=False)
            exported.own_gradients = own_gradients  # which live as long
    except DATA_DEPENDENT as failure:
        got = f"{getattr(failure, 'func', 'a branch')}{_format_place(failure)}"
        what = "a shape or number that depends on data"
        raise UnsupportedOp(what, where=name, got=got, wanted=DATA_DEPENDENT_WANTED) from failure
    except ShardplanError as refusal:
        raise refusal.at(name) from None
    except Exception as failure:  # the model's own code runs, and may raise anything
        wanted = next(
            (says for part, says in INSTEAD.items() if part in str(failure)), "fixed sizes, no branches on data"
        )
        raise InvalidGraph(
            "torch.export cannot trace the model", where=name, got=_format_failure(failure), wanted=wanted
        ) from failure
    sys.stderr.write(said.getvalue())
    return exported


def _format_failure(failure: Exception) -> str:
    """Return the first line of the message, and the place of the failure."""
    return f"{type(failure).__name__}: {str(failure).strip()}".splitlines()[0] + _format_place(failure)


def _format_place(failure: Exception) -> str:
    """Return the innermost line of code outside torch and this file, in parentheses; nothing where there is none."""
    frames = [frame for frame in traceback.extract_tb(failure.__traceback__) if not _is_torch(frame.filename)]
    inner = [frame for frame in frames if frame.filename != __file__]
    return f" ({Path(inner[-1].filename).name}:{inner[-1].lineno})" if inner else ""


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
    """Return a transformers model and its inputs, without padding; with `train`, labels come first."""
    module = _build_model(kind, options)
    if "input_ids" in inspect.signature(module.forward).parameters:
        inputs = _text_example(kind, module, batch, seq=seq)
    else:
        inputs = _image_example(getattr(module.config, "vision_config", module.config), batch)
    labelled = [batch] if _is_classifier(module) else list(inputs["input_ids"].shape)
    if not train:
        return module, (), inputs
    return ModuleWithLoss(module, _cross_entropy), (), {"labels": torch.zeros(labelled, dtype=torch.int64), **inputs}


def _cross_entropy(output: Any, labels: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(output.logits.flatten(0, -2), labels.flatten())


def _image_example(config: Any, batch: int) -> dict[str, Any]:
    """Return images of the size in the configuration, or of IMAGE_SIZE for models that take any."""
    size = getattr(config, "image_size", IMAGE_SIZE)
    sides = (size, size) if isinstance(size, int) else tuple(size)
    channels = getattr(config, "num_channels", IMAGE_CHANNELS)
    return {"pixel_values": torch.zeros(batch, channels, *sides, dtype=config.dtype)}


def _text_example(kind: str, module: Any, batch: int, *, seq: int | None) -> dict[str, Any]:
    if seq is None:
        raise InvalidRequest("seq", where=kind, got="none", wanted="a number of tokens")
    limit = getattr(module.config, "max_position_embeddings", None)
    if isinstance(limit, int) and 0 < limit < seq:  # -1: any number
        raise InvalidRequest("seq", where=kind, got=seq, wanted=f"at most {limit} positions")
    accepted = inspect.signature(module.forward).parameters
    names = ["input_ids"] + ["decoder_input_ids"] * module.config.is_encoder_decoder
    inputs: dict[str, Any] = {name: torch.zeros(batch, seq, dtype=torch.int64) for name in names}
    if "attention_mask" in accepted and module.config._attn_implementation == ATTENTION:
        inputs["attention_mask"] = torch.ones(batch, seq, dtype=torch.int64)
    return inputs | ({"use_cache": False} if "use_cache" in accepted else {})


def model_class(kind: str) -> Any:
    """Return the model class with the head that the type is trained with."""
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
    # CONFIG_MAPPING loads its entries lazily: `in` and [] see all of them, get() does not.
    configs = [CONFIG_MAPPING[kind]] if kind in CONFIG_MAPPING else []
    classes = [mapping[config] for config in configs for mapping in heads if config in mapping]
    if not classes:
        wanted = "a type of language models or image classifiers, such as gpt2, bert, t5, vit, llama or mixtral"
        raise InvalidRequest("model type", got=kind, wanted=wanted)
    return classes[0][0] if isinstance(classes[0], tuple) else classes[0]


def _is_classifier(module: Any) -> bool:
    from transformers import MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING

    heads = MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING.get(type(module.config), ())
    return isinstance(module, heads)


def _build_model(kind: str, options: CaptureOptions) -> Any:
    """Return the model with initialized weights, which have no storage on the meta device."""
    model = model_class(kind)
    if options.dtype not in FLOATS:
        raise InvalidRequest("dtype", where=kind, got=options.dtype, wanted=f"one of {', '.join(FLOATS)}")
    _register_attention()
    try:
        config = build_config(kind, model, options.config, layers=options.layers)
        dtype = DTYPES[options.dtype]
        # A model with attention code of its own gets its own masks: it would read our None as "every key is visible".
        if model._supports_sdpa:
            with suppress(KeyError):  # raised by models that have a class for each implementation
                return model._from_config(config, attn_implementation=ATTENTION, dtype=dtype).to("meta")
        return model._from_config(config, attn_implementation="eager", dtype=dtype).to("meta")
    except InvalidRequest:
        raise
    except Exception as refused:  # the checks of configurations raise what they like
        raise InvalidRequest("model cannot be built", where=kind, got=_format_failure(refused)) from refused


def _register_attention() -> None:
    """Make transformers pass `is_causal` where the mask is causal, and no mask where every key is visible.

    While traced, transformers cannot look at values and would compute the mask. The padding mask that we pass is all
    ones, so it is dropped.
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
