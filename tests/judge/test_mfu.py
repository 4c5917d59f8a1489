"""Model FLOPs utilisation: what counts as the model's work, and which peak it is divided by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from planner import pipeline
from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.plans import dump_plan
from planner.documents.schemas import GraphDocument
from planner.frontends.zoo import import_zoo
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.judge.mfu import model_flops, utilisation
from planner.planning.plan_types import Request
from tests.testing.random_steps import random_step

SMALL = {"layers": 2, "batch": 4, "seq": 64}
MESH = Mesh.parse("dp=2")
H100 = load_profile("h100-sxm")


def gpt2(**more: Any) -> Graph:
    return load_graph(GraphDocument.model_validate(import_zoo("gpt2", **{**SMALL, **more})), MESH)


def by_palm(layers: int, width: int, words: int, batch: int, seq: int) -> float:
    """2 N D + 4 L d T D of a forward pass: N the weights that are multiplied with, D the tokens."""
    tokens, weights = batch * seq, 12 * layers * width**2 + words * width
    return 2.0 * weights * tokens + 4.0 * layers * width * seq * tokens


def test_the_flops_of_a_forward_pass_are_those_of_the_palm_formula() -> None:
    assert sum(model_flops(gpt2()).values()) == pytest.approx(by_palm(2, 768, 50257, 4, 64), rel=0.02)


def test_a_training_step_counts_three_times_its_forward_pass() -> None:
    once, step = (sum(model_flops(gpt2(train=train)).values()) for train in (None, "adam"))
    assert step == pytest.approx(3 * once, rel=0.03)


def test_recomputed_ops_do_not_count_as_work_of_the_model() -> None:
    graph, mesh, cpu = random_step(6, 7, 6), Mesh.parse("2"), load_profile("cpu")
    small = Request(1, 0.05, 1, deterministic=True)
    limit = (pipeline.plan(graph, mesh, cpu, request=small).certificate.least_limit_bound_bytes or 0) - 1
    plan = pipeline.plan(graph, mesh, cpu, request=replace(small, memory_limit_bytes=limit, recompute="auto"))
    assert plan.analysis is not None
    assert plan.analysis.recompute_ps > 0
    flops, cost = model_flops(graph), dump_plan(plan)["cost"]
    assert model_flops(plan.analysis.program.graph) == flops
    assert cost["model_flops"] == sum(flops.values()) > 0
    assert cost["mfu"] == utilisation(flops, cpu, 2, step_s=cost["step_s"])


def test_at_its_peak_rate_a_device_has_a_utilisation_of_one() -> None:
    flops = model_flops(gpt2(dtype="bf16"))
    assert set(flops) == {"bf16"}
    assert utilisation(flops, H100, 1, step_s=flops["bf16"] / H100.peak_flops["bf16"]) == pytest.approx(1.0)
    assert utilisation(flops, H100, 4, step_s=flops["bf16"] / H100.peak_flops["bf16"]) == pytest.approx(0.25)
    assert utilisation(flops, H100, 4, step_s=0.0) == 0.0
