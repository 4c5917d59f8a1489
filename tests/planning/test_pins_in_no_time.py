"""Where there is no time for a search, a standard layout under the pins is the plan."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from planner.choose.hardware import load_profile
from planner.choose.hardware.efficiency import work_class
from planner.errors import InvalidSharding
from planner.ir.graph import OUTPUTS, Annotation, Graph, Op
from planner.ir.mesh import Mesh
from planner.ir.sharding import Reduction, Sharding
from planner.judge.standard_layouts import LayoutName, build_layout
from planner.pipeline import plan, validate_plan
from planner.planning.deadline import Deadline
from planner.planning.plan_types import Plan, Request
from tests.testing.small_steps import trained

CPU, MESH = load_profile("cpu"), Mesh.parse("2x2")
REPLICATED = Sharding(((), ()))
COLUMNS = Sharding(((), (0, 1)))


def plan_at_once(graph: Graph, request: Request | None = None) -> Plan:
    """Return the plan where the time is up as soon as the command begins."""
    return plan(graph, MESH, CPU, request=request or Request(time_limit_s=1.0), deadline=Deadline(0.0))


def weight(graph: Graph) -> str:
    return next(entry.id for entry in graph.inputs if entry.kind == "parameter" and len(entry.type.shape) == 2)


def product(graph: Graph) -> Op:
    return next(op for op in graph.ops if op.phase == "forward" and work_class(op) is not None)


def check_answer(answer: Plan) -> None:
    assert (answer.certificate.status, answer.certificate.reproducible) == ("feasible", False)
    assert answer.certificate.bound_s <= (answer.certificate.objective_s or 0.0)
    checked = validate_plan(answer).verdict
    assert checked is not None
    assert checked.verdict == "equal"


@pytest.mark.parametrize("name", get_args(LayoutName))
def test_a_named_layout_is_the_plan(name: LayoutName) -> None:
    graph = trained("2x2")
    answer = plan_at_once(graph, Request(time_limit_s=1.0, layout=name))
    check_answer(answer)
    assert answer.certificate.reason == f"time limit, before the search: {name}"
    assert answer.choice is not None
    assert answer.choice.inputs == build_layout(graph, MESH, name).inputs


@pytest.mark.parametrize("wanted", [REPLICATED, COLUMNS], ids=str)
def test_a_pinned_input_has_its_sharding(wanted: Sharding) -> None:
    graph = trained("2x2")
    name = weight(graph)
    answer = plan_at_once(replace(graph, annotations=(Annotation(name, wanted),)))
    check_answer(answer)
    assert answer.certificate.reason == "time limit, before the search: FSDP, with the pins"
    assert answer.choice is not None
    assert answer.choice.inputs[name] == wanted


def test_pins_of_results_operands_and_outputs_are_met() -> None:
    graph = trained("2x2")
    op = product(graph)
    reader = next(each for each in graph.ops if op.id in each.inputs)
    rank, state = len(graph.types[op.id].shape), graph.state_outputs
    number = next(n for n in range(len(graph.outputs)) if n not in state)
    whole, by_columns = Sharding(((),) * rank), Sharding((*((),) * (rank - 1), (0,)))
    out = Sharding(((),) * len(graph.types[graph.outputs[number]].shape))
    pins = (
        Annotation(op.id, by_columns),
        Annotation(op.id, whole, user=reader.id),
        Annotation(graph.outputs[number], out, user=OUTPUTS, operand=number),
    )
    answer = plan_at_once(replace(graph, annotations=pins))
    check_answer(answer)
    choice = answer.choice
    assert choice is not None
    assert op.rule.result_sharding(0, choice.options[op.id]) == by_columns
    assert reader.rule.read_sharding(reader.inputs.index(op.id), choice.options[reader.id], MESH) == whole
    assert choice.outputs[number] == out


def test_a_pinned_option_is_taken_and_the_search_is_no_slower() -> None:
    graph = trained("2x2")
    op = product(graph)
    option = ((0, 1), *((),) * (len(op.rule.loops) - 1))
    ops = tuple(replace(each, option=option) if each is op else each for each in graph.ops)
    pinned = replace(graph, ops=ops)
    answer = plan_at_once(pinned)
    check_answer(answer)
    assert answer.choice is not None
    assert answer.choice.options[op.id] == option
    searched = plan(pinned, MESH, CPU, request=Request(gap=0.05)).certificate
    assert (searched.objective_s or 0.0) <= (answer.certificate.objective_s or 0.0)


def test_a_pin_that_no_option_meets_is_an_error() -> None:
    graph = trained("2x2")
    op = product(graph)
    largest = Sharding(((),) * len(graph.types[op.id].shape), partial=(0,), reduction=Reduction.MAX)
    with pytest.raises(InvalidSharding, match="no option gives the required sharding"):
        plan_at_once(replace(graph, annotations=(Annotation(op.id, largest),)))
