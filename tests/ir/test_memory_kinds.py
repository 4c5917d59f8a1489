"""Memory by kind equals what the executor holds, instruction by instruction."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.plans import dump_plan
from planner.documents.schemas import GraphDocument
from planner.frontends.zoo import import_zoo
from planner.ir.accounting import Accounting, count_live_bytes
from planner.ir.graph import INPUT_KINDS, Graph
from planner.ir.memory_kinds import BUFFER, count_live_by_kind, find_live_ranges, find_value_kinds
from planner.ir.mesh import Mesh
from planner.ir.program import Program, Reshard
from planner.pipeline import plan
from planner.planning.plan_types import Request
from planner.run.executor import Executor
from planner.run.inputs import random_inputs
from planner.run.transport import LocalTransport
from tests.testing.graphs import random_graph
from tests.testing.random_steps import random_step
from tests.testing.sample_programs import question_of, random_program
from tests.testing.seeds import seeds

MESHES = ["2x2", "3x2", "4", "1x2"]
TINY: dict[str, Any] = {
    "layers": 1,
    "width": 16,
    "heads": 4,
    "feed_forward": 24,
    "vocabulary": 24,
    "batch": 4,
    "seq": 8,
}
KINDS = {*INPUT_KINDS, "gradient", "activation", "temporary", BUFFER}
OPTIMIZERS = ["sgd", "sgd-momentum", "adam"]


def training(optimizer: str, dtype: str = "f32") -> Graph:
    document = import_zoo("llama-7b", train=optimizer, dtype=dtype, **TINY)
    return load_graph(GraphDocument.model_validate(document), Mesh.parse("2x2"))


def counted(program: Program) -> list[list[int]]:
    """[instructions + 1][devices]: bytes alive on the devices of a run."""
    arrays = random_inputs(program.graph, np, "f64", seed=0)
    machine = Executor(program, arrays, np, "f64", LocalTransport(program.mesh.devices))
    found = []
    for place, done in enumerate(program.instructions):
        machine.execute(place, done)
        found.append(machine.alive.tolist())
        machine.end_instruction(place, (*done.operands, *done.results))
    return [*found, machine.alive.tolist()]


@pytest.mark.parametrize("seed", seeds(24))
def test_kinds_add_up_to_what_the_devices_of_a_run_hold_at_every_instruction(seed: int) -> None:
    graph = random_step(seed) if seed % 2 else random_graph(seed, 7, (6, 8, 7, 1))
    program = random_program(question_of(graph, MESHES[seed // 2 % 4]), seed)
    alive = np.array(counted(program))
    for device in range(program.mesh.devices):
        kinds = count_live_by_kind(Accounting(program), device)
        assert set(kinds) <= KINDS
        assert (np.sum(list(kinds.values()), axis=0) == alive[:, device]).all()


@pytest.mark.parametrize("seed", seeds(12))
def test_a_value_is_of_one_kind_at_a_time_as_long_as_it_lives(seed: int) -> None:
    program = random_program(question_of(random_step(seed), "2x2"), seed)
    made = {name: 0 for name, _ in program.arguments}
    made |= {name: place for place, done in enumerate(program.instructions) for name in done.results}
    for name, start in made.items():
        parts = sorted((each.first, each.last) for each in find_live_ranges(Accounting(program)) if each.value == name)
        assert (parts[0][0], parts[-1][1]) == (start, program.last_use[name])
        assert all(before[1] + 1 == after[0] for before, after in pairwise(parts))


@pytest.mark.parametrize("seed", seeds(12))
def test_a_buffer_becomes_what_was_moved_where_it_is_the_only_copy_left(seed: int) -> None:
    program = random_program(question_of(random_step(seed), "2x2"), seed)
    parts = find_live_ranges(Accounting(program))
    moves = {place: done for place, done in enumerate(program.instructions) if isinstance(done, Reshard)}
    assert len(moves) > 3
    for place, done in moves.items():
        own = {each.first: each.kind for each in parts if each.value == done.result}
        before = next(each.kind for each in parts if each.value == done.operand and each.contains(place))
        assert own[place] == BUFFER
        if program.last_use[done.operand] > place:
            assert set(own) == {place}
        elif program.last_use[done.result] > place:
            assert own[place + 1] == before


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_a_training_step_makes_a_gradient_and_a_next_value_for_every_parameter(optimizer: str, dtype: str) -> None:
    graph = training(optimizer, dtype)
    kinds = find_value_kinds(graph)

    def bytes_of(kind: str, made: bool) -> int:
        inputs = {entry.id for entry in graph.inputs}
        return sum(graph.types[v].bytes for v, each in kinds.items() if each == kind and (v not in inputs) == made)

    for kind in ("parameter", "optimizer_state"):
        assert bytes_of(kind, made=True) == bytes_of(kind, made=False)
    read = {value for op in graph.ops if op.phase == "update" for value in op.inputs}
    gradients = sum(graph.types[value].bytes for value in kinds if kinds[value] == "gradient" and value in read)
    assert gradients == bytes_of("parameter", made=False)
    forward = {value for op in graph.ops if op.phase == "forward" for value in op.values}
    assert {kinds[value] for value in forward} == {"activation"}


def test_a_plan_document_has_the_timeline_by_kind() -> None:
    found = plan(training("adam"), Mesh.parse("4"), load_profile("h100-sxm"), request=Request(gap=0.05))
    assert found.analysis is not None
    memory, program = dump_plan(found)["memory"], found.analysis.program
    moments = np.arange(len(program.instructions) + 1)
    lines = {
        line["kind"]: np.array(line["bytes"])[np.searchsorted(line["moments"], moments, "right") - 1]
        for line in memory["timeline"]
    }
    total = np.sum(list(lines.values()), axis=0)
    assert (total == count_live_bytes(program)[:, found.analysis.peak_device]).all()
    peak = int(total.argmax())
    assert total[peak] == memory["peak_bytes"] == sum(memory["by_kind"].values())
    assert {kind: int(line[peak]) for kind, line in lines.items() if line[peak]} == memory["by_kind"]
    assert memory["at"] in (*(n for done in program.instructions[peak : peak + 1] for n in done.results), "return")
    assert {"parameter", "gradient", "optimizer_state", "activation", "input"} <= set(lines)
