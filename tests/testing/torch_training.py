"""Modules in training mode, and their state after one step of torch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from planner.documents.schemas import GraphDocument, validate_document
from planner.frontends.torch import build_module_document

torch: Any = pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")
nn, F = torch.nn, torch.nn.functional
RATE = 1e-3
"""The learning rate of `train="sgd"`."""


class Calls(nn.Module):  # type: ignore[misc, name-defined]  # torch is untyped here
    """A module whose forward pass is a function of it and its inputs."""

    def __init__(self, forward: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.function = forward
        for name, part in parts.items():
            self.register_buffer(name, part) if type(part) is torch.Tensor else setattr(self, name, part)

    def forward(self, *inputs: Any) -> Any:
        return self.function(self, *inputs)


def normed(inside: int, outside: int, taps: int, stride: int, **options: Any) -> Any:
    return nn.Sequential(
        nn.Conv2d(inside, outside, taps, stride, taps // 2, bias=False), nn.BatchNorm2d(outside, **options)
    )


def residual(inside: int, outside: int, stride: int) -> Any:
    def forward(self: Any, x: Any) -> Any:
        return F.relu(self.second(F.relu(self.first(x))) + self.skip(x))

    skip = nn.Identity() if stride == 1 and inside == outside else normed(inside, outside, 1, stride)
    return Calls(forward, first=normed(inside, outside, 3, stride), second=normed(outside, outside, 3, 1), skip=skip)


def resnet() -> Any:
    """He, Zhang, Ren, Sun, "Deep residual learning", 2015, of two blocks, with its loss."""

    def forward(self: Any, x: Any) -> Any:
        return F.cross_entropy(self.body(x), torch.zeros(x.shape[0], dtype=torch.int64, device=x.device))

    body = nn.Sequential(
        normed(3, 4, 7, 2),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        residual(4, 4, 1),
        residual(4, 8, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 10),
    )
    return Calls(forward, body=body)


def unet(dropout: float = 0.0) -> Any:
    """A U-Net of one level with batch normalisation, copies of elements and a transposed convolution on the way up."""

    def forward(self: Any, x: Any) -> Any:
        left = self.down(x)
        right = self.up(F.interpolate(self.middle(left), scale_factor=2))
        return self.last(torch.cat([right, left], 1)).square().mean()

    down = nn.Sequential(normed(3, 4, 3, 1), nn.SiLU())
    middle = nn.Sequential(nn.AvgPool2d(4), normed(4, 4, 3, 1, momentum=0.3), nn.ReLU(), nn.Dropout2d(dropout))
    return Calls(forward, down=down, middle=middle, up=nn.ConvTranspose2d(4, 4, 2, 2), last=nn.Conv2d(8, 3, 1))


def frozen() -> Any:
    """A convolution whose normalisation keeps its statistics, and a classifier that normalises without any."""

    def forward(self: Any, x: Any) -> Any:
        x = self.first(x).mean((2, 3))
        return self.second(x).square().mean() + self.third(x).tanh().sum()

    first = normed(3, 8, 3, 1)
    first[1].eval()
    second = nn.BatchNorm1d(8, affine=False)
    return Calls(forward, first=first, second=second, third=nn.BatchNorm1d(8, track_running_stats=False))


def averages() -> Any:
    """Buffers of the user's own: a counter, a moving average of what may have a gradient, and the last input."""

    def forward(self: Any, x: Any) -> Any:
        self.count += 1
        y = self.linear(x.mean((2, 3)))
        self.average.mul_(0.9).add_(0.1 * y.mean(0))
        self.last.copy_(x)
        return (y - self.average.detach()).square().mean() / self.count

    zeros = {"count": torch.zeros(()), "average": torch.zeros(8), "last": torch.zeros(8, 3, 16, 16)}
    return Calls(forward, linear=nn.Linear(3, 8), **zeros)


def recurrent() -> Any:
    """An LSTM of two layers, group normalisation, a rolled and a cropped image, and bags of embeddings."""

    def forward(self: Any, x: Any) -> Any:
        words = (x[:, 0, 0] * 7).long().abs() % 10
        image = F.pad(self.norm(self.mix(x)).roll((3, -5), (2, 3)), (-5, -6, 0, 1))
        states, (last, _) = self.lstm(image.mean(2).transpose(1, 2))
        return states.square().mean() + last.sum() + self.bags(words).tanh().mean()

    parts = {"mix": nn.Conv2d(3, 4, 1), "norm": nn.GroupNorm(2, 4), "bags": nn.EmbeddingBag(10, 4, mode="sum")}
    return Calls(forward, lstm=nn.LSTM(4, 3, num_layers=2, batch_first=True), **parts)


SHAPE = (8, 3, 16, 16)
MODULES: dict[str, Callable[[], Any]] = {
    "resnet": resnet,
    "unet": unet,
    "frozen": frozen,
    "averages": averages,
    "recurrent": recurrent,
}


@dataclass(frozen=True)
class Step:
    """The document of a forward pass or of a training step, arrays for its inputs, and torch's result and state."""

    document: GraphDocument
    arrays: dict[str, Any]
    loss: Any
    state: dict[str, Any]

    def wanted(self, output: str) -> Any:
        """Return what torch has for an output."""
        followed = {entry.next: entry.name for entry in self.document.inputs if entry.next is not None}
        return self.state[followed[output]] if output in followed else self.loss


def take_step(module: Any, image: Any, train: str | None) -> Step:
    """Import a module as it is, and run torch on a copy."""
    there = copy.deepcopy(module)
    document = validate_document(GraphDocument, build_module_document(module, (image,), {}, train=train), "step")
    tensors = dict(module.named_parameters()) | dict(module.named_buffers()) | {"args_0": image, "inputs_0": image}
    arrays = {entry.id: tensors[entry.name].detach().numpy().copy() for entry in document.inputs}
    loss = there(image)
    loss.backward()
    state = {name: buffer.detach().numpy() for name, buffer in there.named_buffers()}
    for name, weight in there.named_parameters():
        state[name] = (
            (weight - RATE * weight.grad).detach().numpy() if weight.grad is not None else weight.detach().numpy()
        )
    return Step(document, arrays, loss.detach().numpy(), state)


def random_module(make: Callable[[], Any], dtype: Any) -> Any:
    """Return a module in training mode, but for the parts that are not, with random state."""
    torch.manual_seed(0)
    module = make().to(dtype)
    for tensor in (*module.parameters(), *(b for b in module.buffers() if b.is_floating_point())):
        torch.nn.init.uniform_(tensor, 0.05, 0.6)
    return module


def random_image(dtype: Any) -> Any:
    torch.manual_seed(1)
    return torch.randn(SHAPE, dtype=dtype)


def close(got: Any, want: Any, tolerance: float) -> None:
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * max(abs(want).max(), 1e-6))
