"""A difference is located: the first instruction, device and index, with the shards that it read."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from planner import ops
from planner.documents.plan_sections import VerdictDocument
from planner.documents.plans import dump_verdict
from planner.documents.schemas import validate_document
from planner.ir.accounting import count_live_bytes
from planner.ir.collectives import Collective, Kind
from planner.ir.mesh import Mesh
from planner.ir.program import OpCall, Program, Reshard
from planner.ops import OPS
from planner.ops.op_def import OpContext
from planner.run.collectives import Reducer, combine_terms, run_collective
from planner.run.executor import Executor, run_program, run_whole
from planner.run.first_difference import Difference, find_first_difference, find_first_miscount, find_first_output
from planner.run.inputs import random_inputs
from planner.run.transport import LocalTransport
from planner.run.undef import poison_value
from planner.run.validate import validate
from tests.testing.graphs import Sketch, small_transformer
from tests.testing.sample_programs import question_of, random_program, three_inputs


def located(program: Program) -> Difference:
    found = validate(program, shrinking="none")
    assert found.verdict == "different"
    assert found.difference is not None
    document = json.loads(json.dumps(dump_verdict(found), allow_nan=False))
    assert validate_document(VerdictDocument, document, "test").difference is not None
    return found.difference


def splits(program: Program, op: str) -> bool:
    return any(isinstance(done, OpCall) and done.op.op == op and any(done.option) for done in program.instructions)


def test_a_wrong_row_is_named_with_the_shards_that_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row whose split form is wrong: whole it is right, so that the graph run whole is."""
    right = OPS["relu"]

    def wrong(local: OpContext, x: np.ndarray) -> Any:
        made = right.compute(local, x)
        return made if all(span.is_whole for span in local.spans.values()) else made + (x > 0.25)

    table = {**OPS, "relu": replace(right, compute=wrong)}
    monkeypatch.setattr("planner.run.local_op.OPS", table)
    s = Sketch()
    x = s.input(8, 8)
    wide = s.op("multiply", [x], (8, 8), scalar=2.0)
    graph = s.graph(s.op("negate", [s.op("relu", [wide], (8, 8))], (8, 8)))
    split = (random_program(question_of(graph, "2x2"), seed) for seed in range(50))
    program = next(
        p for p in split if any(isinstance(d, OpCall) and d.op.op == "relu" and any(d.option) for d in p.instructions)
    )
    found = located(program)
    assert ops.OPS["relu"] is right
    assert (found.what, found.operation, found.value) == ("value", "n1", "n1")
    (shard,) = found.inputs
    assert shard.device == found.device
    read = np.array(shard.elements).reshape(shard.shape)[found.index]
    assert read > 0.25
    assert found.wanted == pytest.approx(read)
    assert found.got == pytest.approx(read + 1)


@pytest.mark.parametrize(("size", "written"), [(4096, True), (4097, False)])
def test_a_large_shard_is_named_but_not_listed(size: int, written: bool) -> None:
    s = Sketch()
    program = random_program(question_of(s.graph(s.op("exp", [s.input(size)], (size,))), "1"), 0)
    arrays = random_inputs(program.graph, np, "f64", seed=0)
    whole = {name: each + 1 for name, each in run_whole(program.graph, arrays, np, precision="f64").items()}
    found = find_first_difference(program, arrays, whole, xp=np, precision="f64", tolerance=1e-10)
    assert found is not None
    (shard,) = found.inputs
    assert (shard.shape, shard.elements is not None) == ((size,), written)


def test_a_corrupted_program_is_located_at_the_first_wrong_op() -> None:
    s = Sketch()
    product = s.op("subtract", [s.input(8, 6), s.input(8, 6)], (8, 6))
    program = random_program(question_of(s.graph(s.op("exp", [product], (8, 6))), "2x2"), 0)
    place = next(i for i, done in enumerate(program.instructions) if isinstance(done, OpCall))
    run = program.instructions[place]
    assert isinstance(run, OpCall)
    swapped = replace(run, operands=run.operands[::-1])
    wrong = replace(program, instructions=(*program.instructions[:place], swapped, *program.instructions[place + 1 :]))
    found = located(wrong)
    assert (found.instruction, found.operation, found.device) == (place, product, 0)
    left, right = (np.array(shard.elements).reshape(shard.shape)[found.index] for shard in found.inputs)
    assert [found.got, found.wanted] == pytest.approx([left - right, right - left])


def test_values_left_partial_are_compared_together() -> None:
    program = three_inputs()
    assert validate(program, shrinking="none").difference is None
    last = program.instructions[-1]
    assert isinstance(last, (OpCall, Reshard))


