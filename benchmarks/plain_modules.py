"""Small PyTorch modules of kinds that transformers does not have; a module that is to be trained returns its loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._pytree import tree_leaves

Example = tuple[nn.Module, tuple[Tensor, ...]]


class WithLoss(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """A module whose result is the sum of the mean squares of its results where it is to be trained."""

    def __init__(self, inner: nn.Module, train: bool) -> None:
        super().__init__()
        self.inner, self.has_loss = inner, train

    def forward(self, *args: Tensor) -> Tensor:
        y = self.inner(*args)
        return sum(functional.mse_loss(x, torch.zeros_like(x)) for x in tree_leaves(y)) if self.has_loss else y


class GraphNet(nn.Module):  # type: ignore[misc]  # torch is untyped here
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
        messages = self.first(x)[sources]
        places = targets[:, None].expand_as(messages)
        summed = torch.zeros(x.shape[0], 32, device=x.device).scatter_add(0, places, messages)
        return self.last(summed.relu())


class Experts(nn.Module):  # type: ignore[misc]  # torch is untyped here
    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(16, 4)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        best = self.router(x).argmax(-1, keepdim=True)
        y = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            y = torch.where(best == number, expert(x), y)
        return y


class Recurrent(nn.Module):  # type: ignore[misc]  # torch is untyped here
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.last = nn.LSTM(16, 32, num_layers=2, batch_first=True), nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.cell(x)[0])


class UNet(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """A U-Net; with `time` it is conditioned on a step of diffusion."""

    def __init__(self, time: bool = False) -> None:
        super().__init__()
        self.down, self.middle = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1, stride=2)
        self.norm = nn.GroupNorm(2, 8)
        self.up, self.last = nn.ConvTranspose2d(8, 8, 2, stride=2), nn.Conv2d(16, 3, 1)
        self.time = nn.Linear(8, 8) if time else None

    def forward(self, x: Tensor, step: Tensor | None = None) -> Tensor:
        wide = functional.silu(self.norm(self.down(x)))
        if self.time is not None and step is not None:
            angles = step[:, None] * torch.exp(-torch.arange(4, device=x.device))
            wide = wide + self.time(torch.cat([angles.sin(), angles.cos()], -1))[:, :, None, None]
        small = self.middle(wide)
        tokens = small.flatten(2).transpose(1, 2)
        mixed = functional.scaled_dot_product_attention(tokens, tokens, tokens)
        return self.last(torch.cat([self.up(mixed.transpose(1, 2).reshape(small.shape)), wide], 1))


class VisionTransformer(nn.Module):  # type: ignore[misc]  # torch is untyped here
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 4, stride=4)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2)
        self.last = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.layers(self.patches(x).flatten(2).transpose(1, 2)).mean(1))


class Recommender(nn.Module):  # type: ignore[misc]  # torch is untyped here
    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(100, 16, mode="sum") for _ in range(3))
        self.bottom, self.top = nn.Linear(8, 16), nn.Linear(16 + 6, 1)

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        x = self.bottom(dense).relu()
        parts = torch.stack([x, *(table(ids[:, i]) for i, table in enumerate(self.tables))], 1)
        rows, columns = torch.tril_indices(4, 4, -1, device=x.device)
        return self.top(torch.cat([x, (parts @ parts.mT)[:, rows, columns]], -1)).sigmoid()


class Scan(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """A state-space layer that steps through the sequence, as Mamba's reference does."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(16, 3 * 16), nn.Linear(16, 16)
        self.decay = nn.Parameter(torch.zeros(16))

    def forward(self, x: Tensor) -> Tensor:
        value, gate, width = self.into(x).chunk(3, -1)
        factors = torch.exp(-functional.softplus(width) * self.decay.exp())
        state, results = torch.zeros_like(value[:, 0]), []
        for step in range(x.shape[1]):
            state = factors[:, step] * state + value[:, step]
            results.append(state)
        return self.out(torch.stack(results, 1) * functional.silu(gate))


class Translator(nn.Module):  # type: ignore[misc]  # torch is untyped here
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(100, 32)
        self.inner = nn.Transformer(32, 4, 2, 2, 64, batch_first=True)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        mask = torch.full((target.shape[1],) * 2, -1e9, device=source.device).triu(1)
        return functional.linear(self.inner(self.words(source), self.words(target), tgt_mask=mask), self.words.weight)


class ConvNeXtBlock(nn.Module):  # type: ignore[misc]  # torch is untyped here
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.spatial = nn.Conv2d(3, 16, 4, stride=4), nn.Conv2d(16, 16, 7, padding=3, groups=16)
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.norm(self.spatial(x).permute(0, 2, 3, 1))
        return (x + self.down(functional.gelu(self.up(y))).permute(0, 3, 1, 2)).mean((-2, -1))


def _builder(kind: Callable[[], nn.Module], *inputs: tuple[Any, ...]) -> Callable[[bool], Example]:
    """Return a function that builds a module and its inputs, without storage; integers where a shape ends with int."""

    def build(train: bool) -> Example:
        with torch.device("meta"):
            args = [torch.zeros(s[:-1], dtype=torch.int64) if s[-1] is int else torch.zeros(s) for s in inputs]
            return WithLoss(kind(), train), tuple(args)

    return build


MODULES: dict[str, Callable[[bool], Example]] = {
    "graph network": _builder(GraphNet, (12, 16), (40, int), (40, int)),
    "mixture of experts": _builder(Experts, (2, 8, 16)),
    "lstm": _builder(Recurrent, (2, 8, 16)),
    "u-net": _builder(UNet, (2, 3, 16, 16)),
    "vision transformer": _builder(VisionTransformer, (2, 3, 16, 16)),
    "diffusion u-net": _builder(lambda: UNet(time=True), (2, 3, 16, 16), (2,)),
    "recommender": _builder(Recommender, (4, 8), (4, 3, 5, int)),
    "selective scan": _builder(Scan, (2, 8, 16)),
    "transformer": _builder(Translator, (2, 8, int), (2, 6, int)),
    "convnext block": _builder(ConvNeXtBlock, (2, 3, 32, 32)),
}
