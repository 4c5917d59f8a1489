"""Tensors without elements: what torch computes with them is planned without them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument, validate_document
from planner.ir.mesh import Mesh
from planner.run.executor import run_whole

pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")

import torch

import planner.torch
from planner.frontends.torch import build_module_document

pytestmark = pytest.mark.frameworks("torch")


class Widened(torch.nn.Module):  # type: ignore[misc]
    """A product whose weight is widened by no rows, as of a MobileBERT as wide as its embedding, and an empty cache."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 16 * 8).reshape(16, 8))
        self.extra = torch.nn.Parameter(torch.empty(0, 8))
        self.register_buffer("unused", torch.empty(3, 0))

    def forward(self, x: Any) -> Any:
        known = torch.cat([torch.tensor([]), x])
        rows = torch.cat([x[:0], known, x[:, :0].new_zeros(0, 8)])
        return torch.nn.functional.linear(rows, torch.cat([self.weight, self.extra])).pow(2).mean()


def x() -> Any:
    return torch.linspace(-2, 2, 4 * 8, dtype=torch.float64).reshape(4, 8)


@pytest.mark.parametrize("train", [None, "sgd:lr=1"])
def test_a_module_with_tensors_without_elements_computes_what_torch_does(train: str | None) -> None:
    module = Widened().double()
    document = build_module_document(module, (x(),), {}, train=train)
    assert {entry["name"] for entry in document["inputs"]} == {"weight", "x"}
    graph = load_graph(validate_document(GraphDocument, document, "step"), Mesh.parse("1"))
    named: dict[str, Any] = {"weight": module.weight.detach().numpy().copy(), "x": x().numpy()}
    arrays = {entry.id: named[entry.name or ""] for entry in graph.inputs}
    values = run_whole(graph, arrays, np, precision="f64")
    loss = module(x())
    np.testing.assert_allclose(values[graph.outputs[0]], loss.detach().numpy(), rtol=1e-12)
    if train:
        loss.backward()
        torch.optim.SGD([module.weight], lr=1).step()
        (following,) = (entry.next for entry in graph.inputs if entry.next is not None)
        np.testing.assert_allclose(values[following], module.weight.detach().numpy(), rtol=1e-12)


SPLITS = {
    "first": lambda x: torch.split(x, [0, 4, 4], 1)[1] * 2 + torch.split(x, [0, 4, 4], 1)[2],
    "middle": lambda x: torch.split(x, [4, 0, 4], 1)[0] * 2 + torch.split(x, [4, 0, 4], 1)[2],
    "all but one": lambda x: torch.split(x, [0, 8, 0], 1)[1] * 2,
}


class Called(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


@pytest.mark.parametrize("function", SPLITS.values(), ids=SPLITS)
def test_pieces_after_one_without_elements_are_those_of_torch(function: Callable[[Any], Any]) -> None:
    document = build_module_document(Called(function), (x(),), {})
    graph = load_graph(validate_document(GraphDocument, document, "split"), Mesh.parse("1"))
    values = run_whole(graph, {"x": x().numpy()}, np, precision="f64")
    np.testing.assert_array_equal(values[graph.outputs[0]], function(x()).numpy())


def test_a_plan_places_the_parameters_that_have_elements() -> None:
    planned = planner.torch.plan(Widened().double(), (x(),), "dp=2", train="adamw")
    assert set(planned.parameters) == {"weight"}
