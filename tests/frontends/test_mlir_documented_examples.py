"""The documents' examples, read as graphs from the text as it is printed there."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.frontends.mlir import read_mlir
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.ir.sharding import Reduction, Sharding
from planner.rewrite.propagation.propagate import propagate

MESHES = [  # conformance 1, conformance 2
    ("mesh.mesh @m(shape = 4x8x12)", (4, 8, 12)),
    ("mesh.mesh @m(shape = 4x?)", (4, None)),
    ("shard.grid @m(shape = ?x4)", (None, 4)),
    ("mesh.mesh @m(shape = ?x?)", (None, None)),
    ("mesh.cluster @m(rank = 2, dim_sizes = [4, 8])", (4, 8)),
    ("mesh.cluster @m(rank = 2, dim_sizes = [4])", (4, None)),
    ("mesh.cluster @m(rank = 2, dim_sizes = [0, 4])", (None, 4)),
    ("mesh.cluster @m(rank = 3, dim_sizes = [0, 4])", (None, 4, None)),
    ("mesh.cluster @m(rank = 2)", (None, None)),
    ("mesh.cluster @m(rank = 3, dim_sizes = 4x?x2)", (4, None, 2)),
    ("mesh.cluster @m(shape = 2x3)", (2, 3)),
]
T = "tensor<4x8xf32>"
FIRST, SECOND, WHOLE = Sharding(((0,), ())), Sharding(((1,), ())), Sharding(((), ()))
# conformance 17, conformance 18, conformance 19, conformance 22, conformance 23,
# conformance 24, conformance 26, conformance 27, conformance 29
SPELLINGS = [
    ("%1 = mesh.shard %a to <@m, [[0]]> : T", FIRST),
    ("%1 = mesh.shard %a to <@m, [[]]> : T", WHOLE),
    ("%1 = mesh.shard %a to <@m, [[2, 0], []], partial = max[1]> : T", Sharding(((2, 0), ()), (1,), Reduction.MAX)),
    ("%1 = mesh.shard %a to <@m, [[0]], partial = sum[1, 2]> : T", Sharding(((0,), ()), (1, 2))),
    ("%1 = mesh.annotate %a {sharding = [[0], [], [1]]} : T -> T", Sharding(((0,), ()), (1,))),
    ("%1 = mesh.annotate %a {sharding = #mesh.shard<@m, [[0], [1]]>} : T -> T", Sharding(((0,), (1,)))),
    ("%1 = mesh.annotate %a {sharding = #mesh.shard<[[1], [], [0]]>} : T -> T", Sharding(((1,), ()), (0,))),
    ("%1 = mesh.annotate %a {sharding = #mesh.shard<@m, [[1], [], [0]]>} : T -> T", Sharding(((1,), ()), (0,))),
    (
        "%s = mesh.sharding @m split_axes = [[0]] partial = min [1] : !mesh.sharding %1 = mesh.shard %a to %s : T",
        Sharding(((0,), ()), (1,), Reduction.MIN),
    ),
    (
        "%s = shard.sharding @m split_axes = [[], [0]] halo_sizes = [1, 2] : !shard.sharding"
        " %1 = shard.shard %a to %s : T",
        Sharding(((), (0,)), halo_sizes=(1, 2)),
    ),
    (
        "%c = arith.constant 1 : i64 %s = shard.sharding @m split_axes = [[], [0]] halo_sizes = [%c, 2]"
        " : !shard.sharding %1 = shard.shard %a to %s : T",
        Sharding(((), (0,)), halo_sizes=(1, 2)),
    ),
    (
        "%s = shard.sharding @m split_axes = [[], [2]] sharded_dims_offsets = [0, 2, 3, 5, 8]"
        " : !shard.sharding %1 = shard.shard %a to %s : T",
        Sharding(((), (2,)), sharded_dims_offsets=((0, 2, 3, 5, 8),)),
    ),
]
USAGES = [  # conformance 35: the four valid examples
    ("%0 = mesh.shard %a to <@m, [[0]]> : T", "%0", "%0", {("a", None): FIRST}),
    ("%0 = mesh.shard %a to <@m, [[0]]> annotate_for_users : T", "%0", "%a", {("a", "op0"): FIRST}),
    (
        "%0 = mesh.shard %a to <@m, [[0]]> annotate_for_users : T"
        " %1 = mesh.shard %a to <@m, [[1]]> annotate_for_users : T",
        "%0",
        "%1",
        {("a", "op0"): FIRST, ("a", "op1"): SECOND},
    ),
    (
        "%0 = mesh.shard %a to <@m, [[0]]> : T"
        " %1 = mesh.shard %0 to <@m, [[1]]> annotate_for_users : T"
        " %2 = mesh.shard %0 to <@m, [[]]> annotate_for_users : T",
        "%1",
        "%2",
        {("a", None): FIRST, ("a", "op0"): SECOND, ("a", "op1"): WHOLE},
    ),
]
DOT = """{dot_dimension_numbers = #mhlo.dot<lhs_contracting_dimensions = [2],
                                          rhs_contracting_dimensions = [0]>,
          precision_config = [#mhlo<precision DEFAULT>, #mhlo<precision DEFAULT>]OPTION}"""
MLP = """
// One layer after the other, the weights stay where they are.
mesh.cluster @mesh0(rank = 1, dim_sizes = [2])

func.func @mlp(%arg0: tensor<2x4x8xf32>, %arg1: tensor<8x32xf32>, %arg2: tensor<32x8xf32>)
    -> tensor<2x4x8xf32> attributes { mesh_cluster = @mesh0 } {
  %0 = mesh.annotate %arg0 {required = true, sharding = [[], [], [0]]} : tensor<2x4x8xf32> -> tensor<2x4x8xf32>
  %1 = "mhlo.dot_general"(%0, %arg1) DOT : (tensor<2x4x8xf32>, tensor<8x32xf32>) -> tensor<2x4x32xf32>
  %2 = mhlo.constant dense<0.000000e+00> : tensor<2x4x32xf32>
  %3 = mhlo.maximum %1, %2 : tensor<2x4x32xf32>
  %4 = "mhlo.dot_general"(%3, %arg2) SECOND : (tensor<2x4x32xf32>, tensor<32x8xf32>) -> tensor<2x4x8xf32>
  ANNOTATED
  %6 = mesh.annotate %5 {as_result = false, required = true, sharding = [[], [], [0]]}
      : tensor<2x4x8xf32> -> tensor<2x4x8xf32>
  return %6 : tensor<2x4x8xf32>
}
"""
BY_VALUE = (
    "%5 = mesh.annotate %4 {required = true, sharding = [[], [], [], [0]]} : tensor<2x4x8xf32> -> tensor<2x4x8xf32>"
)


def read(body: str, mesh: str = "mesh.mesh @m(shape = 2x2x4)", returned: str = "%1") -> Graph:
    text = f"{mesh}\nfunc.func @f(%a: T, %b: T) -> T {{\n{body}\nreturn {returned} : T\n}}"
    return read_mlir(text.replace("T", T))[0]


def asked(graph: Graph) -> dict[tuple[str, str | None], Sharding]:
    return {(a.value, a.user): a.sharding for a in graph.annotations}


@pytest.mark.parametrize(("declared", "sizes"), MESHES)
def test_a_mesh_is_read_in_every_spelling(declared: str, sizes: tuple[int | None, ...]) -> None:
    _, mesh = read_mlir(f"{declared} func.func @f(%a: {T}) -> {T} {{ return %a : {T} }}")
    assert tuple(axis.size for axis in mesh.axes) == sizes


@pytest.mark.parametrize(("body", "wanted"), SPELLINGS)
def test_a_sharding_is_read_in_every_spelling(body: str, wanted: Sharding) -> None:

    graph = read_mlir(
        f"mesh.mesh @m(shape = 2x2x4) func.func @f(%a: {T}) -> {T} attributes {{mesh_cluster = @m}} {{\n"
        + body.replace(": T", f": {T}").replace("-> T", f"-> {T}")
        + f"\nreturn %1 : {T} }}"
    )[0]
    assert asked(graph) == {("a", None): wanted}


@pytest.mark.parametrize(("body", "first", "second", "wanted"), USAGES)
def test_the_documents_valid_usages_name_the_users_of_a_sharding(
    body: str, first: str, second: str, wanted: dict[tuple[str, str | None], Sharding]
) -> None:
    text = (
        f"mesh.mesh @m(shape = 2x2x4) func.func @f(%a: T) -> () {{ {body}\n"
        f'"op0"({first}) : (T) -> ()\n"op1"({second}) : (T) -> ()\nreturn }}'
    )
    assert asked(read_mlir(text.replace("T", T))[0]) == wanted


def test_the_rfc_annotates_a_result_and_two_operands() -> None:  # conformance 38
    text = """mesh.cluster @mesh0(rank = 2, dim_sizes = [2, 2])
    func.func @f(%a: T) -> (T, T) attributes {mesh_cluster = @mesh0} {
      %0 = "op0"(%a) : (T) -> T
      %1 = mesh.annotate %0 {sharding = [[0], [1]], required = true, as_result = true} : T -> T
      %2 = mesh.annotate %1 {sharding = [[0]], required = true, as_result = false} : T -> T
      %3 = mesh.annotate %1 {sharding = [[1]], required = true, as_result = false} : T -> T
      %4 = "op1"(%2) : (T) -> T
      %5 = "op2"(%3) : (T) -> T
      return %4, %5 : T, T
    }"""
    graph = read_mlir(text.replace("T", T))[0]
    assert asked(graph) == {("0", None): Sharding(((0,), (1,))), ("0", "4"): FIRST, ("0", "5"): SECOND}


def test_a_hint_is_not_required() -> None:  # conformance 37
    graph = read("%1 = mesh.annotate %a {sharding = #mesh.shard<@m, [[0]]>, required = false} : T -> T")
    assert [a.required for a in graph.annotations] == [False]


def test_the_functions_mesh_is_the_default() -> None:  # conformance 5, conformance 39
    text = """
    mesh.cluster @other(rank = 1, dim_sizes = [2])
    mesh.cluster @mesh0(rank = 3, dim_sizes = [4, 8, 12])
    func.func @distributed_tensor(%arg0 : tensor<24x8xf32, #mesh.shard<[[1]]>>,
        %arg1 : tensor<24x8xf32, #mesh.shard<[[1]]>>)
                    -> tensor<24x8xf32, #mesh.shard<[[1]]>> attributes { mesh_cluster = @mesh0 } {
        %2 = mhlo.add %arg0, %arg1 : tensor<24x8xf32, #mesh.shard<[[1]]>>
        return %2 : tensor<24x8xf32, #mesh.shard<[[1]]>>
    }"""
    graph, mesh = read_mlir(text)
    assert mesh.shape == (4, 8, 12)
    assert asked(graph) == dict.fromkeys((("arg0", None), ("arg1", None), ("2", None)), Sharding(((1,), ())))


def test_a_type_carries_its_sharding() -> None:  # conformance 39
    encoded = "tensor<4xf32, #mesh.shard<@mesh0, [[0]]>>"
    graph = read_mlir(
        f"mesh.mesh @mesh0(shape = 2) func.func @f(%a: {encoded}) -> {encoded} {{ return %a : {encoded} }}"
    )[0]
    assert asked(graph) == {("a", None): Sharding(((0,),))}


def mlp(annotated: str, option: str) -> tuple[Graph, Mesh]:
    second = DOT.replace("OPTION", option)
    text = MLP.replace("DOT", DOT.replace("OPTION", "")).replace("SECOND", second).replace("ANNOTATED", annotated)
    return read_mlir(text.replace("%5 {", "%4 {") if option else text)


def test_the_mlp_is_read_with_its_value_annotations() -> None:  # conformance 72
    graph, mesh = mlp(BY_VALUE, "")
    assert mesh.shape == (2,)
    assert [op.op for op in graph.ops] == ["matmul", "full", "maximum", "matmul"]
    split = Sharding(((), (), (0,)))
    assert asked(graph) == {("arg0", None): split, ("4", None): Sharding(((), (), ()), (0,)), ("4", "return"): split}


def test_an_ops_option_ends_in_the_same_annotations() -> None:  # conformance 62, conformance 73
    (by_option, mesh), (by_value, _) = mlp("", ", sharding = [[], [], [], [0]]"), mlp(BY_VALUE, "")
    assert [op.option for op in by_option.ops] == [None] * 3 + [((), (), (0,), (), (), ())]
    assert str(propagate(by_option, mesh)) == str(propagate(by_value, mesh))


DOTS = [
    ("lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]", "4x8", "8x2", "4x2", "matmul"),
    ("lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]", "4x8", "2x8", "4x2", "linear"),
    (
        "lhs_batching_dimensions = [0], rhs_batching_dimensions = [0],"
        " lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]",
        "3x4x8",
        "3x8x2",
        "3x4x2",
        "matmul",
    ),
    ("lhs_contracting_dimensions = [0, 1], rhs_contracting_dimensions = [1, 0]", "4x8", "8x4x2", "2", "einsum"),
]


@pytest.mark.parametrize(("numbers", "left", "right", "result", "wanted"), DOTS)
def test_dot_general_is_the_op_with_its_dims(numbers: str, left: str, right: str, result: str, wanted: str) -> None:
    a, b, c = (f"tensor<{dims}xf32>" for dims in (left, right, result))
    for dialect in ("mhlo", "stablehlo"):
        text = f"""mesh.mesh @m(shape = 2) func.func @f(%a: {a}, %b: {b}) -> {c} {{
          %0 = "{dialect}.dot_general"(%a, %b)
            <{{dot_dimension_numbers = #{dialect}.dot<{numbers}>}}> : ({a}, {b}) -> {c}
          return %0 : {c} }}"""
        assert [op.op for op in read_mlir(text)[0].ops] == [wanted]


OPERATIONS = [
    ("%1 = arith.addf %a, %b fastmath<fast> : T", ["add"]),
    ("%1 = math.exp %a : T", ["exp"]),
    ("%1 = tosa.mul %a, %b {shift = 0 : i8} : (T, T) -> T", ["multiply"]),
    (
        '%z = "tosa.const"() {values = dense<0.0> : tensor<1xf32>} : () -> tensor<1xf32>'
        " %1 = tosa.negate %a, %z, %z : (T, tensor<1xf32>, tensor<1xf32>) -> T",
        ["negate"],
    ),
    (
        "%c = arith.constant 0.0 : f32 %e = tensor.empty() : T %f = linalg.fill ins(%c : f32) outs(%e : T) -> T"
        " %1 = linalg.add ins(%a, %f : T, T) outs(%e : T) -> T",
        ["full", "add"],
    ),
    ("%1 = linalg.exp ins(%a : T) outs(%b : T) -> T", ["exp"]),
    (
        "%e = tensor.empty() : tensor<8x4xf32> %t = linalg.transpose ins(%a : T) outs(%e : tensor<8x4xf32>)"
        " permutation = [1, 0] %f = arith.constant dense<0.0> : tensor<4x4xf32>"
        " %m = linalg.matmul ins(%a, %t : T, tensor<8x4xf32>) outs(%f : tensor<4x4xf32>) -> tensor<4x4xf32>"
        " %1 = linalg.matmul ins(%m, %a : tensor<4x4xf32>, T) outs(%b : T) -> T",
        ["transpose", "matmul", "matmul", "add"],
    ),
    (
        "%f = arith.constant dense<0xFF800000> : tensor<8xf32>"
        " %r = linalg.reduce ins(%a : T) outs(%f : tensor<8xf32>) dimensions = [0]"
        " (%in: f32, %init: f32) { %m = arith.maximumf %in, %init : f32 linalg.yield %m : f32 }"
        " %e = tensor.empty() : T %1 = linalg.broadcast ins(%r : tensor<8xf32>) outs(%e : T) dimensions = [0]",
        ["max", "expand"],
    ),
    ('%1 = "tosa.select"(%p, %a, %b) : (tensor<4x8xi1>, T, T) -> T', ["where"]),
    (
        "%w = arith.constant dense<[[1.0], [2.0], [3.0], [4.0]]> : tensor<4x1xf32>"
        " %1 = tosa.add %a, %w : (T, tensor<4x1xf32>) -> T",
        ["add"],
    ),
    (
        '%1 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel"]}'
        " ins(%v : tensor<8xf32>) outs(%a : T) { ^bb0(%in: f32, %out: f32):"
        " %s = math.sin %in : f32 linalg.yield %s : f32 } -> T",
        ["generic sin"],
    ),
]


@pytest.mark.parametrize(("body", "wanted"), OPERATIONS)
def test_operations_of_other_dialects_become_our_ops(body: str, wanted: list[str]) -> None:
    text = f"""
    #map = affine_map<(d0, d1) -> (d1)>
    #map1 = affine_map<(d0, d1) -> (d0, d1)>
    module {{
      mesh.mesh @m(shape = 2)
      func.func @f(%a: T, %b: T, %p: tensor<4x8xi1>, %v: tensor<8xf32>) -> T {{ {body} return %1 : T }}
    }}"""
    assert [op.op for op in read_mlir(text.replace("T", T))[0].ops] == wanted


def test_a_file_is_read_and_one_of_its_functions_chosen(tmp_path: Path) -> None:
    body = f"(%a: {T}) -> {T} {{ return %a : {T} }}"
    path = tmp_path / "two.mlir"
    path.write_text(f"mesh.mesh @m(shape = 2) func.func @one{body} func.func @two{body}")
    assert read_mlir(path, "two")[0].name == "two"


def test_a_query_of_one_axis_needs_the_functions_mesh() -> None:  # conformance 15
    text = "mesh.cluster @m(rank = 3, dim_sizes = [2, 4, 8]) func.func @f(%a: T) -> T attributes {mesh_cluster = @m}"
    body = "{ %0 = mesh.size {axis = 1 : index} : index %1 = mesh.idx {axis = 2 : index} : index return %a : T }"
    assert read_mlir((text + body).replace("T", T))[1].shape == (2, 4, 8)
