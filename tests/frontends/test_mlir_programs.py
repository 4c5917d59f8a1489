"""MLIR text with collectives and queries is read as programs in every spelling; refusals name their place."""

from __future__ import annotations

import random
import re
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from planner.errors import InvalidProgram, InvalidRule, ShardplanError, UnsupportedOp
from planner.export.mlir import Dialect, print_program, print_spmd
from planner.frontends.mlir import holds_collectives, read_mlir, read_spmd
from planner.run.spmd_executor import run_spmd
from planner.spmd import SpmdCall, SpmdProgram
from tests.testing.command_line import refused, shardplan
from tests.testing.dialect_programs import random_program
from tests.testing.malformed_spmd import ACCEPTED, FAULTS, WIDER, Fault
from tests.testing.mlir_opt import upstream
from tests.testing.program_texts import (
    ENCODED,
    GENERIC,
    ODD,
    PARTIAL,
    REFUSED,
    RFC,
    RFC_REFUSED,
    SPELLINGS,
    WHOLE,
    T,
)
from tests.testing.seeds import seeds
from tests.testing.upstream_spmd import Case, module


def written(line: str) -> str:
    """A function of one line; `%0` is what it makes."""
    return f"""mesh.mesh @m(shape = 2x4)
func.func @f(%a: {T}, %b: tensor<5x8xf32>, %i: index, %n: i64) attributes {{mesh_cluster = @m}} {{
  %c = arith.constant 1 : index
  %s = mesh.sharding @m split_axes = [[0]] : !mesh.sharding
  {line}
  return
}}"""


def rfc(line: str, kind: str) -> str:
    return f"""mesh.cluster @m(rank = 1, dim_sizes = [2])
func.func @f(%x: {kind}) attributes {{mesh_cluster = @m}} {{
  %0 = {line}
  return
}}"""


def calls(program: SpmdProgram) -> list[str]:
    return [str(done).partition(" = ")[2] for done in program.instructions]


@pytest.mark.parametrize("version", [19, 22])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.words)
def test_every_malformed_call_is_refused_with_its_line(fault: Fault, version: int) -> None:
    """conformance 3.1: the list of the verifiers' complaints, as text"""
    with pytest.raises(InvalidProgram) as caught:
        read_spmd(module(fault.case, 0, version))
    assert fault.words in str(caught.value)
    assert str(caught.value).startswith("text: line 3 column ")
    assert "%0" in caught.value.where


@pytest.mark.parametrize("version", [19, 22])
@pytest.mark.parametrize("case", [*ACCEPTED, *WIDER], ids=lambda case: f"{case.mesh} {case.op}")
def test_every_valid_call_is_read_and_written_back(case: Case, version: int) -> None:
    """conformance 12, conformance 14, conformance 41 to 54"""
    program = read_spmd(module(case, 0, version))
    assert [done.op for done in program.instructions if isinstance(done, SpmdCall)] == [case.op]
    for dialect in Dialect:
        assert read_spmd(print_spmd(program, dialect)) == program


@pytest.mark.parametrize(("line", "wanted"), SPELLINGS)
def test_a_call_is_read_in_every_spelling(line: str, wanted: str) -> None:
    """conformance 13, conformance 15, conformance 34, conformance 55, conformance 56, conformance 57, erratum 11"""
    program = read_spmd(written(f"%0 = {line}"))
    (found,) = calls(program)
    assert found.startswith(wanted.partition("(")[0])
    assert not wanted or sorted(found.split()) == sorted(wanted.split())
    for dialect in Dialect:
        assert read_spmd(print_spmd(program, dialect)) == program


@pytest.mark.parametrize(("line", "error", "words"), REFUSED)
def test_statements_that_no_program_has_are_refused_with_their_line(
    line: str, error: type[ShardplanError], words: str
) -> None:
    with pytest.raises(error) as caught:
        read_spmd(written(line))
    assert words in str(caught.value)
    assert str(caught.value).startswith("text: line ")


@pytest.mark.parametrize(("line", "kind", "wanted"), RFC)
def test_the_rfcs_collectives_become_collectives_on_local_tensors(line: str, kind: str, wanted: list[str]) -> None:
    program = read_spmd(rfc(line, kind))
    assert [found.replace("(%x) mesh_axes=[0]", "").partition(" :")[0] for found in calls(program)] == wanted


@pytest.mark.parametrize(("line", "kind", "error", "words"), RFC_REFUSED)
def test_the_rfcs_collectives_are_checked(line: str, kind: str, error: type[ShardplanError], words: str) -> None:
    with pytest.raises(error, match="text: line 3 column 8: ") as caught:
        read_spmd(rfc(line, kind))
    assert words in str(caught.value)


