"""Malformed MLIR text: every message says where, what, what was got and what was wanted."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from planner.errors import (
    InvalidDocument,
    InvalidGraph,
    InvalidMesh,
    InvalidSharding,
    ShardplanError,
    UnsupportedOp,
)
from planner.frontends.mlir import read_mlir

T = "tensor<4x8xf32>"
S = ": !shard.sharding"
SAME = "affine_map<(d0, d1) -> (d0, d1)>"
GENERIC = (
    f'%1 = linalg.generic {{{{indexing_maps = [{SAME}, {SAME}, {SAME}], iterator_types = ["parallel", "parallel"]}}}}'
    " ins(%a, %b : T, T) outs(%a : T) {{ ^bb0(%x: f32, %y: f32, %z: f32): {} }} -> T"
)
LINE_3 = [
    # conformance 19, conformance 20, conformance 21, conformance 23, conformance 24,
    # conformance 25, conformance 31, conformance 32, conformance 33 and the attribute rows of the verifiers
    ("%1 = mesh.shard %a to <@m, [[0], [1], []]> : T", InvalidSharding, "<@m", "more lists than dims (got 3"),
    ("%1 = mesh.shard %a to <@m, [[0], [0]]> : T", InvalidSharding, "<@m", "mesh axis duplicated"),
    ("%1 = mesh.shard %a to <@m, [[0, 0]]> : T", InvalidSharding, "<@m", "mesh axis duplicated"),
    ("%1 = mesh.shard %a to <@m, [[0]], partial = max[0]> : T", InvalidSharding, "<@m", "mesh axis duplicated"),
    ("%1 = mesh.shard %a to <@m, [[-1]]> : T", InvalidSharding, "<@m", "mesh axis is negative"),
    ("%1 = mesh.shard %a to <@m, [[]], partial = sum[-1]> : T", InvalidSharding, "<@m", "mesh axis is negative"),
    ("%1 = mesh.shard %a to <@m, [[5]]> : T", InvalidSharding, "<@m", "mesh axis out of range (got 5; wanted below 2)"),
    ("%1 = mesh.shard %a to <@m, [[0]], partial = generic[1]> : T", InvalidSharding, "<@m", "(got generic"),
    ("%1 = mesh.shard %a to <@a::@b, [[0]]> : T", InvalidDocument, "::", "nested symbol"),
    (
        "%1 = mesh.shard %a to <@other, [[0]]> : T",
        InvalidMesh,
        "<@other",
        "undefined mesh symbol (got @other; wanted @m)",
    ),
    ("%1 = mesh.shard %a to <[[0]]> : T", InvalidMesh, "<[[", "no mesh is named"),
    (f"%1 = shard.sharding @m split_axes = [[0]] halo_sizes = [1] {S}", InvalidSharding, "@m", "number of halo sizes"),
    (f"%1 = shard.sharding @m split_axes = [[0]] halo_sizes = [1, -2] {S}", InvalidSharding, "@m", "is negative"),
    (f"%1 = shard.sharding @m split_axes = [[0]] halo_sizes = [3, 3] {S}", InvalidSharding, "@m", "halo of dim 0"),
    (
        f"%1 = shard.sharding @m split_axes = [[0]] halo_sizes = [1, 2] sharded_dims_offsets = [0, 2, 4] {S}",
        InvalidSharding,
        "@m",
        "exclude each other",
    ),
    (f"%1 = shard.sharding @m split_axes = [[0]] sharded_dims_offsets = [0, 2] {S}", InvalidSharding, "@m", "wanted 3"),
    (
        f"%1 = shard.sharding @m split_axes = [[0]] sharded_dims_offsets = [0, 5, 4] {S}",
        InvalidSharding,
        "@m",
        "offsets",
    ),
    (
        f"%1 = shard.sharding @m split_axes = [[0]] sharded_dims_offsets = [1, 2, 4] {S}",
        InvalidSharding,
        "@m",
        "0 first",
    ),
    (
        f"%1 = shard.sharding @m split_axes = [[0]] sharded_dims_offsets = [0, 2, 9] {S}",
        InvalidSharding,
        "@m",
        "4 last",
    ),
    (
        f"%1 = shard.sharding @m split_axes = [[0]] halo_sizes = [%a, 2] {S}",
        InvalidGraph,
        "@m",
        "not a constant (got %a",
    ),
    # erratum 8: the dialect page's own example is malformed
    (
        f"%1 = mesh.sharding @m split_axes = [[0] split_axes = []] partial = sum[1] {S}",
        InvalidDocument,
        "split_axes = []",
        "',' or",
    ),
    # conformance 36: the four undefined usages
    (
        "%0 = mesh.shard %a to <@m, [[0]]> : T %1 = mesh.shard %0 to <@m, [[1]]> : T",
        InvalidSharding,
        "mesh.shard",
        "definition annotated twice (got [[1],[]]; wanted [[0],[]], asked before)",
    ),
    (
        "%0 = mesh.shard %a to <@m, [[0]]> : T %1 = mesh.shard %a to <@m, [[1]]> : T",
        InvalidSharding,
        "mesh.shard",
        "definition annotated twice",
    ),
    (
        "%0 = mesh.shard %a to <@m, [[0]]> annotate_for_users : T"
        " %1 = mesh.shard %0 to <@m, [[1]]> annotate_for_users : T",
        InvalidSharding,
        "mesh.shard",
        "use annotated twice",
    ),
    (
        "%0 = mesh.shard %a to <@m, [[0]]> annotate_for_users : T %1 = mesh.shard %0 to <@m, [[1]]> : T",
        InvalidSharding,
        "mesh.shard",
        "definition annotated behind a use",
    ),
    # the text itself
    ("%1 = tosa.add %a : (T -> T", InvalidDocument, "-> T", "syntax (got ->"),
    ("%1 = tosa.add %a, %c : (T, T) -> T", InvalidGraph, "tosa", "undefined value (got %c"),
    (
        "%1 = tosa.add %a, %b : (T, tensor<4x4xf32>) -> T",
        InvalidGraph,
        "tosa",
        "type of %b (got f32[4,4]; wanted f32[4,8]",
    ),
    ("%1 = tosa.add %a, %b : (T, T) -> tensor<8x8xf32>", ShardplanError, "tosa", "result"),
    ("%1 = tosa.ceil %a : (T) -> T", UnsupportedOp, "tosa", "unknown operation (got tosa.ceil"),
    ("%1 = mesh.all_reduce %a on @m mesh_axes = [0] : T -> T", UnsupportedOp, "mesh.all", "(got mesh.all_reduce"),
    ("%1 = scf.if %a -> T { }", UnsupportedOp, "scf", "operation outside the subset"),
    ("cf.br ^bb1(%a : T)", UnsupportedOp, "cf.br", "(got cf.br; wanted a function of one block"),
    ('"cf.br"(%a)[^bb1] : (T) -> ()', UnsupportedOp, '"cf.br"', "(got cf.br; wanted a function of one block"),
    ("%1 = func.call @g(%a) : (T) -> T", UnsupportedOp, "func.call", "call (got @g"),
    ("%a = math.exp %b : T", InvalidDocument, "math.exp", "defined twice"),
    ("^bb1: %1 = math.exp %b : T", InvalidDocument, "^bb1", "more than one block"),
    (
        "%e = tensor.empty() : T %1 = linalg.matmul ins(%a, %b : T, T) outs(%e : T) -> T",
        InvalidGraph,
        "linalg.matmul",
        "accumulation into an empty tensor",
    ),
    ("%1 = linalg.exp ins(%a : T) outs(%c : T) -> T", InvalidGraph, "linalg", "undefined value (got %c"),
    (GENERIC.format("%p = arith.mulf %x, %y : f32 linalg.yield %c : f32"), InvalidGraph, "linalg.yield", "(got %c"),
    (GENERIC.format("%p = arith.mulf %c, %y : f32 linalg.yield %p : f32"), InvalidGraph, "arith.mulf", "(got %c"),
    (GENERIC.format("%p = arith.mulf %x, %y : f32"), InvalidDocument, "arith.mulf", "end of a body"),
    (
        GENERIC.format("%p = arith.mulf %x, %x : f32 %s = arith.addf %z, %p : f32 linalg.yield %s : f32"),
        UnsupportedOp,
        "linalg.generic",
        "body",
    ),
    (
        "%1 = linalg.reduce ins(%a : T) outs(%b : T) dimensions = [] (%x: f32, %z: f32)"
        " { %m = arith.addf %x, %x : f32 linalg.yield %m : f32 }",
        UnsupportedOp,
        "linalg.reduce",
        "reduction",
    ),
    ("%1 = arith.constant dense<0.0> : tensor<?x8xf32>", InvalidGraph, "tensor<", "type of a constant (got f32[?,8]"),
    ("%1 = arith.constant dense<0.0> : tensor<4x8xcomplex>", InvalidGraph, "tensor<", "element type (got complex"),
    (
        "%1 = arith.constant dense<0> : tensor<4xcomplex<f32>>",
        InvalidGraph,
        "tensor<",
        "element type (got complex<f32>;",
    ),
    ("%1 = arith.constant dense<0> : tensor<4xindex>", InvalidGraph, "tensor<", "element type (got index;"),
    (
        "%1 = tosa.abs %x : (memref<4xf32, strided<[2]>>) -> tensor<4xf32>",
        InvalidGraph,
        "memref<",
        "layout of a memref",
    ),
    ("%1 = arith.constant dense<0.0> : tensor<9999999999999x8xf32>", InvalidGraph, "tensor<", "dim out of range"),
]
DAMAGE = ["", "<", "]", '"', "%0", "9", "x", "tensor", "\\", "{", "(", "mesh.shard "]
WHOLE = [
    ("mesh.mesh @m(shape = [])", InvalidMesh, "line 1 column 1: rank of a mesh (got 0"),  # conformance 3
    ("mesh.mesh @m(shape = -1)", InvalidDocument, "line 1 column 22: syntax (got -1"),
    ("mesh.cluster @m(rank = 0)", InvalidMesh, "line 1 column 1: rank of a mesh (got 0"),
    ("mesh.cluster @m(rank = 2, dim_sizes = [2, 3, 4])", InvalidMesh, "number of dim_sizes (got 3; wanted at most 2)"),
    ("mesh.mesh @m(shape = 2) mesh.mesh @m(shape = 2)", InvalidDocument, "symbol declared twice (got @m"),
    ("mesh.mesh @m(shape = 2)", InvalidGraph, "no single function (wanted a func.func with a body)"),
    ("tensor.empty() : T", UnsupportedOp, "line 1 column 1: operation outside a function (got tensor.empty"),
    ("module { mesh.mesh @m(shape = 2)", InvalidDocument, "wanted '}'"),
    ("func.func @f(%a: T) -> T { return %a : T }", InvalidMesh, "no mesh is named"),
    (
        "mesh.mesh @m(shape = 2)\nmesh.mesh @n(shape = 2)\nfunc.func @f(%a: T) -> T {\n"
        "%0 = mesh.shard %a to <@m, [[0]]> : T\n%1 = mesh.shard %0 to <@n, [[0]]> : T\nreturn %1 : T }",
        InvalidMesh,
        "line 5 column 23: two meshes in one function (got @n; wanted @m)",
    ),
    ("mesh.mesh @m(shape = 2) func.func @f(%a: T) -> T { return %a, %a : T, T }", InvalidGraph, "number of results"),
    ("mesh.mesh @m(shape = 2) func.func @f(%a: T) -> tensor<8xf32> { return %a : T }", InvalidGraph, "type of %a"),
    ("mesh.mesh @m(shape = 2) func.func @f(%a: T) -> T { return %a : T", InvalidDocument, "the end of the text"),
    ("mesh.mesh @m(shape = 2) func.func @f(%a: T) -> T { }", InvalidGraph, "no return (got none; wanted a return"),
    (  # conformance 5
        "mesh.cluster @m(shape = 2) func.func @f(%a: T) -> T"
        " { %0 = mesh.annotate %a {sharding = [[0]]} : T -> T return %0 : T }",
        InvalidMesh,
        "no mesh is named",
    ),
    (  # conformance 15
        "func.func @f() attributes {mesh_cluster = @m} { %0 = mesh.size {axis = 1 : index} : index return }",
        InvalidMesh,
        "undefined mesh symbol (got @m",
    ),
    (
        "mesh.cluster @m(rank = 3, dim_sizes = [4, 8, 12]) func.func @f() attributes {mesh_cluster = @m}"
        " { %0 = mesh.size {axis = 3 : index} : index return }",
        InvalidMesh,
        "mesh axis out of range (got 3; wanted 0 to 2)",
    ),
    (
        "mesh.cluster @m(rank = 3, dim_sizes = [4, 8, 12]) func.func @f()"
        " { %0 = mesh.idx {axis = 0 : index} : index return }",
        InvalidMesh,
        "function without mesh_cluster",
    ),
    (  # conformance 32
        "shard.grid @m(shape = ?) func.func @f(%a: T) -> T {"
        " %s = shard.sharding @m split_axes = [[0]] sharded_dims_offsets = [0, 2, 4] : !shard.sharding"
        " %0 = shard.shard %a to %s : T return %0 : T }",
        InvalidMesh,
        "mesh axis size is unknown",
    ),
    ("#m = " + "[" * 100, InvalidDocument, "nested too deeply"),
]


@pytest.mark.parametrize(("line", "error", "wrong", "message"), LINE_3)
def test_a_malformed_line_is_refused_where_it_is_wrong(
    line: str, error: type[ShardplanError], wrong: str, message: str
) -> None:
    used = "%2 = shard.shard %a to %1 : T return %2 : T" if "sharding @m" in line else "return %1 : T"
    line = line.replace("T", T)
    text = f"mesh.mesh @m(shape = 2x4)\nfunc.func @f(%a: T, %b: T) -> T {{\nLINE\n{used} }}".replace("T", T)
    with pytest.raises(error) as caught:
        read_mlir(text.replace("LINE", line))
    assert message in str(caught.value)
    column = line.rindex(wrong.replace("T", T)) + 1
    assert str(caught.value).startswith(f"text: line 3 column {column}: "), str(caught.value)


@pytest.mark.parametrize(("text", "error", "message"), WHOLE)
def test_a_malformed_module_is_refused(text: str, error: type[ShardplanError], message: str) -> None:
    with pytest.raises(error) as caught:
        read_mlir(text.replace(": T", f": {T}").replace("-> T", f"-> {T}").replace(", T", f", {T}"))
    assert message in str(caught.value)
    assert str(caught.value).startswith("text")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidDocument, match=r"none\.mlir: cannot be read"):
        read_mlir(tmp_path / "none.mlir")
    binary = tmp_path / "binary.mlir"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidDocument, match="not UTF-8"):
        read_mlir(binary)


def test_every_damage_to_a_text_ends_in_a_designed_error() -> None:
    text = Path(__file__).with_name("mlp.mlir").read_text()
    dice = random.Random(0)
    for _ in range(2000):
        letters = list(text)
        for _ in range(dice.randint(1, 3)):
            place = dice.randrange(len(letters))
            letters[place : place + dice.randint(0, 6)] = dice.choice(DAMAGE)
        with suppress(ShardplanError):
            read_mlir("".join(letters))
