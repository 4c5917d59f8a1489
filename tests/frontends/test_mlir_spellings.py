"""Spellings of shardings on which the documents differ: each means the same wherever it stands."""

from __future__ import annotations

import re

import pytest

from planner.errors import InvalidDocument, InvalidGraph, ShardplanError
from planner.frontends.mlir import read_mlir, read_spmd
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


GENERIC_MODULE = """"builtin.module"() ({
  "shard.grid"() <{shape = array<i64: 2, -9223372036854775808>, sym_name = "m"}> : () -> ()
  "func.func"() <{function_type = (tensor<4xf32>) -> tensor<8xf32>, sym_name = "f"}> ({
  ^bb0(%arg0: tensor<4xf32>):
    %0 = "shard.all_gather"(%arg0) <{gather_axis = 0 : index, grid = @m, grid_axes = array<i16: 0>}>
      : (tensor<4xf32>) -> tensor<8xf32>
    "func.return"(%0) : (tensor<8xf32>) -> ()
  }) : () -> ()
}) : () -> ()
"""


def test_a_module_in_the_generic_form_is_read() -> None:
    program = read_spmd(GENERIC_MODULE)
    assert [axis.size for axis in program.meshes["m"].axes] == [2, None]
    assert [str(done).partition(" = ")[2] for done in program.instructions] == [
        "all_gather(%arg0) mesh_axes=[0] gather_axis=0 mesh=m : f32[8]"
    ]
    for wrong, words in (("sym_name", "sym_nome"), ("array<i64: 2, -9223372036854775808>", "[[]]"), ("^bb0", "bb0")):
        with pytest.raises(ShardplanError):
            read_spmd(GENERIC_MODULE.replace(wrong, words))


def test_a_remark_behind_a_type_is_no_part_of_it() -> None:
    text = "mesh.mesh @m(shape = 2) func.func @f() -> index { %0 = mesh.process_linear_index on @m : index // one\n"
    assert len(read_spmd(text + "return %0 : index // it\n}").outputs) == 1


def test_a_program_is_on_the_mesh_that_its_calls_name() -> None:
    text = """mesh.mesh @m(shape = 2) mesh.mesh @n(shape = 3)
    func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> {
      %0 = mesh.all_reduce %a on @n : tensor<4xf32> -> tensor<4xf32> return %0 : tensor<4xf32> }"""
    assert read_spmd(text).values["a"].mesh == "n"
    with pytest.raises(ShardplanError, match=r"undefined mesh \(got none; wanted @m, @n\)"):
        read_spmd(text.replace("return", "%1 = mesh.all_reduce %a on @m : tensor<4xf32> -> tensor<4xf32> return"))
