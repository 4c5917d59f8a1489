"""Partitioned programs as MLIR text: mlir-opt accepts them, and uneven shards are refused by name."""

from __future__ import annotations

from random import Random

import pytest

from planner.errors import InvalidSharding
from planner.export.mlir import Dialect, print_program
from planner.ir.collectives import Collective, Kind
from planner.ir.graph import Graph, Input, TensorType
from planner.ir.mesh import Mesh
from planner.ir.program import Program, Reshard
from planner.ir.sharding import Reduction, Sharding
from planner.reshard.documented_path import make_documented_path
from planner.rewrite.materialize import materialize
from tests.testing.dialect_graphs import (
    Growing,
    linear,
)
from tests.testing.dialect_programs import random_program
from tests.testing.mlir_opt import accepted
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


def test_a_dim_split_unevenly_is_refused_by_name() -> None:
    graph = Graph("main", (Input("x", "input", "x", TensorType((7,), "f32")),), (), ("x",))
    program = Program(graph, Mesh.parse("4"), (("x", Sharding(((0,),))),), (), ("x",))
    with pytest.raises(InvalidSharding, match=r"value 'x': dim 0 is split unevenly \(got 7 over 4 devices; wanted"):
        print_program(program)


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