def made_again(program: Program, found: Difference) -> float:
    """The number that the instruction makes of the shards written out, with no other element defined."""
    arrays = random_inputs(program.graph, np, "f64", seed=0)
    machine = Executor(program, arrays, np, "f64", LocalTransport(program.mesh.devices))
    for place, done in enumerate(program.instructions[: found.instruction]):
        machine.execute(place, done)
        machine.end_instruction(place, (*done.operands, *done.results))
    done = program.instructions[found.instruction]
    for held in machine.held.values():
        held.update({name: np.full_like(held[name], poison_value(np, held[name].dtype)) for name in done.operands})
    for shard in found.inputs:
        assert shard.elements is not None
        made = np.array(shard.elements, machine.held[shard.device][shard.value].dtype).reshape(shard.shape)
        machine.held[shard.device][shard.value] = made
    machine.execute(found.instruction, done)
    partial = program.values[found.value].sharding
    (group,) = (each for each in program.mesh.groups(partial.partial).tolist() if found.device in each)
    terms = [machine.held[device][found.value] for device in group]
    return float(combine_terms(np, Reducer.of(np, partial.reduction), terms)[found.index])


@pytest.mark.parametrize("mesh", ["2x2", "3x2"])
def test_the_listed_shards_reproduce_the_wrong_number(mesh: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A product that is wrong on some devices alone, where it is split."""
    right = OPS["matmul"]

    def wrong(local: OpContext, *operands: np.ndarray) -> Any:
        return right.compute(local, *operands) + any(span.start for span in local.spans.values())

    monkeypatch.setattr("planner.run.local_op.OPS", {**OPS, "matmul": replace(right, compute=wrong)})
    s = Sketch()
    x, w = s.input(6, 12), s.input(12, 6)
    question = question_of(s.graph(s.op("exp", [s.op("matmul", [x, w], (6, 6))], (6, 6))), mesh)
    programs = [random_program(question, seed) for seed in range(40)]
    found = [(program, located(program)) for program in programs if validate(program).verdict == "different"]
    assert len(found) > 10
    for program, difference in found:
        assert made_again(program, difference) == difference.got
    assert {len(difference.inputs) for _, difference in found} > {2}, "of several devices, whose terms are combined"


def test_for_a_wrong_collective_the_shards_of_all_members_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(xp: Any, done: Collective, *given: Any, **named: Any) -> Any:
        results, received = run_collective(xp, done, *given, **named)
        return [each + (each > 0) if done.kind is Kind.ALL_REDUCE else each for each in results], received

    monkeypatch.setattr("planner.run.executor.run_collective", wrong)
    program = three_inputs()
    found = located(program)
    assert found.operation.startswith("all_reduce")
    assert [shard.device for shard in found.inputs] == [0, 1, 2, 3]
    assert made_again(program, found) == found.got
    assert found.got == pytest.approx(found.wanted + 1)


def test_an_error_of_the_backend_alone_is_named_at_the_output() -> None:
    program = three_inputs()
    arrays = random_inputs(program.graph, np, "f64", seed=0)
    whole = run_whole(program.graph, arrays, np, precision="f64")
    done = run_program(program, arrays, np, precision="f64")
    assert find_first_output(program, whole, done, xp=np, tolerance=1e-10) is None
    wanted = float(done.outputs[2][0][1, 3])
    done.outputs[2][0][1, 3] += 1
    found = find_first_output(program, whole, done, xp=np, tolerance=1e-10)
    assert found is not None
    assert (found.value, found.operation, found.device, found.index) == (program.outputs[0], "n2", 2, (1, 3))
    assert [found.got, found.wanted] == pytest.approx([wanted + 1, wanted])


def test_a_wrong_returned_argument_is_named_before_the_first_instruction() -> None:
    s = Sketch()
    x = s.input(4, 4)
    program = random_program(question_of(s.graph(s.op("exp", [x], (4, 4)), x), "1"), 0)
    assert program.outputs[1] == x
    arrays = random_inputs(program.graph, np, "f64", seed=0)
    whole = run_whole(program.graph, arrays, np, precision="f64")
    done = run_program(program, arrays, np, precision="f64")
    done.outputs[0][1] = done.outputs[0][1] + 1
    found = find_first_output(program, whole, done, xp=np, tolerance=1e-10)
    assert found is not None
    assert (found.instruction, found.operation, found.value) == (0, "argument", x)


def test_a_peak_that_was_not_predicted_is_located_where_the_most_should_be_held() -> None:
    program = random_program(question_of(small_transformer(Mesh.parse("2x2")), "2x2"), 1)
    done = run_program(program, random_inputs(program.graph, np, "f64", seed=0), np, precision="f64")
    assert find_first_miscount(program, done) is None
    done.peak[2] += 1
    found = find_first_miscount(program, done)
    assert found is not None
    held = count_live_bytes(program)[:, 2]
    assert (found.what, found.device, held[found.instruction]) == ("peak_bytes", 2, held.max())
    assert [found.got, found.wanted] == [held.max() + 1, held.max()]


def test_bytes_that_were_not_predicted_are_located(monkeypatch: pytest.MonkeyPatch) -> None:
    program = random_program(question_of(small_transformer(Mesh.parse("2x2")), "2x2"), 1)
    from planner.ir.accounting import count_received_bytes

    def other(given: Program) -> np.ndarray:
        predicted = count_received_bytes(given)
        place, device = np.argwhere(predicted)[3]
        predicted[place, device] += 1
        return predicted

    monkeypatch.setattr("planner.run.first_difference.count_received_bytes", other)
    found = located(program)
    place, device = np.argwhere(count_received_bytes(program))[3]
    assert (found.what, found.instruction, found.device) == ("received_bytes", place, device)
    assert found.wanted == found.got + 1
