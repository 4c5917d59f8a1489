"""A plan has the shardings that were requested of an op, of one operand of a user, and of an output."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner import Mesh, Plan, Request, Sharding, plan, validate_plan
from planner.choose.hardware import load_profile
from planner.errors import InvalidSharding
from planner.ir.graph import OUTPUTS, Annotation, Graph
from planner.ir.indexing import Option
from planner.ir.program import OpCall
from planner.planning.deadline import Deadline
from tests.testing.graphs import Sketch

MESH = Mesh.parse("dp=2,tp=2")


def square(*annotations: Annotation, option: Option | None = None) -> Graph:
    """n0 = i0 . i0 on 64x64."""
    sketch = Sketch()
    x = sketch.input(64, 64)
    sketch.op("matmul", [x, x], (64, 64))
    sketch.ops[0] = replace(sketch.ops[0], option=option)
    return sketch.graph("n0", annotations=annotations)


def planned(graph: Graph) -> Plan:
    found = validate_plan(plan(graph, MESH, load_profile("h100-sxm"), request=Request()))
    assert found.verdict is not None
    assert found.verdict.verdict == "equal"
    return found


# axes of the loops m, k, n
@pytest.mark.parametrize("option", [(), ((0, 1),), ((), (1, 0)), ((1,), (), (0,))])
def test_an_op_runs_under_its_requested_option(option: Option) -> None:
    found = planned(square(option=option))
    assert found.choice is not None
    assert found.choice.options["n0"][:3] == (*option, (), (), ())[:3]


def test_an_option_that_no_strategy_has_is_refused() -> None:
    sketch = Sketch()
    sketch.op("softmax", [sketch.input(8, 8)], (8, 8), dim=1)
    sketch.ops[0] = replace(sketch.ops[0], option=((), (1,)))
    with pytest.raises(InvalidSharding, match=r"node 'n0': no such option \(got \[\[\],\[1\]\]; wanted one of"):
        plan(sketch.graph("n0"), MESH, load_profile("h100-sxm"), request=Request())


def test_one_value_is_read_in_the_two_layouts_that_are_requested() -> None:
    rows, columns = Sharding(((0,), ())), Sharding(((), (1,)))
    asked = [Annotation("i0", each, user="n0", operand=k) for k, each in enumerate((rows, columns))]
    found = planned(square(*asked))
    assert found.analysis is not None
    program = found.analysis.program
    (run,) = (done for done in program.instructions if isinstance(done, OpCall))
    assert [program.values[name].sharding for name in run.operands] == [rows, columns]


def test_an_output_has_the_sharding_requested_for_it() -> None:
    wanted = Sharding(((), (1, 0)))
    found = planned(square(Annotation("n0", wanted, user=OUTPUTS)))
    assert found.analysis is not None
    program = found.analysis.program
    assert program.values[program.outputs[0]].sharding == wanted


def state_step(*annotations: Annotation) -> Graph:
    """The state i0 is replaced by n0 = i0 . i0."""
    graph = square(*annotations)
    return replace(graph, inputs=(replace(graph.inputs[0], next="n0"),))


@pytest.mark.parametrize("seconds", [None, 0.0])
def test_a_pin_of_an_output_is_one_of_the_state_whose_place_it_takes(seconds: float | None) -> None:
    wanted = Sharding(((), (1, 0)))
    request = Request(time_limit_s=None if seconds is None else 1.0)
    graph, hardware = state_step(Annotation("n0", wanted, user=OUTPUTS)), load_profile("h100-sxm")
    found = plan(graph, MESH, hardware, request=request, deadline=Deadline(seconds))
    assert found.analysis is not None
    program = found.analysis.program
    assert dict(program.arguments)["i0"] == program.values[program.outputs[0]].sharding == wanted


@pytest.mark.parametrize("seconds", [None, 0.0])
def test_a_state_and_its_next_value_have_one_sharding(seconds: float | None) -> None:
    pins = Annotation("i0", Sharding(((0,), ()))), Annotation("n0", Sharding(((), (1,))), user=OUTPUTS)
    request = Request(time_limit_s=None if seconds is None else 1.0)
    with pytest.raises(InvalidSharding, match=r"input 'i0'.*got \[\[\],\[1\]\]; wanted \[\[0\],\[\]\], as the input"):
        plan(state_step(*pins), MESH, load_profile("h100-sxm"), request=request, deadline=Deadline(seconds))
