"""Chosen layouts, written as a program."""

from __future__ import annotations

from types import MappingProxyType

from planner.choose.cost import CostModel
from planner.choose.formulate import formulate
from planner.choose.hardware import load_profile
from planner.ir.graph import Graph, Input, Op, TensorType
from planner.ir.indexing import Option
from planner.ir.mesh import Mesh
from planner.ir.sharding import Sharding
from planner.ops import bind_op
from planner.rewrite.materialize import materialize
from planner.run.validate import validate

KIND = TensorType((8, 8), "f32")
SPLIT, OTHER, WHOLE = Sharding(((0,), ())), Sharding(((), (0,))), Sharding.replicated(2)


def _op(name: str, op: str, *inputs: str) -> Op:
    rule = bind_op(op, (KIND,) * len(inputs), (KIND,), attrs=MappingProxyType({}), notation=None)
    return Op(name, op, inputs, (KIND,), rule)


def test_a_copy_never_takes_the_name_of_a_value() -> None:
    """Ops `a` and `a.1`, the first read both as made and in another layout: its copy must not be `a.1`."""
    x = Input("x", "input", "x", KIND)
    ops = (_op("a", "tanh", "x"), _op("a.1", "negate", "a"), _op("c", "add", "a", "a.1"))
    graph, mesh = Graph("names", (x,), ops, ("c",)), Mesh.parse("2")
    distances = formulate(graph, CostModel(mesh, load_profile("cpu"))).distances
    options: dict[str, Option] = {"a": ((0,), (), ()), "a.1": ((), (0,), ()), "c": ((), (0,), ())}
    options = {op.id: options[op.id][: len(op.rule.loops)] for op in ops}
    program = materialize(
        graph,
        mesh,
        {"x": SPLIT},
        options=options,
        shared={"a": OTHER},
        outputs=(WHOLE,),
        route=lambda value, source, target: distances[value].shortest_path(source, target),
    )
    assert validate(program).verdict == "equal"
    names = [name for done in program.instructions for name in done.results]
    assert len(set(names)) == len(names)
