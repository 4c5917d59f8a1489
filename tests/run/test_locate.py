"""A difference is located: the first instruction, device and index, with the shards that were read there."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from planner.documents.plans import verdict_document
from planner.documents.results import VerdictDocument
from planner.documents.schemas import checked
from planner.model import ops
from planner.model.mesh import Mesh
from planner.model.ops import OPS
from planner.model.program import Move, Program, Run
from planner.run.locate import Difference
from planner.run.validate import validate
from tests.graphs import Sketch, small_transformer
from tests.run.sample_programs import question_of, random_program, three_inputs


def located(program: Program) -> Difference:
    found = validate(program, shrinking="none")
    assert found.verdict == "different"
    assert found.difference is not None
    document = json.loads(json.dumps(verdict_document(found), allow_nan=False))
    assert checked(VerdictDocument, document, "test").difference is not None
    return found.difference


def splits(program: Program, op: str) -> bool:
    return any(isinstance(done, Run) and done.op.op == op and any(done.option) for done in program.instructions)


def test_a_wrong_row_is_named_with_the_shards_that_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row whose split form is wrong: whole it is right, so that the graph run whole is."""
    right = OPS["relu"]

    def wrong(local: object, x: np.ndarray) -> np.ndarray:
        made = right.compute(local, x)
        return made if all(span.whole for span in local.spans.values()) else made + (x > 0.25)  # type: ignore[attr-defined]

    table = {**OPS, "relu": replace(right, compute=wrong)}
    monkeypatch.setattr("planner.run.local.OPS", table)
    s = Sketch()
    x = s.input(8, 8)
    wide = s.op("multiply", [x], (8, 8), scalar=2.0)
    graph = s.graph(s.op("negate", [s.op("relu", [wide], (8, 8))], (8, 8)))
    split = (random_program(question_of(graph, "2x2"), seed) for seed in range(50))
    program = next(
        p for p in split if any(isinstance(d, Run) and d.op.op == "relu" and any(d.option) for d in p.instructions)
    )
    found = located(program)
    assert ops.OPS["relu"] is right
    assert (found.what, found.done, found.value) == ("value", "n1", "n1")
    (shard,) = found.inputs
    read = np.array(shard.elements).reshape(shard.shape)[found.index]
    assert read > 0.25
    assert found.wanted == pytest.approx(read)
    assert found.got == pytest.approx(read + 1)


def test_a_corrupted_program_is_located_at_the_first_op_that_suffers() -> None:
    s = Sketch()
    product = s.op("subtract", [s.input(8, 6), s.input(8, 6)], (8, 6))
    program = random_program(question_of(s.graph(s.op("exp", [product], (8, 6))), "2x2"), 0)
    place = next(i for i, done in enumerate(program.instructions) if isinstance(done, Run))
    run = program.instructions[place]
    assert isinstance(run, Run)
    swapped = replace(run, operands=run.operands[::-1])
    wrong = replace(program, instructions=(*program.instructions[:place], swapped, *program.instructions[place + 1 :]))
    found = located(wrong)
    assert (found.instruction, found.done, found.device) == (place, product, 0)
    left, right = (np.array(shard.elements).reshape(shard.shape)[found.index] for shard in found.inputs)
    assert (found.got, found.wanted) == (pytest.approx(left - right), pytest.approx(right - left))


def test_values_left_partial_are_compared_together() -> None:
    program = three_inputs()
    assert validate(program, shrinking="none").difference is None
    last = program.instructions[-1]
    assert isinstance(last, (Run, Move))


def test_bytes_that_were_not_predicted_are_located(monkeypatch: pytest.MonkeyPatch) -> None:
    program = random_program(question_of(small_transformer(Mesh.parse("2x2")), "2x2"), 1)
    from planner.model.accounts import received_bytes

    def other(given: Program) -> np.ndarray:
        predicted = received_bytes(given)
        place, device = np.argwhere(predicted)[3]
        predicted[place, device] += 1
        return predicted

    monkeypatch.setattr("planner.run.locate.received_bytes", other)
    found = located(program)
    place, device = np.argwhere(received_bytes(program))[3]
    assert (found.what, found.instruction, found.device) == ("received_bytes", place, device)
    assert found.wanted == found.got + 1