def test_the_mlp_as_the_rfc_prints_it_after_materialisation_runs() -> None:
    """conformance 72"""
    dot = "{dot_dimension_numbers = #mhlo.dot<lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [0]>}"
    hidden = "tensor<2x4x32xf32, #mesh.shard<[[], [], [0]]>>"
    w1, w2 = ("tensor<8x32xf32, #mesh.shard<[[], [0]]>>", "tensor<32x8xf32, #mesh.shard<[[0]]>>")
    text = f"""mesh.cluster @mesh0(rank = 1, dim_sizes = [2])
    func.func @mlp(%arg0: {ENCODED}, %arg1: {w1}, %arg2: {w2}) -> {ENCODED} attributes {{mesh_cluster = @mesh0}} {{
      %0 = mesh.all_gather %arg0 {{mesh_axis = [[], [], [0]]}} : {ENCODED} -> {WHOLE}
      %1 = "mhlo.dot_general"(%0, %arg1) {dot} : ({WHOLE}, {w1}) -> {hidden}
      %2 = mhlo.constant dense<0.000000e+00> : tensor<2x4x32xf32>
      %3 = mesh.local_split %2 {{sharding = [[], [], [0]]}} : tensor<2x4x32xf32> -> {hidden}
      %4 = mhlo.maximum %1, %3 : {hidden}
      %5 = "mhlo.dot_general"(%4, %arg2) {dot} : ({hidden}, {w2}) -> {PARTIAL}
      %6 = mesh.reduce_scatter %5 {{mesh_axis = [0], reduction = "sum", tensor_axis = 2 : i64}} : {PARTIAL} -> {ENCODED}
      return %6 : {ENCODED}
    }}"""
    program = read_spmd(text)
    assert [str(value.type) for _, value in program.arguments] == ["f32[2,4,4]", "f32[8,16]", "f32[16,8]"]
    dice = np.random.default_rng(0)
    x, first, second = (dice.integers(-3, 4, shape).astype("f4") for shape in ((2, 4, 8), (8, 32), (32, 8)))
    given = {"arg0": np.split(x, 2, 2), "arg1": np.split(first, 2, 1), "arg2": np.split(second, 2, 0)}
    found = np.concatenate([held.array for held in run_spmd(program, given).outputs[0]], 2)
    assert np.array_equal(found, np.maximum(x @ first, 0) @ second)


def test_a_device_queries_its_index_and_computes_its_root() -> None:
    text = """shard.grid @m(shape = 2x2)
    func.func @f(%a: tensor<2xf32>) -> (tensor<2xf32>, index) {
      %at:2 = shard.process_multi_index on @m : index, index
      %0 = shard.broadcast %a on @m grid_axes = [1] root = [%at#0] : (tensor<2xf32>, index) -> tensor<2xf32>
      %1 = arith.negf %0 : tensor<2xf32>
      return %1, %at#1 : tensor<2xf32>, index
    }"""
    run = run_spmd(read_spmd(text), {"a": [np.full(2, device, "f4") for device in range(4)]})
    assert [held.array.tolist() for held in run.outputs[0]] == [[-0.0, -0.0]] * 2 + [[-3.0, -3.0]] * 2
    assert [int(held.array) for held in run.outputs[1]] == [0, 1, 0, 1]


def test_a_local_op_runs_on_the_sizes_that_a_device_has() -> None:
    """7 over 2 is 4 and 3: `?` in the text"""
    text = """mesh.mesh @m(shape = 2)
    func.func @f(%a: tensor<7x4xf32>, %w: tensor<?x4xf32>) -> (tensor<?x4xf32>, tensor<?xf32>) {
      %0 = mesh.all_slice %a on @m mesh_axes = [0] slice_axis = 0 : tensor<7x4xf32> -> tensor<?x4xf32>
      %1 = arith.addf %0, %w : tensor<?x4xf32>
      %z = arith.constant dense<0.0> : tensor<4xf32>
      %n = arith.negf %1 : tensor<?x4xf32>
      %c = arith.constant 0 : index
      %d = tensor.dim %n, %c : tensor<?x4xf32>
      %zero = arith.constant 0.0 : f32
      %e = tensor.empty(%d) : tensor<?xf32>
      %s = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
      %2 = linalg.reduce { arith.addf } ins(%n : tensor<?x4xf32>) outs(%s : tensor<?xf32>) dimensions = [1]
      return %1, %2 : tensor<?x4xf32>, tensor<?xf32>
    }"""
    a = np.arange(28, dtype="f4").reshape(7, 4)
    run = run_spmd(read_spmd(text), {"a": [a, a], "w": [np.ones((4, 4), "f4"), np.ones((3, 4), "f4")]})
    assert np.array_equal(np.concatenate([held.array for held in run.outputs[0]]), a + 1)
    assert np.array_equal(np.concatenate([held.array for held in run.outputs[1]]), -(a + 1).sum(1))
    with pytest.raises(InvalidRule, match=r"%1 = add\(%0, %w\): rule .* contradicts the rule"):
        run_spmd(read_spmd(text), {"a": [a, a], "w": [np.ones((4, 4), "f4")] * 2})


