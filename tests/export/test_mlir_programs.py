"""Partitioned programs as MLIR text: mlir-opt accepts them, and what is read back computes the same."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from planner.errors import ShardplanError
from planner.export.mlir import Dialect, print_program
from planner.ir.collectives import Collective, Kind
from planner.ir.graph import Graph, Input, TensorType
from planner.ir.mesh import Mesh
from planner.ir.program import Program, Reshard
from planner.ir.sharding import Reduction, Sharding
from planner.reshard.documented_path import make_documented_path
from planner.rewrite.materialize import materialize
from planner.rewrite.optimize import optimize, zero_price
from planner.rewrite.propagation.propagate import propagate
from planner.run.executor import run_whole
from planner.run.inputs import random_inputs
from tests.testing.annotated_notation import materialized
from tests.testing.dialect_graphs import (
    Growing,
    linear,
)
from tests.testing.dialect_programs import random_program
from tests.testing.lowered_programs import check_lowered
from tests.testing.mlir_opt import accepted
from tests.testing.random_graphs import random_graph
from tests.testing.random_programs import random_program as any_program
from tests.testing.seeds import seeds

COLLECTIVES = [
    (Sharding(((0,), ())), Collective(Kind.ALL_GATHER, (0,), 0), "all_gather %x on @mesh {axes} = [0] gather_axis = 0"),
    (Sharding(((), ())), Collective(Kind.ALL_SLICE, (1, 0), 1), "all_slice %x on @mesh {axes} = [1, 0] slice_axis = 1"),
    (
        Sharding(((0, 1), ())),
        Collective(Kind.ALL_TO_ALL, (1,), 1, 0),
        "all_to_all %x on @mesh {axes} = [1] split_axis = 1 concat_axis = 0",
    ),
    (
        Sharding(((), ()), (0, 1), Reduction.MAX),
        Collective(Kind.ALL_REDUCE, (0, 1)),
        "all_reduce %x on @mesh {axes} = [0, 1] reduction = {max}",
    ),
    (
        Sharding(((), ()), (1,)),
        Collective(Kind.REDUCE_SCATTER, (1,), 0),
        "reduce_scatter %x on @mesh {axes} = [1] scatter_axis = 0",
    ),
]


@pytest.mark.parametrize("dialect", Dialect)
def test_upstream_accepts_every_program(dialect: Dialect) -> None:
    accepted(dialect, [print_program(random_program(seed), dialect) for seed in seeds(100)])


@pytest.mark.parametrize(("source", "collective", "wanted"), COLLECTIVES)
@pytest.mark.parametrize("dialect", Dialect)
def test_collectives_are_spelled_as_the_dialect_does(
    source: Sharding, collective: Collective, wanted: str, dialect: Dialect
) -> None:
    graph = Graph("main", (Input("x", "input", "x", TensorType((16, 8), "f32")),), (), ("x",))
    program = Program(graph, Mesh.parse("2x4"), (("x", source),), (Reshard(collective, "x", "y"),), ("y",))
    text = print_program(program, dialect)
    reduction = "<max>" if dialect is Dialect.MESH else "max"
    assert f"%y = {dialect}.{wanted.format(axes=dialect.axes, max=reduction)} : tensor<" in text
    accepted(dialect, [text])


@pytest.mark.parametrize("dialect", Dialect)
def test_shards_that_differ_between_devices_are_of_unknown_size(dialect: Dialect) -> None:
    graph = Graph("main", (Input("x", "input", "x", TensorType((7,), "f32")),), (), ("x",))
    program = Program(graph, Mesh.parse("4"), (("x", Sharding(((0,),))),), (), ("x",))
    text = print_program(program, dialect)
    assert "%x: tensor<?xf32>" in text
    accepted(dialect, [text])


@pytest.mark.parametrize("chunk", range(4))
def test_every_program_is_printed_read_and_run_by_both_executors(chunk: int) -> None:
    """conformance 41 to 46, 50, 55: with uneven blocks, halos, offsets and terms made by exchanges."""
    for seed in seeds(40)[chunk::4]:
        for program in (random_program(seed), any_program(seed)):
            check_seed(program, seed)
        for halos in (False, True):
            graph, mesh = random_graph(seed, halos)
            try:
                program = materialized(graph, mesh, propagate(graph, mesh))
            except ShardplanError:
                continue  # a conflict, which is diagnosed
            check_seed(program, seed)
            check_seed(optimize(program, zero_price), seed)


def check_seed(program: Program, seed: int) -> None:
    arrays = random_inputs(program.graph, np, "f64", seed=seed)
    # Roots and logarithms of negative numbers are no numbers, and these are equal to nothing.
    arrays = {name: abs(array) + 1 if array.dtype.kind == "f" else array for name, array in arrays.items()}
    check_lowered(program, arrays, run_whole(program.graph, arrays, np, precision="f64"), seed)


def test_a_call_says_over_which_axes_its_loops_are_split() -> None:
    g = Growing(Random(0))
    g.input(TensorType((8, 16), "f32"))
    linear(g, "x0", g.types["x0"])
    graph = Graph("main", tuple(g.inputs), tuple(g.ops), (g.ops[0].id,))
    loops = [loop.name for loop in g.ops[0].rule.loops]
    option = tuple((0,) if name == "k" else () for name in loops)
    inputs = {"x0": Sharding(((), (0,))), "x1": Sharding(((), (0,)))}
    outputs = [Sharding(((), ()))]
    mesh = Mesh.parse("2")
    route = make_documented_path(graph, mesh)
    program = materialize(graph, mesh, inputs, options={g.ops[0].id: option}, shared={}, outputs=outputs, route=route)
    text = print_program(program)
    assert 'shardplan.op = "linear", shardplan.split = {k = [0 : i64]}' in text
    assert "all_reduce" in text
