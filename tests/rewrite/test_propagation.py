"""Annotated graphs, completed and materialised, compute what the whole graph computes, on every device."""

from __future__ import annotations

import sys
from types import FrameType

import numpy as np
import pytest

from planner.errors import InvalidSharding
from planner.ir.graph import Annotation, Graph
from planner.ir.mesh import Mesh
from planner.ir.sharding import Sharding
from planner.reshard.documented_path import make_documented_path
from planner.rewrite.materialize import materialize_completed
from planner.rewrite.propagation.propagate import propagate
from planner.run.executor import run_program, run_whole
from tests.testing.graphs import Sketch
from tests.testing.layout_oracle import agree, unshard_array
from tests.testing.random_annotated_graphs import annotated_graph
from tests.testing.seeds import seeds

MESHES = ["2", "3", "2x2", "3x2", "2x2x2", "4"]


@pytest.mark.parametrize("text", MESHES)
def test_a_completed_program_equals_the_whole_graph(text: str) -> None:
    mesh = Mesh.parse(text)
    ran, tried = 0, seeds(60)
    for seed in tried:
        graph = annotated_graph(seed, mesh, partials=True, sizes=(2, 3, 8))
        try:
            completed = propagate(graph, mesh)
        except InvalidSharding:
            continue
        _check(graph, mesh, completed)
        ran += 1
    assert ran > len(tried) / 2


def _check(graph: Graph, mesh: Mesh, completed: object) -> None:
    program = materialize_completed(graph, mesh, completed, route=make_documented_path(graph, mesh))  # type: ignore[arg-type]
    random = np.random.default_rng(0)
    arrays = {i.id: random.standard_normal(i.type.shape) for i in graph.inputs}
    whole = run_whole(graph, arrays, np, precision="f64")
    run = run_program(program, arrays, np, precision="f64")
    for number, (value, name) in enumerate(zip(graph.outputs, program.outputs, strict=True)):
        held = program.values[name]
        shards = [outputs[number] for outputs in run.outputs]
        assert agree(unshard_array(shards, held.sharding, held.type.shape, mesh), whole[value], 1e-8), (graph, number)


def test_propagation_and_partition_are_linear_in_the_ops() -> None:
    """Counted in calls of Python functions, which are the same on every machine."""
    calls = [_calls(ops) for ops in (250, 500, 1_000)]
    assert calls[2] - calls[1] < 2.2 * (calls[1] - calls[0])


def _calls(ops: int) -> int:
    sketch = Sketch()
    value, weight = sketch.input(8, 8), sketch.input(8, 8)
    for place in range(ops):
        value = sketch.op("matmul", [value, weight], (8, 8)) if place % 3 else sketch.op("add", [value, value], (8, 8))
    graph = sketch.graph(value, annotations=(Annotation("i0", Sharding(((0,), (1,)))),))
    mesh, counted = Mesh.parse("2x2"), 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal counted
        counted += event == "call"

    sys.setprofile(count)
    try:
        materialize_completed(graph, mesh, propagate(graph, mesh), route=make_documented_path(graph, mesh))
    finally:
        sys.setprofile(None)
    return counted
