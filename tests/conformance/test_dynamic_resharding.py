"""Resharding with a mesh axis or dim of unknown size: the collectives and shapes that upstream's pass emits."""

from __future__ import annotations

import numpy as np
import pytest

from planner.errors import InvalidGraph
from planner.export.mlir import Dialect, print_spmd
from planner.export.mlir.dialect import tensor_type
from planner.frontends.mlir import read_spmd
from planner.ir.dynamic_dims import DYNAMIC_DIM
from planner.ir.graph import TensorType
from planner.ir.mesh import Mesh
from planner.ir.sharding import Sharding
from planner.rewrite.lower_reshard import write_moves
from planner.run.spmd_executor import run_spmd
from planner.spmd import Cluster, LocalType, SpmdBuilder, SpmdCall, SpmdProgram, local_shape
from planner.spmd.op_def import DEFAULTS
from tests.testing.annotated_notation import sharding
from tests.testing.mlir_opt import accepted, upstream

PARTITION = "--pass-pipeline=builtin.module(func.func(mesh-spmdization))"
# mesh, tensor, source, target, calls with what they make
ROWS = [
    # conformance 3.4
    ("2", "2", "[[]]", "[[]]", []),
    ("2", "3x14", "[[],[]]", "[[],[0]]", ["all_slice f32[3,7]"]),
    ("?", "?x3x?", "[[],[],[]]", "[[0],[],[]]", ["all_slice f32[?,3,?]"]),
    ("2", "10x14", "[[0],[]]", "[[],[0]]", ["all_to_all f32[10,7]"]),
    ("?", "10x14", "[[0],[]]", "[[],[0]]", ["all_to_all f32[?,?]", "cast f32[10,?]"]),
    ("2", "?x14", "[[0],[]]", "[[],[0]]", ["all_to_all f32[?,7]"]),
    ("2", "10x14", "[[0],[]]", "[[],[]]", ["all_gather f32[10,14]"]),
    ("2", "10x14", "[[],[0]]", "[[],[]]", ["all_gather f32[10,14]"]),
    ("2", "?x14", "[[0],[]]", "[[],[]]", ["all_gather f32[?,14]"]),
    ("?", "10x14", "[[0],[]]", "[[],[]]", ["all_gather f32[?,14]", "cast f32[10,14]"]),
    ("2", "10x14", "[[],[]] sum[0]", "[[],[]]", ["all_reduce f32[10,14]"]),
    ("?", "?x14", "[[],[]] sum[0]", "[[],[]]", ["all_reduce f32[?,14]"]),
    ("2x?", "8x?", "[[0],[]]", "[[0],[1]]", ["all_slice f32[4,?]"]),
    ("?x2", "8x6", "[[],[0]]", "[[],[]]", ["all_gather f32[8,?]", "cast f32[8,6]"]),
]
# What needs a number: whether blocks nest.
REFUSED = [
    ("2x2", "?x4", "[[0,1],[]]", "[[0],[]]", InvalidGraph, "the size of a dim is unknown"),
]


def program(mesh: str, whole: TensorType, source: Sharding, target: Sharding) -> SpmdProgram:
    over = Mesh.parse(mesh)
    build = SpmdBuilder({"m": Cluster(over)}, "m")
    x = build.argument("x", LocalType(local_shape(whole.shape, source, over), whole.dtype))
    return build.program([write_moves(build, x, whole, source=source, target=target)])


def parts(mesh: str, shape: str, source: str, target: str) -> tuple[TensorType, Sharding, Sharding]:
    whole = TensorType(tuple(DYNAMIC_DIM if size == "?" else int(size) for size in shape.split("x")), "f32")
    rank = len(whole.shape)
    ends = [sharding(text).complete(rank, Mesh.parse(mesh)) for text in (source, target)]
    return whole, ends[0], ends[1]


def annotated(mesh: str, whole: TensorType, source: Sharding, target: Sharding) -> str:
    """The resharding as annotations of upstream's."""
    kind = tensor_type(whole)

    def spelled(one: Sharding) -> str:
        lists = ", ".join(str(list(axes)) for axes in one.split_axes)
        return f"<@m, [{lists}]{f', partial = sum{list(one.partial)}' if one.partial else ''}>"

    return f"""mesh.mesh @m(shape = {mesh})
func.func @f(%x: {kind}) -> {kind} {{
  %0 = mesh.shard %x to {spelled(source)} : {kind}
  %1 = mesh.shard %0 to {spelled(target)} annotate_for_users : {kind}
  return %1 : {kind}
}}
"""


def calls(found: SpmdProgram) -> list[SpmdCall]:
    """Without the casts of a type to itself that upstream leaves."""
    listed = [done for done in found.instructions if isinstance(done, SpmdCall)]
    return [done for done in listed if done.op != "cast" or done.types[0] != found.values[done.operands[0]].type]


def said(found: SpmdProgram) -> list[object]:
    """Ops and attributes other than defaults."""
    return [
        (done.op, {key: v for key, v in done.attrs.items() if key != "mesh" and v != DEFAULTS.get(key)})
        for done in calls(found)
    ]


def made(found: SpmdProgram) -> list[str]:
    return [f"{done.op} {done.types[0]}" for done in calls(found)]


@pytest.mark.parametrize(("mesh", "shape", "source", "target", "wanted"), ROWS)
def test_a_resharding_is_the_collectives_of_the_table(
    mesh: str, shape: str, source: str, target: str, wanted: list[str]
) -> None:
    ours = program(mesh, *parts(mesh, shape, source, target))
    assert made(ours) == wanted
    accepted(Dialect.MESH, [print_spmd(ours)])


@pytest.mark.parametrize(("mesh", "shape", "source", "target", "wanted"), ROWS)
def test_upstream_partitions_into_the_same_program(
    mesh: str, shape: str, source: str, target: str, wanted: list[str]
) -> None:
    case = parts(mesh, shape, source, target)
    theirs = read_spmd(upstream(Dialect.MESH, [annotated(mesh, *case)], PARTITION))
    ours = program(mesh, *case)
    assert made(theirs) == wanted
    assert said(theirs) == said(ours)


def test_a_tensor_of_unknown_size_becomes_terms_of_a_sum() -> None:
    ours = program("2", *parts("2", "?x4", "[[0],[]]", "[[],[]] sum[0]"))
    assert [done.op for done in calls(ours)] == ["all_gather", "all_slice"]  # the slice is of who holds the tensor
    x = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    (terms,) = run_spmd(ours, {"x": [x[:2], x[2:]]}).outputs
    assert (terms[0].array == x).all()
    assert not terms[1].array.any()


@pytest.mark.parametrize(("mesh", "shape", "source", "target", "error", "words"), REFUSED)
def test_steps_that_need_a_number_are_refused(
    mesh: str, shape: str, source: str, target: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        program(mesh, *parts(mesh, shape, source, target))
