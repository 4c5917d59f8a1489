"""Tiny models of the families with the framework's own weights, their graph documents, and torch's own numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
import transformers

from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument, validate_document
from planner.frontends.torch import import_torch
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.run.executor import SINGLE_DEVICE

BATCH, SEQ, VOCABULARY = 4, 16, 104
NO_TOKENS = {"bos_token_id": None, "eos_token_id": None}
TEXT = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_attention_heads": 4, "max_position_embeddings": 16}
SHARED = {"intermediate_size": 48, "num_key_value_heads": 2}
NO_DROPOUT = {
    "gpt2": {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    "bert": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    "t5": {"dropout_rate": 0.0},
}
"""Torch's masks are not ours."""
CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": {"vocab_size": VOCABULARY, "n_embd": 32, "n_head": 4, "n_positions": 16, **NO_TOKENS, **NO_DROPOUT["gpt2"]},
    "bert": {**TEXT, "intermediate_size": 48, **NO_DROPOUT["bert"]},
    "vit": {
        "hidden_size": 32,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "image_size": 16,
        "patch_size": 4,
        "num_labels": VOCABULARY,
    },
    "t5": {"vocab_size": VOCABULARY, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_heads": 4, **NO_DROPOUT["t5"]},
    "llama": {**TEXT, **SHARED, **NO_TOKENS},
    "mixtral": {**TEXT, **SHARED, **NO_TOKENS, "num_local_experts": 4},
}
CLASSES = {
    "gpt2": transformers.GPT2LMHeadModel,
    "bert": transformers.BertForMaskedLM,
    "vit": transformers.ViTForImageClassification,
    "t5": transformers.T5ForConditionalGeneration,
    "llama": transformers.LlamaForCausalLM,
    "mixtral": transformers.MixtralForCausalLM,
}
DTYPES = {"f32": torch.float32, "f64": torch.float64}
OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda weights: torch.optim.SGD(weights, lr=1e-3),
    "sgd-momentum": lambda weights: torch.optim.SGD(weights, lr=1e-3, momentum=0.9),
    "adam": lambda weights: torch.optim.Adam(weights, lr=1e-3),
}


@dataclass(frozen=True)
class Family:
    """A graph document with the framework's arrays for its inputs, and what the framework makes of them.

    `wanted`: by output of the document, NaN where no number is; `gradients`: by parameter, empty for a forward pass.
    """

    document: GraphDocument
    arrays: dict[str, Any]
    wanted: dict[str, Any]
    gradients: dict[str, Any]

    def graph(self, mesh: Mesh = SINGLE_DEVICE) -> Graph:
        return load_graph(self.document, mesh)


def module(kind: str, dtype: str, layers: int) -> Any:
    """Return a tiny model with random parameters, biases included (a fresh model's are zero)."""
    torch.manual_seed(0)
    depth = {"num_hidden_layers": layers} | ({"num_decoder_layers": layers} if kind == "t5" else {})
    config = CLASSES[kind].config_class(**CONFIGS[kind], **depth)
    made = CLASSES[kind]._from_config(config, attn_implementation="eager", dtype=DTYPES[dtype]).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return made


def inputs(kind: str, dtype: str) -> tuple[dict[str, Any], Any]:
    """Return the inputs and the labels, one of which is ignored by the loss."""
    if kind == "vit":
        given = {"pixel_values": torch.randn(BATCH, 3, 16, 16, dtype=DTYPES[dtype])}
        shape: tuple[int, ...] = (BATCH,)
    else:
        shape = (BATCH, SEQ)
        names = ["input_ids"] + ["decoder_input_ids"] * (kind == "t5")
        given = {name: torch.randint(1, VOCABULARY, shape) for name in names}
    labels = torch.randint(1, VOCABULARY, shape)
    labels.view(-1)[0] = -100
    return given, labels


@cache
def family(kind: str, train: str | None, layers: int = 2, dtype: str = "f32", /) -> Family:
    seq = None if kind == "vit" else SEQ
    document = import_torch(
        f"transformers:{kind}", batch=BATCH, seq=seq, layers=layers, dtype=dtype, config=CONFIGS[kind], train=train
    )
    made = module(kind, dtype, layers)
    given, labels = inputs(kind, dtype)
    tensors = dict(made.named_parameters()) | dict(made.named_buffers()) | given | {"labels": labels}
    arrays = {
        entry["id"]: tensors[entry["name"]].detach().numpy().copy() if entry["name"] in tensors else _state(entry)
        for entry in document["inputs"]
    }
    logits = made(**given).logits
    if train is None:
        wanted = {document["outputs"][0]: logits.detach().numpy()}
        return Family(validate_document(GraphDocument, document, kind), arrays, wanted, {})
    return Family(
        validate_document(GraphDocument, document, kind), arrays, *_trained(document, made, logits, labels, train)
    )


def _state(entry: dict[str, Any]) -> Any:
    """Return an optimizer state before its first step, whose number is one."""
    assert entry["kind"] == "optimizer_state"
    fill = 1.0 if entry["id"] == "step" else 0.0
    return torch.full(entry["shape"], fill, dtype=DTYPES[entry["dtype"]]).numpy()


def _trained(document: dict[str, Any], made: Any, logits: Any, labels: Any, train: str) -> tuple[Any, Any]:
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())
    loss.backward()
    weights = {name: weight for name, weight in made.named_parameters() if weight.grad is not None}
    gradients = {name: weight.grad.numpy().copy() for name, weight in weights.items()}
    OPTIMIZERS[train](weights.values()).step()
    wanted, felt = {document["outputs"][0]: loss.detach().numpy()}, felt_by_loss(gradients)
    for entry in document["inputs"]:
        if entry["kind"] == "parameter" and "next" in entry:
            updated = weights.pop(entry["name"]).detach().numpy().copy()
            if train == "adam":
                updated[~felt[entry["name"]]] = np.nan
            wanted[entry["next"]] = updated
    assert not weights, f"parameters that are not updated: {sorted(weights)}"
    return wanted, gradients


def felt_by_loss(gradients: dict[str, Any]) -> dict[str, Any]:
    """Return the gradients above rounding. A key's bias has none: Adam would divide rounding by its own size."""
    largest = max(abs(gradient).max() for gradient in gradients.values())
    return {name: abs(gradient) > 1e-5 * largest for name, gradient in gradients.items()}
