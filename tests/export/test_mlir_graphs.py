"""Graphs as MLIR text: reading them back gives the same graph, and mlir-opt accepts them."""

from __future__ import annotations

from math import inf
from random import Random

import pytest

from planner.errors import InvalidSharding
from planner.export.mlir import Dialect, print_graph
from planner.frontends.mlir import read_mlir
from planner.ir.graph import Annotation, Graph, Input, TensorType
from planner.ir.mesh import Mesh, MeshAxis
from planner.ir.sharding import Sharding
from tests.testing.dialect_graphs import Growing, described, product, random_graph, transpose
from tests.testing.mlir_opt import PROPAGATION, accepted, upstream
from tests.testing.seeds import seeds

SEEDS = seeds(200)
X = TensorType((8, 16), "f32")


def one_value(*shardings: Sharding) -> Graph:
    asked = tuple(Annotation("x", sharding) for sharding in shardings)
    return Graph("main", (Input("x", "input", "x", X),), (), ("x",), asked)


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_graph_read_back_is_the_graph_written(seed: int, dialect: Dialect) -> None:
    graph, mesh = random_graph(seed, dialect)
    read, its_mesh = read_mlir(print_graph(graph, mesh, dialect))
    assert described(read) == described(graph)
    assert its_mesh == mesh


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("argument_starts", [False, True])
def test_upstream_accepts_every_graph(dialect: Dialect, argument_starts: bool) -> None:
    texts = []
    for seed in SEEDS:
        graph, mesh = random_graph(seed, dialect)
        texts.append(print_graph(graph, mesh, dialect, argument_starts=argument_starts))
    accepted(dialect, texts)


@pytest.mark.parametrize("seed", seeds(40))
def test_tensors_written_to_may_be_arguments_that_the_reader_leaves_out(seed: int) -> None:
    graph, mesh = random_graph(seed)
    read, _ = read_mlir(print_graph(graph, mesh, argument_starts=True))
    assert described(read) == described(graph)


def test_a_mesh_keeps_unknown_sizes_links_and_device() -> None:
    mesh = Mesh((MeshAxis("dp", None, "infiniband"), MeshAxis("tp", 4)), "h100-sxm")
    for dialect in Dialect:
        text = print_graph(one_value(Sharding(((1,), ()))), mesh, dialect)
        assert read_mlir(text)[1] == mesh
        accepted(dialect, [text])


def test_each_dialect_refuses_what_it_cannot_express() -> None:
    mesh = Mesh.parse("2x4")
    with pytest.raises(InvalidSharding, match=r"annotation of 'x': mlir-opt 22 has no partial tensors"):
        print_graph(one_value(Sharding(((), ()), (1,))), mesh, Dialect.SHARD)
    for cut in (Sharding(((0,), ()), halo_sizes=(1, 2)), Sharding(((0,), ()), sharded_dims_offsets=((0, 3, 8),))):
        with pytest.raises(InvalidSharding, match=r"annotation of 'x': mlir-opt 19 has no halos"):
            print_graph(one_value(cut), mesh, Dialect.MESH)


def test_a_hint_and_a_required_sharding_of_one_value_are_both_kept() -> None:  # conformance 37
    mesh = Mesh.parse("2x4")
    required, hint = Annotation("x", Sharding(((0,), ()))), Annotation("x", Sharding(((1,), ())), required=False)
    graph = Graph("main", (Input("x", "input", "x", X),), (), ("x",), (hint, required))
    assert read_mlir(print_graph(graph, mesh))[0].annotations == (hint, required)


@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16", "f16", "f8e4m3", "f8e5m2", "i64", "i8", "u32", "u8", "bool"])
def test_constants_keep_their_value(dtype: str) -> None:
    graph = Growing(Random(0))
    for value in (0, 1, 5, 300, 0.25, -2, 1e-05, inf, -inf):
        graph.op("full", [], TensorType((4,), dtype), value=value)
    whole = Graph("main", (), tuple(graph.ops), tuple(op.id for op in graph.ops))
    for dialect in Dialect:
        text = print_graph(whole, Mesh.parse("2"), dialect)
        assert described(read_mlir(text)[0]) == described(whole)
        accepted(dialect, [text])


@pytest.mark.parametrize("dialect", Dialect)
def test_what_upstream_prints_and_propagates_is_read(dialect: Dialect) -> None:
    """Its names are its own; ops, types and, without propagation, annotations are ours."""
    for seed in seeds(20):
        graph, mesh = random_graph(seed, dialect)
        ours = read_mlir(print_graph(graph, mesh, dialect))[0]
        read = read_mlir(upstream(dialect, [print_graph(graph, mesh, dialect)]), graph.name)[0]
        assert [(op.op, op.results, op.rule) for op in read.ops] == [(op.op, op.results, op.rule) for op in ours.ops]
        assert sorted(str(a.sharding) for a in read.annotations) == sorted(str(a.sharding) for a in ours.annotations)


def test_upstream_propagates_what_is_printed_for_it_and_its_answer_is_read() -> None:
    """Tensors written to are arguments: mlir-opt 19 has no propagation for constants."""
    g = Growing(Random(0))
    g.input(TensorType((8, 16), "f32"))
    product(g, "x0", X)
    made = g.ops[0].id
    g.op("tanh", [made], g.types[made])
    transpose(g, g.ops[1].id, g.types[made])
    asked = (Annotation(g.ops[1].id, Sharding(((0,), (1,)))),)
    graph = Graph("main", tuple(g.inputs), tuple(g.ops), (g.ops[2].id,), asked)
    text = print_graph(graph, Mesh.parse("2x2"), argument_starts=True)
    read, _ = read_mlir(upstream(Dialect.MESH, [text], PROPAGATION))
    found = {(a.value, a.user): str(a.sharding) for a in read.annotations}
    x, w = (entry.id for entry in read.inputs)
    matmul, tanh, turned = (op.id for op in read.ops)
    assert (found[x, matmul], found[w, matmul]) == ("[[0],[]]", "[[],[1]]")
    assert found[matmul, None] == found[matmul, tanh] == found[tanh, None] == found[tanh, turned] == "[[0],[1]]"
