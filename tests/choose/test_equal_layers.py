"""Equal layers share the matrices of their edges: a deeper model has more edges, but not more numbers."""

from __future__ import annotations

from planner.choose.cost import CostModel
from planner.choose.formulate import formulate
from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.frontends.zoo import import_zoo
from planner.ir.mesh import Mesh
from solvers import Problem

MESH = Mesh.parse("2x4")


def problem(layers: int) -> Problem:
    written = import_zoo(
        "llama-7b", batch=8, seq=64, train="adam", layers=layers, width=64, heads=8, feed_forward=128, vocabulary=64
    )
    hardware = load_profile("h100-sxm")
    graph = load_graph(GraphDocument.model_validate(written), MESH)
    return formulate(graph, CostModel(MESH, hardware), hardware.memory_bytes).problem


def test_a_deeper_model_has_no_more_different_matrices() -> None:
    three, six = problem(3).arrays, problem(6).arrays
    assert six.source.size > 1.7 * three.source.size
    assert six.pair_cost.size == three.pair_cost.size
    assert six.pair_usage.size == three.pair_usage.size
