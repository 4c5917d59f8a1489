"""Gradients that a model's code writes itself, and calls of torch that are traced in another form: torch's numbers."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument, validate_document
from planner.errors import ShardplanError
from planner.frontends.torch import build_module_document
from planner.run.executor import SINGLE_DEVICE, run_whole

torch: Any = pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")
training = import_module("tests.testing.torch_training")
nn, F = torch.nn, torch.nn.functional

pytestmark = pytest.mark.frameworks("torch")


class StraightThrough(torch.autograd.Function):  # type: ignore[misc]  # untyped
    """Rounds; the gradient passes where the operand is small."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x.round()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * (ctx.saved_tensors[0].abs() < 1)


class Reversed(torch.autograd.Function):  # type: ignore[misc]
    """Passes its operand on; the gradient is turned round and scaled."""

    @staticmethod
    def forward(x: Any, scale: float) -> Any:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.scale = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return -ctx.scale * grad, None


class Split(torch.autograd.Function):  # type: ignore[misc]
    """Has several results, one of integers, one unread, and keeps a tensor as an attribute."""

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.product, ctx.unused = x * y, None
        ctx.save_for_backward(None, y)
        return x * 2, x > y, y.sin()

    @staticmethod
    def backward(ctx: Any, first: Any, _: Any, third: Any) -> Any:
        return first * ctx.product + third, first * ctx.saved_tensors[1] - third


def through(function: Callable[[Any, Any], Any], **parts: Any) -> Callable[[], Any]:
    """Return a builder of a module: means of an image, a layer, `function`, and a loss."""

    def forward(self: Any, x: Any) -> Any:
        return function(self, self.linear(x.mean(2))).square().mean()

    return lambda: training.Calls(forward, linear=nn.Linear(16, 8), **{name: part() for name, part in parts.items()})


def split(self: Any, x: Any) -> Any:
    doubled, mask, _ = Split.apply(x, self.other(x))
    return doubled * mask


def checkpointed(self: Any, x: Any) -> Any:
    return torch.utils.checkpoint.checkpoint(lambda y: self.other(y).tanh(), x, use_reentrant=True)


def power(self: Any, x: Any) -> Any:
    return torch.func.grad(lambda y: (self.other(y) ** 3).sum())(x)


EXACT: dict[str, Callable[[], Any]] = {
    "straight through": through(lambda self, x: StraightThrough.apply(x)),
    "reversed": through(lambda self, x: Reversed.apply(x, 0.5)),
    "several results": through(split, other=lambda: nn.Linear(8, 8)),
    "reentrant checkpoint": through(checkpointed, other=lambda: nn.Linear(8, 8)),
    "vmap": through(
        lambda self, x: torch.vmap(lambda row: self.other(row) * row.sum())(x), other=lambda: nn.Linear(8, 8)
    ),
    "vmap over another dim": through(lambda self, x: torch.vmap(lambda row: row.softmax(0), in_dims=1, out_dims=1)(x)),
    "gradient within": through(power, other=lambda: nn.Linear(8, 8)),
    "forward derivative": through(lambda self, x: torch.func.jvp(torch.sin, (x,), (x,))[1]),
}


@pytest.mark.parametrize("name", EXACT)
def test_a_step_has_torch_s_loss_and_gradients(name: str) -> None:
    module, image = training.random_module(EXACT[name], torch.float64), training.random_image(torch.float64)
    done = training.take_step(module, image, "sgd")
    graph = load_graph(done.document, SINGLE_DEVICE)
    values = run_whole(graph, done.arrays, np, precision="declared")
    for output in graph.outputs:
        training.close(values[output], done.wanted(output), 1e-9)


def build(forward: Callable[..., Any], x: Any, *, train: str | None = None, **parts: Any) -> dict[str, Any]:
    document: dict[str, Any] = build_module_document(training.Calls(forward, **parts), (x,), {}, train=train)
    return document


def test_a_forward_pass_alone_has_the_results_of_the_function() -> None:
    document = build(lambda self, x: StraightThrough.apply(x), torch.zeros(4))
    assert [node["op"] for node in document["nodes"]] == ["round"]


def test_the_gradient_of_a_sparse_embedding_is_planned_as_of_a_dense_one() -> None:
    def forward(self: Any, ids: Any) -> Any:
        return self.table(ids).square().mean()

    sparse, dense = (
        build(forward, torch.zeros(4, 3, dtype=torch.int64), train="sgd", table=nn.Embedding(10, 4, 0, sparse=each))
        for each in (True, False)
    )
    assert sparse == dense


