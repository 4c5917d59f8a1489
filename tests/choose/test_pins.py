"""Required annotations are met by the op that makes or reads the value, or refused; hints bind no op."""

from __future__ import annotations

from dataclasses import replace

import pytest

import solvers
from planner.choose.cost import CostModel
from planner.choose.formulate import formulate
from planner.choose.hardware import load_profile
from planner.errors import InvalidSharding
from planner.ir.graph import Annotation, Graph
from planner.ir.mesh import Mesh
from planner.ir.sharding import Sharding
from planner.judge.analysis import Analysis
from planner.pipeline import write_program
from tests.testing.graphs import Sketch
from tests.testing.small_graphs import product_and_relu, square


def model_of(mesh: str) -> CostModel:
    return CostModel(Mesh.parse(mesh), load_profile("cpu"))


def best_program(graph: Graph, mesh: str) -> Analysis:
    question = formulate(graph, model_of(mesh))
    choice = solvers.solve(question.problem).assignment
    assert choice is not None
    return Analysis(write_program(question, question.decode(choice)), question.model)


def pinned(graph: Graph, *annotations: Annotation) -> Graph:
    return replace(graph, annotations=annotations)


READ_BY_BOTH = Annotation("n0", Sharding(((0,),)), user="n1")


def test_a_pin_is_met_by_the_value_or_by_its_reader() -> None:
    graph = square()
    made = pinned(graph, Annotation("n0", Sharding(((),), (0,))))
    assert best_program(made, "2").program.values["n0"].sharding == Sharding(((),), (0,))
    read = best_program(pinned(graph, READ_BY_BOTH), "2").program
    run = next(done for done in read.instructions if done.results == ("n1",))
    assert {read.values[name].sharding for name in run.operands} == {Sharding(((0,),))}


def test_a_pin_on_a_graph_input_is_met() -> None:
    graph = pinned(product_and_relu(), Annotation("i1", Sharding(((), (0,)))))
    assert dict(best_program(graph, "2").program.arguments)["i1"] == Sharding(((), (0,)))


def test_a_pin_may_name_an_axis_of_one_device() -> None:
    graph = pinned(product_and_relu(), Annotation("i1", Sharding(((0,), (1,)))))
    assert dict(best_program(graph, "1x2").program.arguments)["i1"] == Sharding(((), (1,)))


def test_a_hint_binds_no_op() -> None:
    graph = product_and_relu()
    hinted = pinned(graph, Annotation("i0", Sharding(((), ())), required=False))
    assert best_program(hinted, "2").step_ps == best_program(graph, "2").step_ps


# value, sharding, user
IMPOSSIBLE = [
    ("i0", Sharding(((0,), ()), (1,)), None),
    ("n1", Sharding(((), ()), (0,)), None),
    ("n0", Sharding(((0, 1), ()), ()), "n1"),
]


@pytest.mark.parametrize(("value", "sharding", "user"), IMPOSSIBLE)
def test_a_pin_that_no_option_meets_is_refused(value: str, sharding: Sharding, user: str | None) -> None:
    s = Sketch()
    made = s.op("softmax", [s.input(8, 8)], (8, 8), dim=0)
    graph = s.graph(s.op("softmax", [made], (8, 8), dim=0))
    with pytest.raises(InvalidSharding, match=r"no option gives the required sharding .*wanted"):
        formulate(pinned(graph, Annotation(value, sharding, user=user)), model_of("2x2"))
