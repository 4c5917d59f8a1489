"""Modules in training mode: buffers that the forward pass writes are state of the graph, with torch's numbers."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from planner import Request, pipeline
from planner.documents.graphs import load_graph
from planner.errors import InvalidGraph
from planner.frontends.torch import build_module_document
from planner.ir.mesh import Mesh
from planner.judge.analysis import Analysis
from planner.run.executor import SINGLE_DEVICE, run_program, run_whole
from planner.run.validate import validate
from tests.testing.hardware import EAGER
from tests.testing.random_shards import reassembled

torch: Any = pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")
training = import_module("tests.testing.torch_training")

pytestmark = pytest.mark.frameworks("torch")

CASES = [(name, train) for name in training.MODULES for train in (None, "sgd")]
PROGRAMS = [(name, mesh) for name in training.MODULES for mesh in ("4", "2x2", "2x2x2")]
SPLITS = [([["a"], [], [], []], "batch"), ([[], ["a"], [], []], "channels"), ([[], [], ["a"], []], "rows")]
FAR = 4096.0


@cache
def step(name: str, train: str | None, dtype: str = "float64") -> Any:
    kind = getattr(torch, dtype)
    return training.take_step(training.random_module(training.MODULES[name], kind), training.random_image(kind), train)


@pytest.mark.parametrize(("name", "train"), CASES)
def test_the_graph_gives_torch_s_result_and_torch_s_state(name: str, train: str | None) -> None:
    done = step(name, train)
    graph = load_graph(done.document, SINGLE_DEVICE)
    values = run_whole(graph, done.arrays, np, precision="declared")
    assert all(entry.next is not None for entry in graph.inputs if entry.kind == "buffer") or name == "frozen"
    for output in graph.outputs:
        training.close(values[output], done.wanted(output), 1e-9)


@pytest.mark.parametrize(("name", "mesh"), PROGRAMS)
def test_a_planned_step_gives_torch_s_state(name: str, mesh: str) -> None:
    done, shape = step(name, "sgd"), Mesh.parse(mesh)
    plan = pipeline.plan(load_graph(done.document, shape), shape, EAGER, request=Request(gap=0.05))
    assert isinstance(plan.analysis, Analysis)
    program = plan.analysis.program
    ran = run_program(program, done.arrays, np, precision="declared")
    for place, output in enumerate(program.graph.outputs):
        want = done.wanted(output)
        shards = [outputs[place] for outputs in ran.outputs]
        training.close(reassembled(program, shards, np.float64, place), want, 1e-9)
    assert validate(program).verdict == "equal"


@pytest.mark.parametrize(("split", "what"), SPLITS)
def test_statistics_are_those_of_the_whole_batch_however_it_is_split(split: list[list[str]], what: str) -> None:
    shape, image = Mesh.parse("a=4"), torch.zeros(8, 8, 16, 16)
    document = build_module_document(torch.nn.BatchNorm2d(8), (image,), {})
    sharding = {"split_axes": split}
    document["annotations"] = [{"value": each, "sharding": sharding} for each in ("input", document["outputs"][0])]
    plan = pipeline.plan(
        load_graph(training.validate_document(training.GraphDocument, document, what), shape), shape, EAGER
    )
    assert isinstance(plan.analysis, Analysis)
    assert (plan.analysis.collective_bytes > 0) == (what != "channels")
    assert validate(plan.analysis.program).verdict == "equal"


def test_statistics_far_from_zero_are_exact_in_f32() -> None:
    """The mean of the squares less the square of the mean would have no digit left."""
    module, image = torch.nn.BatchNorm2d(3), training.random_image(torch.float32) + FAR
    document = build_module_document(module, (image,), {})
    graph = load_graph(training.validate_document(training.GraphDocument, document, "far"), SINGLE_DEVICE)
    tensors = dict(module.named_parameters()) | dict(module.named_buffers()) | {"input": image}
    arrays = {entry.id: tensors[entry.name].detach().numpy().copy() for entry in graph.inputs}
    values = run_whole(graph, arrays, np, precision="declared")
    wanted = training.nn.functional.batch_norm(image.double(), None, None, training=True)
    np.testing.assert_allclose(values[graph.outputs[0]], wanted.numpy(), atol=2e-3)


@pytest.mark.parametrize("train", [None, "sgd"])
def test_statistics_of_half_precision_are_f32(train: str | None) -> None:
    def forward(self: Any, x: Any) -> Any:
        return self.norm(x).float().square().mean()

    module = training.Calls(forward, norm=torch.nn.BatchNorm2d(3).bfloat16())
    document = build_module_document(module, (torch.zeros(2, 3, 4, 4, dtype=torch.bfloat16),), {}, train=train)
    load_graph(training.validate_document(training.GraphDocument, document, "half"), SINGLE_DEVICE)
    made = {node["op"]: node["outputs"][0]["dtype"] for node in document["nodes"] if "batch_norm" in node["op"]}
    assert made.pop("batch_norm") == "bf16"
    assert made.pop("batch_norm_backward", "bf16") == "bf16"
    assert set(made.values()) == {"f32"}


def test_a_forward_pass_that_writes_to_its_input_is_refused() -> None:
    with pytest.raises(InvalidGraph, match=r"writes to its inputs"):
        build_module_document(training.Calls(lambda self, x: x.add_(1)), (torch.zeros(2),), {})
