"""Graphs with dims of unknown size: propagated as upstream does, printed with `?`, refused where a size is needed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from planner.choose import hardware
from planner.errors import InvalidGraph, InvalidSharding
from planner.export.mlir import Dialect, print_graph
from planner.frontends.mlir import read_mlir
from planner.ir.dynamic_dims import DYNAMIC_DIM
from planner.ir.graph import Graph, Op, TensorType, check_sizes
from planner.ir.mesh import Mesh
from planner.ops import bind_op
from planner.pipeline import plan
from planner.rewrite.annotations import collect_notes
from planner.rewrite.propagation.propagate import propagate
from tests.testing.command_line import refused, shardplan
from tests.testing.dialect_graphs import described
from tests.testing.dialect_text import TOOLS, missing_tool, parse_upstream, print_graph_text, propagate_upstream
from tests.testing.mlir_opt import accepted
from tests.testing.random_annotated_graphs import annotated_graph
from tests.testing.seeds import at_least, seeds

MESHES = ["2", "2x2", "2x4", "2x2x2", "?x2"]
GRAPHS = seeds(200)
DYNAMIC = """mesh.mesh @m(shape = 2x4)
func.func @f(%a: tensor<?x4xf32>, %b: tensor<4x?xf32>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  %x = mesh.shard %a to <@m, [[0]]> : tensor<?x4xf32>
  %rows = tensor.dim %a, %c0 : tensor<?x4xf32>
  %columns = tensor.dim %b, %c1 : tensor<4x?xf32>
  %empty = tensor.empty(%rows, %columns) : tensor<?x?xf32>
  %start = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x?xf32>) -> tensor<?x?xf32>
  %p = linalg.matmul ins(%x, %b : tensor<?x4xf32>, tensor<4x?xf32>) outs(%start : tensor<?x?xf32>) -> tensor<?x?xf32>
  %y = tosa.tanh %p : (tensor<?x?xf32>) -> tensor<?x?xf32>
  return %y : tensor<?x?xf32>
}
"""


def unsized(graph: Graph, seed: int) -> Graph:
    """The graph with some dims of unknown size, value by value: a `?` may meet a number."""
    random = Random(seed)

    def forgotten(kind: TensorType) -> TensorType:
        return replace(kind, shape=tuple(DYNAMIC_DIM if random.random() < 0.5 else size for size in kind.shape))

    types = {value: forgotten(kind) for value, kind in graph.types.items()}

    def op(given: Op) -> Op:
        made = tuple(types[value] for value in given.values)
        rule = bind_op(
            given.op, tuple(types[value] for value in given.inputs), made, attrs=given.attrs, notation=given.notation
        )
        return replace(given, results=made, rule=rule)

    inputs = tuple(replace(entry, type=types[entry.id]) for entry in graph.inputs)
    return replace(graph, inputs=inputs, ops=tuple(map(op, graph.ops)))


def outcome(graph: Graph, mesh: Mesh) -> str:
    try:
        return str(propagate(graph, mesh))
    except InvalidSharding as error:
        return str(error)


def crashes(graph: Graph, mesh: Mesh) -> bool:
    """mlir-opt-19 does where all that is known of an op is that an operand is replicated."""
    try:
        return any(not any(option) for option in propagate(graph, mesh).options.values())
    except InvalidSharding:
        return True


@pytest.mark.parametrize("version", TOOLS)
def test_propagation_reads_no_sizes_like_upstream(version: int) -> None:
    """conformance 2, conformance 67: tests/rewrite/test_propagation_against_mlir_opt.py compares the two on sizes"""
    if missing_tool(version):
        pytest.skip(f"{TOOLS[version]} is not installed")
    texts: dict[str, list[str]] = {"sized": [], "unsized": []}
    for seed in GRAPHS:
        notation = MESHES[seed % len(MESHES)]
        mesh = Mesh.parse(notation)
        graph = annotated_graph(seed, mesh, partials=version == 19)
        dynamic = unsized(graph, seed)
        assert outcome(dynamic, mesh) == outcome(graph, mesh)
        if version == 19 and crashes(graph, mesh):
            continue
        for key, each in (("sized", graph), ("unsized", dynamic)):
            texts[key].append(print_graph_text(each, collect_notes(each, mesh), notation, version))
    assert "tensor<?x" in texts["unsized"][0]
    sized, dynamic_answers = (propagate_upstream(version, listed) for listed in texts.values())
    both = [pair for pair in zip(sized, dynamic_answers, strict=True) if None not in pair]
    assert len(both) > at_least(1 / 4, len(GRAPHS))
    assert [None if one is None else parse_upstream(one) for one, _ in both] == [
        None if other is None else parse_upstream(other) for _, other in both
    ]


@pytest.mark.parametrize("dialect", Dialect)
def test_unknown_dims_are_printed_and_read_back(dialect: Dialect) -> None:
    texts = []
    for seed in seeds(100):
        mesh = Mesh.parse(MESHES[seed % len(MESHES)])
        graph = unsized(annotated_graph(seed, mesh, partials=dialect is Dialect.MESH), seed)
        texts.append(print_graph(graph, mesh, dialect))
        assert described(read_mlir(texts[-1])[0]) == described(graph)
    accepted(dialect, texts)


def test_a_graph_as_mlir_writes_it_with_unknown_dims_is_read() -> None:
    graph, mesh = read_mlir(DYNAMIC)
    assert [str(op.results[0]) for op in graph.ops][-2:] == ["f32[?,?]"] * 2
    completed = propagate(graph, mesh)
    assert str(completed.definitions["y"]) == "[[0],[]]"
    accepted(Dialect.MESH, [DYNAMIC, print_graph(graph, mesh)])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("%1 = tosa.add %a, %w : (tensor<?x4xf32>, tensor<3x4xf32>) -> tensor<5x4xf32>", "wanted"),
        ("%1 = tosa.add %a, %w : (tensor<?x4xf32>, tensor<3x4xf32>) -> tensor<3x?xf32>", ""),
        ("%1 = arith.constant dense<0.0> : tensor<?x4xf32>", "type of a constant (got f32[?,4]; wanted sizes)"),
        (
            "%c = arith.constant 2 : index %1 = tensor.dim %a, %c : tensor<?x4xf32>",
            "dim out of range (got 2; wanted 0 to 1",
        ),
    ],
)
def test_unknown_dims_agree_with_numbers_and_with_nothing_else(text: str, words: str) -> None:
    whole = f"""mesh.mesh @m(shape = 2)
    func.func @f(%a: tensor<?x4xf32>, %w: tensor<3x4xf32>) {{ {text}
    return }}"""
    if not words:
        read_mlir(whole)
        return
    with pytest.raises(Exception, match="line 2 column") as caught:
        read_mlir(whole)
    assert words in str(caught.value)


def test_where_a_number_is_needed_the_value_is_named(tmp_path: Path) -> None:
    graph, mesh = read_mlir(DYNAMIC)
    wanted = r"value 'a': dim of unknown size \(got f32\[\?,4\]; wanted numbers\)"
    for needs in (check_sizes, lambda each: plan(each, mesh, hardware.load_profile(hardware.DEFAULT_PROFILE))):
        with pytest.raises(InvalidGraph, match=wanted):
            needs(graph)
    path = tmp_path / "dynamic.mlir"
    path.write_text(DYNAMIC)
    assert "tensor<?x?xf32>" in shardplan("propagate", path, "--format", "mesh").out
    refused(shardplan("partition", path), "value 'a': dim of unknown size")
    with pytest.raises(InvalidGraph, match="the size of a dim is unknown"):
        _ = graph.types["a"].bytes
