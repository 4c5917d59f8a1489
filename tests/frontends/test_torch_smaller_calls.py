"""Calls that are imported as smaller calls: torch's numbers and gradients, whole and as planned on a mesh."""

from __future__ import annotations

import warnings
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from planner import Request, pipeline
from planner.documents.graphs import load_graph
from planner.frontends.uncovered_ops import UnknownOpWarning
from planner.ir.mesh import Mesh
from planner.judge.analysis import Analysis
from planner.run.executor import SINGLE_DEVICE, run_program, run_whole
from tests.testing.hardware import EAGER
from tests.testing.random_shards import reassembled

torch: Any = pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")
cases = import_module("tests.testing.torch_differentiated")
training = import_module("tests.testing.torch_training")

pytestmark = pytest.mark.frameworks("torch")

MESH = Mesh.parse("2x2")
TOLERANCE = 1e-11


@cache
def step(name: str) -> Any:
    with warnings.catch_warnings(action="error", category=UnknownOpWarning):
        return cases.take_step(*cases.CASES[name])


@pytest.mark.parametrize("name", cases.CASES)
def test_a_training_step_gives_torch_s_loss_and_torch_s_weights(name: str) -> None:
    done = step(name)
    graph = load_graph(done.document, SINGLE_DEVICE)
    values = run_whole(graph, done.arrays, np, precision="declared")
    for output in graph.outputs:
        training.close(values[output], done.wanted(output), TOLERANCE)


@pytest.mark.parametrize("name", cases.CASES)
def test_a_planned_training_step_gives_them_too(name: str) -> None:
    done = step(name)
    plan = pipeline.plan(load_graph(done.document, MESH), MESH, EAGER, request=Request(gap=0.2))
    assert isinstance(plan.analysis, Analysis)
    program = plan.analysis.program
    ran = run_program(program, done.arrays, np, precision="declared")
    for place, output in enumerate(program.graph.outputs):
        got = reassembled(program, [outputs[place] for outputs in ran.outputs], np.float64, place)
        training.close(got, done.wanted(output), TOLERANCE)
