"""Ops of which nothing is known (`"use"(%a)` of the documents) read what is annotated for them, without a gather."""

from __future__ import annotations

import re

import pytest

from planner.errors import InvalidSharding
from planner.export.mlir import Dialect, print_program, print_spmd
from planner.frontends.mlir import read_mlir, read_spmd
from planner.ir.indexing import can_split
from planner.ir.program import OpCall, Program, Reshard
from planner.reshard.documented_path import make_documented_path
from planner.rewrite.materialize import materialize_completed
from planner.rewrite.propagation.propagate import propagate

T = "tensor<4x8xf32>"


def partitioned(body: str, returned: str = "") -> Program:
    head = f"mesh.mesh @m(shape = 2) func.func @f(%a: {T}, %b: {T})" + (f" -> {T}" if returned else "")
    graph, mesh = read_mlir(re.sub(r"\bT\b", T, f"{head} {{ {body} return {returned} }}"))
    return materialize_completed(graph, mesh, propagate(graph, mesh), route=make_documented_path(graph, mesh))


def reads(program: Program, op: str) -> list[tuple[int, ...]]:
    """The local shapes of an op's operands."""
    (call,) = (done for done in program.instructions if isinstance(done, OpCall) and done.op.op == op)
    names = [program.values[name] for name in call.operands]
    return [tuple(v.type.shape[d] // (2 if axes else 1) for d, axes in enumerate(v.sharding.split_axes)) for v in names]


def collectives(program: Program) -> list[str]:
    return [str(done.collective.kind) for done in program.instructions if isinstance(done, Reshard)]


# conformance 35: result and operands of several users annotated
def test_an_op_without_results_reads_the_sharding_of_its_operand_and_of_its_annotation() -> None:
    program = partitioned(
        '%0 = mesh.shard %a to <@m, [[0]]> : T "op0"(%0) : (T) -> ()'
        ' %1 = mesh.shard %0 to <@m, [[], [0]]> annotate_for_users : T "use"(%1) : (T) -> ()'
    )
    assert reads(program, "op0") == [(2, 8)]
    assert reads(program, "use") == [(4, 4)]
    assert collectives(program) == ["all_to_all"], "no gather"


def test_operands_and_results_may_be_split_over_one_axis() -> None:
    program = partitioned(
        "%0 = mesh.shard %a to <@m, [[0]]> annotate_for_users : T"
        " %1 = mesh.shard %b to <@m, [[], [0]]> annotate_for_users : T"
        ' %2 = "op0"(%0, %1) : (T, T) -> T %3 = mesh.shard %2 to <@m, [[], [0]]> : T',
        returned=f"%3 : {T}",
    )
    assert reads(program, "op0") == [(2, 8), (4, 4)]
    assert collectives(program) == []
    assert program.values[program.outputs[0]].sharding.split_axes == ((), (0,))
    for dialect in Dialect:
        text = print_program(program, dialect)
        assert print_spmd(read_spmd(text), dialect, "f") == text


def test_without_an_annotation_of_its_own_an_op_with_results_is_whole() -> None:
    program = partitioned('%0 = mesh.shard %a to <@m, [[0]]> : T %1 = "op0"(%0) : (T) -> T', returned=f"%1 : {T}")
    assert reads(program, "op0") == [(4, 8)]
    assert collectives(program) == ["all_gather"]


def test_the_solver_does_not_split_what_it_does_not_know() -> None:
    program = partitioned('"use"(%a) : (T) -> ()')
    (call,) = (done for done in program.instructions if isinstance(done, OpCall))
    assert call.op.rule.is_opaque
    assert not any(can_split(loop, 2) for loop in call.op.rule.loops)
    assert not call.op.rule.result_sharding(0, ((0,), ())).partial, "an opaque loop sums nothing up"


def test_a_tensor_is_not_split_twice_over_one_axis() -> None:
    graph, mesh = read_mlir(f'mesh.mesh @m(shape = 2) func.func @f(%a: {T}) {{ "use"(%a) : ({T}) -> () return }}')
    assert propagate(graph, mesh, {"use": ((0,),)}).options["use"] == ((0,), ())
    for option, words in ((((0,), (0,)), "mesh axis duplicated"), (((3,),), "mesh axis out of range")):
        with pytest.raises(InvalidSharding, match=words):
            propagate(graph, mesh, {"use": option})
