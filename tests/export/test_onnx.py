"""Shardings on the nodes of an ONNX model: a reader without our code finds the program's blocks in them.

The reader follows the format's specification: of the dims that a spec lists, the first is the major one; a dim that is
listed in several parts is reshaped into them; a shard belongs to the device at its number, or to all devices of its
group.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="onnx is not installed: pip install shardplan[onnx]")

import onnx

from planner import pipeline
from planner.choose.cost import CostModel
from planner.choose.formulate import Formulation, formulate
from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument, validate_document
from planner.errors import InvalidRequest, InvalidSharding
from planner.frontends.onnx import build_graph_document
from planner.ir.mesh import Mesh
from planner.ir.program import OpCall, Program
from planner.ir.sharding import Sharding, shard_bounds
from planner.onnx import annotated_model
from tests.testing.command_line import refused, shardplan
from tests.testing.onnx_files import layer, model, node, numbers, without_field
from tests.testing.random_strategies import random_strategies

pytestmark = pytest.mark.frameworks("onnx")

SEEDS = 12


def mlp() -> Any:
    """Two products, with a residual and a softmax."""
    nodes = [
        node("MatMul", "x w", "h"),
        node("Gelu", "h", "g"),
        node("MatMul", "g v", "y"),
        node("Add", "x y", "z"),
        node("Softmax", "z", "out", axis=-1),
    ]
    weights = {"w": np.ones((8, 16), "f4"), "v": np.ones((16, 8), "f4")}
    return model(nodes, {"x": [4, 8]}, ["out"], weights)


def merged() -> Any:
    """A product whose rows are two dims merged, either of which may be split."""
    nodes = [
        node("Relu", "x", "a"),
        node("Reshape", "a flat", "rows"),
        node("Gemm", "rows w b", "y"),
        node("Reshape", "y apart", "z"),
        node("Tanh", "z", "out"),
    ]
    weights = {"flat": numbers(-1, 8), "apart": numbers(4, 8, 4), "w": np.ones((8, 4), "f4"), "b": np.ones(4, "f4")}
    return model(nodes, {"x": [4, 8, 8]}, ["out"], weights)


# model, mesh; what each node reads and leaves: node's first result -> names in the model, by value of the graph
CASES: list[tuple[Callable[[], Any], str, dict[str, dict[str, str]]]] = [
    (
        mlp,
        "2x2",
        {
            "h": {"x": "x", "w": "w", "h": "h"},
            "g": {"h": "h", "g": "g"},
            "y": {"g": "g", "v": "v", "y": "y"},
            "z": {"x": "x", "y": "y", "z": "z"},
            "out": {"z": "z", "out": "out"},
        },
    ),
    (
        merged,
        "dp=2,tp=2",
        {
            "a": {"x": "x", "a": "a"},
            "rows": {"a": "a", "rows": "a"},
            "y": {"rows": "a", "w": "w", "b": "b", "y": "y"},
            "z": {"y": "y", "z": "y"},
            "out": {"z": "y", "out": "out"},
        },
    ),
]


def question_of(made: Any, mesh: str) -> Formulation:
    document = validate_document(GraphDocument, build_graph_document(made, "model"), "model")
    devices = Mesh.parse(mesh)
    return formulate(load_graph(document, devices), CostModel(devices, load_profile("h100-sxm")))


def programs(made: Any, mesh: str) -> Iterator[Program]:
    question = question_of(made, mesh)
    for seed in range(SEEDS):
        chosen = random_strategies(question, np.random.default_rng(seed))
        yield pipeline.write_program(question, question.decode(chosen))


def written(made: Any, folder: Path) -> Path:
    onnx.save(onnx.shape_inference.infer_shapes(made), folder / "model.onnx")
    return folder / "model.onnx"


def shapes_of(graph: Any) -> dict[str, tuple[int, ...]]:
    typed = [*graph.input, *graph.value_info, *graph.output]
    shapes = {each.name: tuple(dim.dim_value for dim in each.type.tensor_type.shape.dim) for each in typed}
    return shapes | {each.name: tuple(each.dims) for each in graph.initializer}


def blocks(spec: Any, shape: tuple[int, ...]) -> dict[int, set[int]]:
    """By device, the elements that it has, by their number in the whole tensor."""
    parts = [[(size, 1)] for size in shape]
    for dim in spec.sharded_dim:
        parts[dim.axis] = [(part.dim_value, part.num_shards) for part in dim.simple_sharding]
    whole = np.arange(math.prod(shape)).reshape([size for dim in parts for size, _ in dim])
    counts = [count for dim in parts for _, count in dim]
    groups = {entry.key: list(entry.value) for entry in spec.index_to_device_group_map}
    found: dict[int, set[int]] = {}
    for device, place in zip(spec.device, itertools.product(*map(range, counts)), strict=True):
        widths = [size // count for size, count in zip(whole.shape, counts, strict=True)]
        part = whole[tuple(slice(k * width, (k + 1) * width) for k, width in zip(place, widths, strict=True))]
        found |= {each: set(part.ravel().tolist()) for each in groups.get(device, [device])}
    return found


def held(sharding: Sharding, shape: tuple[int, ...], mesh: Mesh) -> dict[int, set[int]]:
    whole = np.arange(math.prod(shape)).reshape(shape)
    boxes = shard_bounds(sharding, shape, mesh).tolist()
    return {
        device: set(whole[tuple(slice(low, high) for low, high in box)].ravel().tolist())
        for device, box in enumerate(boxes)
    }


def left(program: Program, value: str) -> Sharding:
    """As its first reader finds a value that its maker leaves in terms."""
    for done in program.instructions:
        if program.values[value].sharding.partial and value in done.operands:
            (value,) = done.results
    return program.values[value].sharding


def read(program: Program, op: str, value: str) -> Sharding:
    """As the op reads a value; as it is left where there is no such op."""
    for done in program.instructions:
        if isinstance(done, OpCall) and done.op.id == op and value in done.op.inputs:
            return program.values[done.operands[done.op.inputs.index(value)]].sharding
    return left(program, value)


def reads_of(program: Program) -> Iterator[str]:
    return (name for done in program.instructions if isinstance(done, OpCall) for name in done.operands)


@pytest.mark.parametrize("number", range(len(CASES)))
def test_the_specs_are_the_programs_blocks(number: int, tmp_path: Path) -> None:
    build, mesh, nodes = CASES[number]
    made, right = written(build(), tmp_path), 0
    shapes = shapes_of(onnx.load(made).graph)
    for program in programs(build(), mesh):
        if any(program.values[name].sharding.partial for name in reads_of(program)):
            with pytest.raises(InvalidSharding, match="terms of a sum cannot be expressed in ONNX"):
                annotated_model(program, made, tmp_path)
            continue
        annotated = onnx.load_model_from_string(annotated_model(program, made, tmp_path))
        onnx.checker.check_model(annotated, full_check=True)
        (configuration,) = annotated.configuration
        assert (configuration.num_devices, len(configuration.device)) == (4, 4)
        for each in annotated.graph.node:
            (told,) = each.device_configurations
            assert told.configuration_id == configuration.name == program.mesh.notation
            values = nodes[each.output[0]]
            assert [spec.tensor_name for spec in told.sharding_spec] == [*values]
            for spec in told.sharding_spec:
                name, value = spec.tensor_name, values[spec.tensor_name]
                wanted = left(program, value) if name in each.output else read(program, each.output[0], value)
                kind = program.graph.types[value].shape
                assert blocks(spec, shapes[name]) == held(wanted, kind, program.mesh), (each.name, name)
        right += 1
    assert right >= 3


def pinned(made: Any, mesh: str, value: str, sharding: dict[str, Any]) -> Program:
    document = {**build_graph_document(made, "model"), "annotations": [{"value": value, "sharding": sharding}]}
    devices = Mesh.parse(mesh)
    found = pipeline.plan(
        load_graph(validate_document(GraphDocument, document, "model"), devices), devices, load_profile("h100-sxm")
    )
    assert found.analysis is not None
    return found.analysis.program


def test_uneven_shards_are_refused(tmp_path: Path) -> None:
    program = pinned(mlp(), "3x1", "out", {"split_axes": [["0"], []]})
    with pytest.raises(InvalidSharding, match=r"dim 0 is split unevenly \(got 4 over 3 devices"):
        annotated_model(program, written(mlp(), tmp_path), tmp_path)


def test_another_model_is_refused(tmp_path: Path) -> None:
    program = pinned(mlp(), "2x2", "out", {"split_axes": [["0"], []]})
    other = mlp()
    other.graph.node[1].op_type = "Relu"
    with pytest.raises(InvalidRequest, match=r"not the one that was planned \(got nodes: g; wanted those of the plan"):
        annotated_model(program, written(other, tmp_path), tmp_path)


def test_a_model_stays_beside_its_external_data(tmp_path: Path) -> None:
    made = without_field(mlp(), "w")
    program = pinned(made, "2x2", "out", {"split_axes": [["0"], []]})
    file = written(made, tmp_path)
    assert annotated_model(program, file, tmp_path)
    with pytest.raises(InvalidRequest, match="beside the model's external data"):
        annotated_model(program, file, tmp_path / "elsewhere")


def test_the_command_line_annotates_a_model_with_symbolic_dims(tmp_path: Path) -> None:
    file, graph, plan, out = (
        written(layer("n"), tmp_path),
        *(tmp_path / name for name in ("g.json", "p.json", "o.onnx")),
    )
    assert shardplan("import", "onnx", file, "--dim", "n=4", "-o", graph).code == 0
    assert shardplan("plan", graph, "--mesh", "dp=2,tp=2", "-o", plan).code == 0
    assert shardplan("export", plan, "--format", "onnx", "--model", file, "-o", out).code == 0
    annotated = onnx.load(out)
    onnx.checker.check_model(annotated)
    assert annotated.configuration[0].name == "dp=2,tp=2"
    assert annotated.ir_version == 11
    refused(shardplan("export", plan, "--format", "onnx", "--model", out, "-o", out), "has this configuration already")
    refused(shardplan("export", plan, "--format", "onnx", "-o", out), "got no --model")
    refused(shardplan("export", plan, "--format", "onnx", "--model", file), "got no --output")
    refused(shardplan("export", plan, "--format", "mesh", "--model", file), "wanted --format onnx, not mesh")
