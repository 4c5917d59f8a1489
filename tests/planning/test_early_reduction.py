"""A reshard that frees memory is done right after the value's op, so that gradients are reduced and scattered early."""

from __future__ import annotations

from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument, validate_document
from planner.frontends.zoo import import_zoo
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.ir.program import OpCall, Program, Reshard
from planner.pipeline import plan, validate_plan
from planner.planning.plan_types import Request

MESH = Mesh.parse("dp=16")


def test_gradients_of_fully_sharded_layers_are_not_held_whole_until_the_optimizer_reads_them() -> None:
    """The least memory is below parameters, optimizer state and one device's partial gradients together."""
    graph = _step()
    asked = Request(layout="fsdp", objective="memory")
    found = plan(graph, MESH, load_profile("h100-sxm"), request=asked)
    assert found.analysis is not None
    sizes = {entry.id: entry.type.bytes for entry in graph.inputs}
    gradients = sum(sizes[entry.id] for entry in graph.inputs if entry.kind == "parameter")
    assert found.analysis.peak_bytes < sum(sizes.values()) / MESH.devices + gradients
    assert _distances_to_reduction(found.analysis.program) == {1}
    verdict = validate_plan(found, shrinking="none").verdict
    assert verdict is not None
    assert verdict.verdict == "equal"
    assert verdict.counted_peak_bytes == verdict.predicted_peak_bytes == found.analysis.peak_bytes


def _step() -> Graph:
    document = import_zoo("gpt2", batch=16, seq=4, train="adam", layers=4, width=64, heads=4, vocabulary=8)
    return load_graph(validate_document(GraphDocument, document, "gpt2"), MESH)


def _distances_to_reduction(program: Program) -> set[int]:
    """Return how many instructions after their products the gradients of weight matrices are reduced."""
    made = {
        value: place
        for place, done in enumerate(program.instructions)
        if isinstance(done, OpCall) and done.op.phase == "backward"
        for value in done.results
    }
    moved = {
        done.operand: place
        for place, done in reversed(list(enumerate(program.instructions)))
        if isinstance(done, Reshard) and done.operand in made
    }
    gradients = [done.inputs[1] for done in program.graph.ops if done.op == "adam"]
    read = [value for value in gradients if len(program.graph.types[value].shape) == 2]
    return {moved[value] - made[value] for value in read if value in moved}