@pytest.mark.parametrize("dialect", Dialect)
def test_what_mlir_opt_prints_in_its_generic_form_is_the_same_program(dialect: Dialect) -> None:
    for line in GENERIC:
        ours = read_spmd(written(f"%0 = {line}"))
        generic = upstream(dialect, [print_spmd(ours, dialect)], "--mlir-print-op-generic")
        (found,) = re.findall(r'%\d+ = ("(?:mesh|shard)\..*)', generic)
        renamed = found.replace("%arg0", "%a").replace("%arg2", "%i")
        assert calls(read_spmd(written(f"%0 = {renamed}".replace("@mesh", "@m")))) == calls(ours)


def test_texts_that_are_programs_are_recognised() -> None:
    program = written(f"%0 = mesh.all_reduce %a on @m : {T} -> {T}")
    annotated = written(f"%0 = mesh.shard %a to <@m, [[0]]> : {T}").replace(", %i: index, %n: i64", "")
    assert (holds_collectives(program), holds_collectives(annotated)) == (True, False)
    read_mlir(annotated)
    with pytest.raises(UnsupportedOp, match=r"line 5 column 8: collective in a graph \(got mesh.all_reduce"):
        read_mlir(program)


def test_meshes_share_no_devices_where_the_text_says_so() -> None:
    """conformance 56"""
    text = """mesh.mesh @m(shape = 2)
    mesh.mesh @n(shape = 2) {shardplan.devices = [2, 3]}
    func.func @f(%a: tensor<2xf32>) -> tensor<2xf32> {
      %0 = mesh.collective_permute %a on @m target = @n : tensor<2xf32> -> tensor<2xf32>
      %1 = arith.negf %0 {shardplan.mesh = "n"} : tensor<2xf32>
      return %1 : tensor<2xf32>
    }""".replace("%a: tensor<2xf32>)", '%a: tensor<2xf32> {shardplan.mesh = "m"})')
    program = read_spmd(text)
    assert program.clusters["n"].devices == (2, 3)
    run = run_spmd(program, {"a": [np.full(2, device + 1, "f4") for device in range(2)]})
    assert [held.array.tolist() for held in run.outputs[0]] == [[-1, -1], [-2, -2]]
    assert str(read_spmd(print_spmd(program))) == str(program)


@pytest.mark.parametrize("line", ODD)
def test_odd_lines_end_in_a_designed_error(line: str) -> None:
    for read in (read_mlir, read_spmd):
        with suppress(ShardplanError):
            read(written(line))
        with suppress(ShardplanError):
            read(written(line).replace(", %i: index, %n: i64", ""))


DAMAGE = ["", "<", "]", "%0", "9", "x", "[[", "\\", "{", "(", "mesh.", "= ", "@m", " on ", "?", "-1", "[]", '"']


def test_every_damage_to_a_program_ends_in_a_designed_error() -> None:
    whole = [written(f"%0 = {line}") for line, _ in SPELLINGS] + [rfc(line, kind) for line, kind, _ in RFC]
    whole += [print_program(random_program(seed)) for seed in seeds(20)]
    dice = random.Random(0)
    for _ in range(3000):
        letters = list(dice.choice(whole))
        for _ in range(dice.randint(1, 3)):
            place = dice.randrange(len(letters))
            letters[place : place + dice.randint(0, 6)] = dice.choice(DAMAGE)
        with suppress(ShardplanError):
            read_spmd("".join(letters))


def test_partition_verifies_a_program_and_prints_it_in_either_spelling(tmp_path: Path) -> None:
    path = tmp_path / "program.mlir"
    path.write_text(written(f"%0 = mesh.all_reduce %a on @m mesh_axes = [1] reduction = <max> : {T} -> {T}"))
    assert "%0 = all_reduce(%a) mesh_axes=[1] reduction=max : f32[4,8]" in shardplan("partition", path).out
    for syntax, wanted in (("mesh", "mesh_axes = [1] reduction = <max>"), ("shard", "grid_axes = [1] reduction = max")):
        assert f"%0 = {syntax}.all_reduce %a on @m {wanted}" in shardplan("partition", path, "--format", syntax).out
    assert "all_reduce" not in shardplan("partition", path, "--optimize").out, "nothing reads it"
    refused(
        shardplan("partition", path, "--json"),
        "the file is a program already (got --json; wanted --format, --optimize)",
    )
    refused(shardplan("partition", path, "--mesh", "2"), "got --mesh")
    refused(shardplan("propagate", path), "collective in a graph (got mesh.all_reduce")
    path.write_text(written(f"%0 = mesh.all_reduce %a on @m mesh_axes = [2] : {T} -> {T}"))
    refused(
        shardplan("partition", path), "line 5 column 8: %0 = all_reduce(%a): mesh axis of mesh_axes is out of bounds"
    )
