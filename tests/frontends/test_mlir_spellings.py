"""Spellings of shardings on which the documents differ: each means the same wherever it stands."""

from __future__ import annotations

import re

import pytest

from planner.errors import InvalidDocument, InvalidGraph
from planner.frontends.mlir import read_mlir
from planner.ir.sharding import Sharding
from planner.rewrite.propagation.propagate import propagate


@pytest.mark.parametrize("named", ["", "@m, "])
def test_a_type_lists_partial_axes_last_whether_or_not_it_names_the_mesh(named: str) -> None:
    # conformance 26, conformance 39
    text = """mesh.cluster @m(rank = 2, dim_sizes = [2, 2])
    func.func @f(%x: tensor<8x8xf32>, %w: tensor<8x4xf32>) -> tensor<8x4xf32> attributes {mesh_cluster = @m} {
      %0 = "mhlo.dot_general"(%x, %w) {dot_dimension_numbers = #mhlo.dot<lhs_contracting_dimensions = [1],
        rhs_contracting_dimensions = [0]>} : (tensor<8x8xf32>, tensor<8x4xf32>)
        -> tensor<8x4xf32, #mesh.shard<NAMED[[1], [], [0]]>>
      return %0 : tensor<8x4xf32>
    }"""
    graph, mesh = read_mlir(text.replace("NAMED", named))
    assert [(a.value, a.user, a.sharding) for a in graph.annotations] == [("0", None, Sharding(((1,), ()), (0,)))]
    assert propagate(graph, mesh).definition("0") == Sharding(((1,), ()), (0,))


T = "tensor<8x4xf32>"
# the annotation of %x on the mesh of 2x2, its sharding
SPELLINGS = [
    ("%a = mesh.shard %x to <@m, []> : T", Sharding(((), ()))),
    ("%s = mesh.sharding @m split_axes = [] : !mesh.sharding %a = mesh.shard %x to %s : T", Sharding(((), ()))),
    ("%a = mesh.annotate %x {sharding = #mesh.shard<@m, []>} : T -> T", Sharding(((), ()))),
    ("%s = mesh.sharding @m split_axes = [[0]] %a = mesh.shard %x to %s : T", Sharding(((0,), ()))),
    ("%a = mesh.annotate %x {sharding = #rows} : T -> T", Sharding(((0,), ()))),
]


def function(body: str, argument: str = "%x: T") -> str:
    return f"""#rows = #mesh.shard<@m, [[0]]>
    mesh.mesh @m(shape = 2x2)
    func.func @f({argument}) -> T {{ {body} %r = tosa.abs %x : (T) -> T return %r : T }}""".replace("T", T)


@pytest.mark.parametrize(("body", "wanted"), SPELLINGS)
def test_replicated_and_short_spellings_are_read(body: str, wanted: Sharding) -> None:  # conformance 23
    graph, _ = read_mlir(function(body))
    assert [annotation.sharding for annotation in graph.annotations] == [wanted]


def test_the_encoding_of_a_type_may_be_an_alias() -> None:  # conformance 39
    graph, _ = read_mlir(function("", "%x: tensor<8x4xf32, #rows>"))
    assert [(a.value, a.sharding) for a in graph.annotations] == [("x", Sharding(((0,), ())))]


REFUSED = [
    (
        "%x: tensor<*xf32>",
        InvalidGraph,
        "line 3 column 22: unranked tensor (got tensor<*x...>; wanted a tensor of known",
    ),
    (
        "%x: T, %h: i64",
        InvalidGraph,
        "argument that is no tensor (got %h: i64; wanted tensors; halo sizes and offsets must be constants)",
    ),
    (
        "%x: tensor<8x4xf32, #columns>",
        InvalidDocument,
        "encoding (got #columns; wanted the alias of a #mesh.shard<...>)",
    ),
]


@pytest.mark.parametrize(("argument", "error", "words"), REFUSED)
def test_what_no_graph_can_have_is_refused_by_name(argument: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=re.escape(words)):
        read_mlir(function("", argument))
