"""Random programs that the mesh dialect can express."""

from __future__ import annotations

from random import Random

from planner.ir.execution_order import find_readers
from planner.ir.graph import Graph, Op, TensorType
from planner.ir.indexing import Option
from planner.ir.mesh import Mesh
from planner.ir.program import Program
from planner.ir.sharding import Sharding
from planner.reshard.documented_path import make_documented_path
from planner.rewrite.materialize import materialize
from tests.testing.dialect_graphs import (
    Growing,
    linear,
    product,
    reduce,
    split,
    transpose,
    unary,
)

STEPS = [unary, unary, linear, product, product, reduce, split, transpose]


MESHES = ["2", "4", "2x2", "2x4", "dp=2,tp=2"]


def random_option(op: Op, mesh: Mesh, random: Random) -> Option:
    """Return a random option: mesh axes on loops that the op can split and that divide evenly."""
    option: Option = tuple(() for _ in op.rule.loops)
    for axis in range(len(mesh.axes)):
        place = random.randrange(2 * len(option)) if option else 0
        if place >= len(option) or op.rule.loops[place].operands:  # it would need partial operands
            continue
        tried = (*option[:place], (*option[place], axis), *option[place + 1 :])
        size = op.rule.loops[place].size
        if size % mesh.group_size(tried[place]) == 0 and op.rule.is_allowed(tried, mesh):
            option = tried
    return option


def random_program(seed: int) -> Program:
    random = Random(seed)
    mesh = Mesh.parse(random.choice(MESHES))
    g = Growing(random)
    g.input(TensorType(tuple(random.choice([8, 16]) for _ in range(random.randint(2, 3))), "f32"))
    for _ in range(random.randint(1, 6)):
        value = random.choice(list(g.types))
        random.choice(STEPS)(g, value, g.types[value])
    read = {value for op in g.ops for value in op.inputs}
    outputs = tuple(value for op in g.ops for value in op.values if value not in read) or ("x0",)
    graph = Graph("main", tuple(g.inputs), tuple(g.ops), outputs)
    options = {op.id: random_option(op, mesh, random) for op in graph.ops}
    whole = {value: Sharding.replicated(len(kind.shape)) for value, kind in graph.types.items()}
    shared = {value: whole[value] for value in find_readers(graph)}
    inputs = {entry.id: whole[entry.id] for entry in graph.inputs}
    return materialize(
        graph,
        mesh,
        inputs,
        options=options,
        shared=shared,
        outputs=[whole[v] for v in outputs],
        route=make_documented_path(graph, mesh),
    )