def test_a_region_of_automatic_casts_is_narrow_in_a_forward_pass_too() -> None:
    def forward(self: Any, x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return self.layer(x).float()

    document = build(forward, torch.zeros(4, 8), layer=nn.Linear(8, 8))
    assert {node["outputs"][0]["dtype"] for node in document["nodes"] if node["op"] == "linear"} == {"bf16"}


def averaged(self: Any, x: Any) -> Any:
    """A moving average of what has a gradient, under torch.no_grad, and no other write."""
    y = self.layer(x.mean(2))
    with torch.no_grad():
        self.average.lerp_(y.mean((0, 1)), 0.1)
    return (y - self.average).square().mean()


def layered(self: Any, x: Any) -> Any:
    return self.layer(x).square().mean()


STATE: dict[str, tuple[Callable[[], Any], int]] = {
    "moving average": (lambda: training.Calls(averaged, layer=nn.Linear(16, 4), average=torch.zeros(4)), 1),
    "spectral norm": (
        lambda: training.Calls(layered, layer=nn.utils.parametrizations.spectral_norm(nn.Linear(16, 4))),
        2,
    ),
    "spectral norm by hooks": (lambda: training.Calls(layered, layer=nn.utils.spectral_norm(nn.Linear(16, 4))), 2),
    "instances": (
        lambda: training.Calls(layered, layer=nn.InstanceNorm2d(3, affine=True, track_running_stats=True)),
        2,
    ),
}


@pytest.mark.parametrize("name", STATE)
def test_what_is_written_without_gradients_is_state_and_has_none(name: str) -> None:
    make, written = STATE[name]
    module = training.random_module(make, torch.float64)
    done = training.take_step(module, training.random_image(torch.float64), "sgd")
    graph = load_graph(done.document, SINGLE_DEVICE)
    values = run_whole(graph, done.arrays, np, precision="declared")
    assert sum(entry.kind == "buffer" and entry.next is not None for entry in graph.inputs) == written
    for output in graph.outputs:
        training.close(values[output], done.wanted(output), 1e-9)


def test_positions_that_a_pool_returns_are_there_for_those_who_read_them() -> None:
    def forward(self: Any, x: Any) -> Any:
        return F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2)

    image = training.random_image(torch.float32)
    graph = load_graph(validate_document(GraphDocument, build(forward, image), "unpool"), SINGLE_DEVICE)
    values = run_whole(graph, {graph.inputs[0].id: image.numpy()}, np, precision="declared")
    np.testing.assert_array_equal(values[graph.outputs[0]], forward(None, image).numpy())


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "a sparse tensor": (lambda self, x: torch.sparse.mm(torch.eye(4).to_sparse(), x), "a sparse tensor"),
    "a branch": (lambda self, x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), "torch.where of both results"),
    "a packed sequence": (
        lambda self, x: nn.utils.rnn.pack_padded_sequence(x[None], torch.tensor([4]), batch_first=True).data,
        "a packed sequence .*wanted padded sequences",
    ),
    "a write behind the graph": (
        lambda self, x: (self.layer.weight.data.mul_(2), self.layer(x))[1],
        r"wanted no \.data and no requires_grad_\(\) in the forward pass",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_planned_says_what_to_write_instead(name: str) -> None:
    forward, says = REFUSED[name]
    with pytest.raises(ShardplanError, match=says):
        build(forward, torch.zeros(4, 4), layer=nn.Linear(4, 4))


def test_a_write_through_a_detached_tensor_is_refused_in_a_training_step() -> None:
    """The graph of the write has no gradient, and torch's has the one of what was there before."""

    def forward(self: Any, x: Any) -> Any:
        y = self.layer(x)
        y.detach().clamp_(min=0.1)
        return y.square().mean()

    with pytest.raises(ShardplanError, match=r"a write to a detached tensor \(got aten\.clamp_"):
        build(forward, torch.zeros(4, 4), train="sgd", layer=nn.Linear(4, 4))
    assert build(forward, torch.zeros(4, 4), layer=nn.Linear(4, 4))["nodes"]


def test_a_layer_made_in_the_forward_pass_has_no_gradient_to_cut_off() -> None:
    """Its weights are drawn by writes to new tensors, as where a model chooses another attention by its length."""

    def forward(self: Any, x: Any) -> Any:
        made = nn.Linear(4, 4)
        made.weight, made.bias = self.layer.weight, self.layer.bias
        return made(x).square().mean()

    assert build(forward, torch.zeros(4, 4), train="sgd", layer=nn.Linear(4, 4))["nodes"]
