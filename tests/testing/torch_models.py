"""Tiny models of eight families that return their losses, with inputs, as a user would train them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import nn
from torch.nn import functional

from tests.testing.torch_families import BATCH, CLASSES, CONFIGS, SEQ, VOCABULARY
from tests.testing.torch_training import SHAPE, resnet, unet

NODES, EDGES, FEATURES = 24, 60, 8


class LabelLoss(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """A model of transformers and the cross entropy of its logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, given: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.model(given).logits.flatten(0, -2), labels.flatten())


class TranslationLoss(LabelLoss):
    """A model of an encoder and a decoder, and its loss."""

    def forward(self, given: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        made = self.model(input_ids=given, decoder_input_ids=labels).logits
        return functional.cross_entropy(made.flatten(0, -2), labels.flatten())


class GraphConvolution(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Two rounds of mean aggregation over edges (Hamilton et al., "Inductive representation learning", 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.ModuleList([nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, 4)])
        self.others = nn.ModuleList([nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, 4)])

    def forward(self, x: torch.Tensor, edges: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        source, target = edges[:, 0], edges[:, 1]
        degree = torch.zeros(x.shape[0], dtype=x.dtype, device=x.device).index_add(
            0, target, torch.ones_like(target, dtype=x.dtype)
        )
        for own, others in zip(self.own, self.others, strict=True):
            arrived = torch.zeros_like(x).index_add(0, target, x[source]) / degree.clamp(min=1)[:, None]
            x = functional.relu(own(x) + others(arrived))
        return functional.cross_entropy(x, labels)


Inputs = tuple[torch.Tensor, ...]


def _text(kind: str) -> tuple[nn.Module, Inputs]:
    depth = {"num_hidden_layers": 2} | ({"num_decoder_layers": 2} if kind == "t5" else {})
    config = CLASSES[kind].config_class(**CONFIGS[kind], **depth, use_cache=False)
    model = CLASSES[kind]._from_config(config, attn_implementation="eager")
    loss = TranslationLoss(model) if kind == "t5" else LabelLoss(model)
    return loss, (torch.randint(1, VOCABULARY, (BATCH, SEQ)), torch.randint(1, VOCABULARY, (BATCH, SEQ)))


def _vit() -> tuple[nn.Module, Inputs]:
    config = transformers.ViTConfig(**CONFIGS["vit"], num_hidden_layers=2)
    model = transformers.ViTForImageClassification._from_config(config, attn_implementation="eager")
    return LabelLoss(model), (torch.randn(BATCH, 3, 16, 16), torch.randint(1, VOCABULARY, (BATCH,)))


def _graph() -> tuple[nn.Module, Inputs]:
    edges = torch.randint(0, NODES, (EDGES, 2))
    return GraphConvolution(), (torch.randn(NODES, FEATURES), edges, torch.randint(0, 4, (NODES,)))


def _image(make: Callable[[], Any]) -> tuple[nn.Module, Inputs]:
    return make(), (torch.randn(SHAPE),)


MODELS: dict[str, Callable[[], tuple[nn.Module, Inputs]]] = {
    "gpt2": lambda: _text("gpt2"),
    "llama": lambda: _text("llama"),
    "mixtral": lambda: _text("mixtral"),
    "t5": lambda: _text("t5"),
    "vit": _vit,
    "resnet": lambda: _image(resnet),
    "unet": lambda: _image(unet),
    "gnn": _graph,
}


def seeded(name: str, seed: int) -> tuple[nn.Module, Inputs]:
    """Return a model in training mode with parameters of a seed, and the same inputs for every seed."""
    torch.manual_seed(0)
    _, inputs = MODELS[name]()
    torch.manual_seed(seed)
    module, _ = MODELS[name]()
    return module.train(), inputs
