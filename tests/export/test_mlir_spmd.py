"""SPMD programs as text: reading them back gives the same program, mlir-opt accepts those it knows, both run alike."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from planner.errors import InvalidSharding
from planner.export.mlir import Dialect, print_program, print_spmd
from planner.frontends.mlir import read_mlir, read_spmd
from planner.ir.graph import Op, TensorType
from planner.ir.sharding import Sharding, held_bounds
from planner.ops import bind_op
from planner.rewrite.propagation.propagate import propagate
from planner.run.executor import run_whole
from planner.run.spmd_executor import run_spmd
from planner.spmd import INDEX, Cluster, LocalOp, LocalType, SpmdBuilder, SpmdCall, SpmdProgram
from planner.spmd.op_def import DEFAULTS
from tests.testing.annotated_notation import materialized
from tests.testing.dialect_programs import random_program
from tests.testing.lowered_programs import check_lowered
from tests.testing.mlir_opt import accepted
from tests.testing.random_spmd import written
from tests.testing.seeds import seeds

PROGRAMS = seeds(400)
# Few programs have ops that upstream has too; of these seeds some do.
KNOWN = range(400)
# What a version has no op for: for our own reader alone.
UNKNOWN_TO = {
    Dialect.MESH: {"collective_permute", "update_halo", "shard_shape", "idx", "size"},
    Dialect.SHARD: {"collective_permute", "idx", "size"},
}
X, Y = LocalType((4, 6), "f32"), LocalType((None, 6), "f32")


def op(name: str, operand: TensorType, *results: TensorType, **attrs: Any) -> Op:
    return Op(name, name, ("a",), results, bind_op(name, (operand,), results, attrs=attrs, notation=None), attrs)


def f32(*shape: int) -> TensorType:
    return TensorType(shape, "f32")


def plain(value: Any) -> Any:
    return tuple(map(plain, value)) if isinstance(value, list | tuple) else value


def described(program: SpmdProgram) -> list[object]:
    """A program as plain values: attributes without the defaults."""
    lines: list[object] = [str(done) for done in program.instructions if isinstance(done, LocalOp)]
    for done in program.instructions:
        if isinstance(done, SpmdCall):
            kept = {key: plain(value) for key, value in done.attrs.items()}
            attrs = {key: value for key, value in kept.items() if key not in DEFAULTS or value != DEFAULTS[key]}
            lines.append((done.op, done.operands, done.results, done.types, attrs))
    return [*lines, program.arguments, program.outputs, program.default_mesh, dict(program.clusters)]


@cache
def random_spmd(seed: int) -> SpmdProgram:
    """A random program of collectives and local ops."""
    build = written(seed)[0].build
    return build.program(list(build.types)[-3:])


def every_call() -> SpmdProgram:
    """What random programs leave out: queries, numbers of run time, several meshes, casts, results side by side."""
    build = SpmdBuilder({"m": Cluster.parse("2x2"), "n": Cluster.parse("2x2", 4)}, "m")
    x, y, n = build.argument("x", X), build.argument("y", Y), build.argument("n", INDEX)
    build.argument("z 0", X, "n")
    row, _ = build.call("process_multi_index")
    (linear,) = build.call("process_linear_index")
    build.call("mesh_shape", axes=[1])
    build.call("idx", axis=1)
    build.call("size", axis=0)
    build.call("shard_shape", n, linear, shape=[8, None], sharding=Sharding(((0,), ())), device=None)
    build.call("shard_shape", shape=[9, 5], sharding=Sharding(((0,), ()), halo_sizes=(1, 2)), device=3)
    (rooted,) = build.call("gather", x, row, mesh_axes=[1], gather_axis=0, root=[None])
    halo = [1, None]
    (kept,) = build.call(
        "update_halo", x, n, n, types=[X], split_axes=[[0]], source_halo_sizes=halo, destination_halo_sizes=halo
    )
    build.call("update_halo", kept, n, linear, split_axes=[[0]], source_halo_sizes=halo, destination_halo_sizes=halo)
    (wide,) = build.call(
        "update_halo", y, split_axes=[[], [1]], source_halo_sizes=[0, 0], destination_halo_sizes=[1, 1]
    )
    (cast,) = build.call("cast", wide, types=[LocalType((3, 8), "f32")])
    (moved,) = build.call("collective_permute", x, target="n")
    build.call("all_reduce", moved, mesh="n", mesh_axes=[0], dtype="f64", reduction="max")
    (tanh,) = build.local(op("tanh", f32(3, 8), f32(3, 8)), cast)
    (negated,) = build.local(op("negate", f32(4, 6), f32(4, 6)), moved, mesh="n")
    return build.program([rooted, tanh, negated])


@pytest.mark.parametrize("dialect", Dialect)
def test_a_program_read_back_is_the_program_written(dialect: Dialect) -> None:
    """conformance 41 to 57"""
    for program in map(random_spmd, PROGRAMS):
        read = read_spmd(print_spmd(program, dialect))
        assert described(read) == described(program)
        assert print_spmd(read, dialect) == print_spmd(program, dialect)


@pytest.mark.parametrize("dialect", Dialect)
def test_every_call_is_written_and_read(dialect: Dialect) -> None:
    """conformance 12, conformance 13, conformance 14, conformance 15, conformance 34, conformance 55, conformance 56"""
    program = every_call()
    read = read_spmd(print_spmd(program, dialect))
    assert described(read) == described(program)
    assert print_spmd(read, dialect) == print_spmd(program, dialect)


def test_results_of_one_op_stay_side_by_side() -> None:
    build = SpmdBuilder({"m": Cluster.parse("2")}, "m")
    x = build.argument("x", X)
    program = build.program(build.local(op("split", f32(4, 6), f32(2, 6), f32(2, 6), dim=0), x))
    text = print_spmd(program)
    assert "%1:2 = func.call @shardplan.split.0(%x)" in text
    assert "return %1, %1#1 :" in text
    assert print_spmd(read_spmd(text)) == text


@pytest.mark.parametrize("dialect", Dialect)
def test_upstream_accepts_the_programs_it_has_ops_for(dialect: Dialect) -> None:
    known = []
    for program in map(random_spmd, KNOWN):
        calls = [done for done in program.instructions if isinstance(done, SpmdCall)]
        if any(done.op in UNKNOWN_TO[dialect] or done.attrs.get("block") for done in calls):
            continue
        text = print_spmd(program, dialect)
        if "?" not in text and "source_halo_sizes" not in text:  # a dim that differs between devices it may refuse
            known.append(text)
    assert len(known) >= 20
    accepted(dialect, known)


@pytest.mark.parametrize("dialect", Dialect)
@pytest.mark.parametrize("seed", seeds(60))
def test_a_partitioned_program_runs_as_it_is_printed(seed: int, dialect: Dialect) -> None:
    """Read as a program of local tensors it computes what the graph does."""
    program = random_program(seed)
    spmd = read_spmd(print_program(program, dialect))
    dice = np.random.default_rng(seed)
    whole = {entry.id: dice.integers(1, 3, entry.type.shape).astype("f8") for entry in program.graph.inputs}
    local = {}
    for name, _ in program.arguments:
        held = program.values[name]
        bounds = held_bounds(held.sharding, held.type.shape, program.mesh)
        local[name] = [whole[name][tuple(slice(*each) for each in device)] for device in bounds]
    run = run_spmd(spmd, local, precision="f64")
    wanted = run_whole(program.graph, whole, np, precision="f64")
    for value, devices in zip(program.graph.outputs, run.outputs, strict=True):
        for made in devices:
            assert np.allclose(made.array, wanted[value]), value


def test_a_collective_that_a_version_lacks_is_refused_by_name() -> None:
    build = SpmdBuilder({"m": Cluster.parse("2")}, "m")
    partial = Sharding(((),), (0,))
    program = build.program(build.call("shard_shape", shape=[8], sharding=partial, device=1))
    assert described(read_spmd(print_spmd(program, Dialect.MESH))) == described(program)
    with pytest.raises(InvalidSharding, match=r"shard_shape\(\): mlir-opt 22 has no partial tensors"):
        print_spmd(program, Dialect.SHARD)


def test_a_tensor_without_elements_is_written_and_read() -> None:
    build = SpmdBuilder({"m": Cluster.parse("3")}, "m")
    x = build.argument("x", LocalType((0, 4), "f32"))
    program = build.program(build.call("all_gather", x, mesh_axes=[0], gather_axis=1))
    text = print_spmd(program)
    assert "tensor<0x4xf32> -> tensor<0x12xf32>" in text
    assert described(read_spmd(text)) == described(program)


MEMREF = """shard.grid @m(shape = 4)
func.func @f(%x: memref<12x?xi8>) -> memref<12x?xi8> {
  %r = shard.update_halo %x on @m split_axes = [[0]] halo_sizes = [1, 2] : memref<12x?xi8>
  return %r : memref<12x?xi8>
}"""


def test_a_memref_is_the_tensor_that_it_holds() -> None:
    """conformance 55"""
    accepted(Dialect.SHARD, [MEMREF])
    assert described(read_spmd(MEMREF)) == described(read_spmd(MEMREF.replace("memref", "tensor")))


EMPTY = """mesh.mesh @m(shape = 2x2)
func.func @f(%x: tensor<0x4xf32>, %w: tensor<4x6xf32>) -> tensor<0x6xf32> {
  %xs = mesh.shard %x to <@m, [[0], [1]]> : tensor<0x4xf32>
  %r = tosa.abs %xs : (tensor<0x4xf32>) -> tensor<0x4xf32>
  %z = arith.constant dense<0.0> : tensor<0x6xf32>
  %y = linalg.matmul ins(%r, %w : tensor<0x4xf32>, tensor<4x6xf32>) outs(%z : tensor<0x6xf32>) -> tensor<0x6xf32>
  %ys = mesh.shard %y to <@m, [[], [0]]> : tensor<0x6xf32>
  return %ys : tensor<0x6xf32>
}"""


@pytest.mark.parametrize("dialect", Dialect)
def test_tensors_without_elements_are_partitioned_and_run(dialect: Dialect) -> None:
    graph, mesh = read_mlir(EMPTY)
    program = materialized(graph, mesh, propagate(graph, mesh))
    assert program.values[program.outputs[0]].sharding == Sharding(((), (0,)))
    accepted(dialect, [print_program(program, dialect)])
    arrays = {"x": np.zeros((0, 4)), "w": np.ones((4, 6))}
    check_lowered(program, arrays, {program.graph.outputs[0]: np.zeros((0, 6))}, 0)
