"""Training steps with frozen parameters, clipped gradients and master copies, and the placement of their state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")

import torch

import planner.torch
from planner import Mesh
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument, validate_document
from planner.errors import InvalidRequest
from planner.frontends.torch import build_module_document
from planner.pipeline import validate_plan
from planner.run.executor import run_whole

pytestmark = pytest.mark.frameworks("torch")

FROZEN = {"base.weight", "base.bias"}
TRAINED = {"down.weight", "up.weight"}


class LowRank(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
    """A frozen product beside one of low rank that is trained; returns its loss."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.base = torch.nn.Linear(16, 16)
        self.down, self.up = torch.nn.Linear(16, 4, bias=False), torch.nn.Linear(4, 16, bias=False)
        self.base.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.base(x) + self.up(self.down(x))).pow(2).mean()


def x() -> torch.Tensor:
    return torch.linspace(-2, 2, 8 * 16).reshape(8, 16)


def test_frozen_parameters_have_no_gradient_no_state_and_no_update() -> None:
    inputs = build_module_document(LowRank(), (x(),), {}, train="adamw")["inputs"]
    assert {entry["name"] for entry in inputs if entry["kind"] == "parameter" and "next" not in entry} == FROZEN
    states = {entry["name"] for entry in inputs if entry["kind"] == "optimizer_state"}
    assert states == {"step", *(f"{name}.{state}" for name in TRAINED for state in ("exp_avg", "exp_avg_sq"))}


def test_a_module_without_a_trained_parameter_is_refused() -> None:
    with pytest.raises(
        InvalidRequest, match=r"LowRank: nothing to train .*wanted a parameter that requires a gradient"
    ):
        build_module_document(LowRank().requires_grad_(False), (x(),), {}, train="sgd")


def test_a_clipped_step_is_that_of_torch() -> None:
    module, clip = LowRank(), 0.01
    document = build_module_document(module, (x(),), {}, train="sgd:lr=1", clip_grad_norm=clip)
    graph = load_graph(validate_document(GraphDocument, document, "step"), Mesh.parse("1"))
    arrays: dict[str, Any] = {name: each.detach().numpy().copy() for name, each in module.named_parameters()}
    values = run_whole(graph, arrays | {"x": x().numpy()}, np, precision="f32")
    module(x()).backward()
    trained = [each for each in module.parameters() if each.requires_grad]
    assert torch.nn.utils.clip_grad_norm_(trained, clip) > clip
    torch.optim.SGD(trained, lr=1).step()
    following = {entry["id"]: entry["next"] for entry in document["inputs"] if "next" in entry}
    for name in TRAINED:
        wanted = module.get_parameter(name).detach().numpy()
        assert abs(values[following[name]] - wanted).max() < 1e-4 * abs(wanted - arrays[name]).max()


def test_the_optimizer_s_state_is_placed_and_counted() -> None:
    planned = planner.torch.plan(LowRank().bfloat16(), (x().bfloat16(),), "dp=2,tp=2", train="lion", master="f32")
    states = {f"{name}.{state}" for name in TRAINED for state in ("exp_avg", "master")}
    assert set(planned.optimizer_state) == states
    assert set(planned.parameters) == FROZEN | TRAINED
    assert planned.plan.analysis is not None
    old_and_new = 2 * len(states) * 4 * 16 * 4  # of f32, if every device holds all of it
    assert 0 < planned.plan.analysis.peak_by_kind()["optimizer_state"] <= old_and_new
    verdict = validate_plan(planned.plan).verdict
    assert verdict is not None
    assert verdict.verdict == "equal"
