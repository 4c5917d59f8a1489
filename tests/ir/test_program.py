"""Programs: values, bytes and memory worked out by hand; contradictions are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from planner.choose.cost import CostModel
from planner.choose.formulate import formulate
from planner.choose.hardware import load_profile
from planner.errors import InvalidGraph, InvalidSharding
from planner.ir.accounting import count_live_bytes, count_received_bytes
from planner.ir.collectives import Collective, Kind
from planner.ir.execution_order import Execute, Read, Share, Shrink, Step, find_readers, order_steps
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.ir.program import OpCall, Program, Reshard
from planner.ir.sharding import Sharding
from planner.pipeline import write_program
from tests.testing.graphs import Sketch, random_graph
from tests.testing.layout_oracle import part
from tests.testing.random_strategies import random_strategies
from tests.testing.seeds import seeds

MESH = Mesh.parse("tp=2")
SPLIT, REPLICATED = Sharding(((0,), ())), Sharding(((), ()))


def worked() -> Program:
    """x [5, 4] split by rows, 3 + 2 over two devices, is gathered; softmax over rows runs on each device whole."""
    s = Sketch()
    graph = s.graph(s.op("softmax", [s.input(5, 4)], (5, 4), dim=0))
    gather = Reshard(Collective(Kind.ALL_GATHER, (0,), 0), "i0", "i0.1")
    run = OpCall(graph.ops[0], ((), ()), ("i0.1",), ("n0",))
    cut = Reshard(Collective(Kind.ALL_SLICE, (0,), 1), "n0", "n0.1")
    return Program(graph, MESH, (("i0", SPLIT),), (gather, run, cut), ("n0.1",))


def test_a_program_has_the_sharding_of_every_value() -> None:
    wanted = {"i0": SPLIT, "i0.1": REPLICATED, "n0": REPLICATED, "n0.1": Sharding(((), (0,)))}
    assert {name: value.sharding for name, value in worked().values.items()} == wanted


def test_every_device_receives_what_it_lacks() -> None:
    assert count_received_bytes(worked()).tolist() == [[2 * 4 * 4, 3 * 4 * 4], [0, 0], [0, 0]]


def test_a_value_lives_from_its_producer_to_its_last_reader() -> None:
    """Rows of 16 bytes: the argument throughout, the copy until the op has run, the result until it is cut."""
    first, second, whole = 3 * 16, 2 * 16, 5 * 16
    assert count_live_bytes(worked()).tolist() == [
        [first + whole, second + whole],
        [first + whole + whole, second + whole + whole],
        [first + whole + whole // 2, second + whole + whole // 2],
        [first + whole // 2, second + whole // 2],
    ]


def test_a_program_prints_with_local_shapes_and_device_groups() -> None:
    assert str(worked()).splitlines() == [
        "mesh tp=2",
        "argument %i0: f32[5,4] [tp ·] local [3, 4]",
        "%i0.1: f32[5,4] [· ·] local [5, 4] = all_gather [tp] dim 0 (%i0) groups {0,1}",
        "%n0: f32[5,4] [· ·] local [5, 4] = softmax(%i0.1)",
        "%n0.1: f32[5,4] [· tp] local [5, 2] = all_slice [tp] dim 1 (%n0) groups {0,1}",
        "return %n0.1",
    ]


# what is changed in the worked program, the error, its message
BROKEN: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"arguments": (("i0", REPLICATED),)}, InvalidSharding, "not the tail"),
    (
        {"instructions": (OpCall(worked().graph.ops[0], ((), ()), ("i0",), ("n0",)),)},
        InvalidGraph,
        r"op 'n0': operand 0 has another sharding than the op reads \(got \[\[0\],\[\]\]; wanted \[\[\],\[\]\]\)",
    ),
]


@pytest.mark.parametrize(("fields", "error", "message"), BROKEN)
def test_a_program_whose_parts_do_not_fit_is_refused(
    fields: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        _ = replace(worked(), **fields).values


def test_a_shared_value_is_settled_once_before_its_first_reader() -> None:
    s = Sketch()
    x = s.input(4, 4)
    squared = s.op("multiply", [x, x], (4, 4))
    graph = s.graph(s.op("negate", [squared], (4, 4)), squared)
    assert [_told(step) for step in order_steps(graph)] == [
        "share i0",
        "read i0",
        "read i0",
        "run 0",
        "share n0",
        "read n0",
        "run 1",
        "read n1",
        "read n0",
    ]
    assert {value: len(who) for value, who in find_readers(graph).items()} == {"i0": 2, "n0": 2, "n1": 1}


def test_a_value_may_shrink_right_after_its_op_where_another_op_runs_before_its_first_reader() -> None:
    s = Sketch()
    x = s.input(4, 4)
    early = s.op("tanh", [x], (4, 4))
    graph = s.graph(s.op("add", [s.op("negate", [x], (4, 4)), early], (4, 4)))
    told = [_told(step) for step in order_steps(graph)]
    assert told[told.index("run 0") : told.index("run 1")] == ["run 0", "shrink n0", "read i0"]
    assert [text for text in told if text.startswith("shrink")] == ["shrink n0"]


def _told(step: Step) -> str:
    match step:
        case Shrink(value):
            return f"shrink {value}"
        case Share(value):
            return f"share {value}"
        case Read(value, _):
            return f"read {value}"
        case Execute(op):
            return f"run {op}"


def program_of(graph: Graph, seed: int) -> Program:
    question = formulate(graph, CostModel(Mesh.parse("3x2"), load_profile("h100-sxm")))
    return write_program(question, question.decode(random_strategies(question, np.random.default_rng(seed))))


@pytest.mark.parametrize("seed", seeds(8))
def test_bytes_alive_are_those_of_a_device_that_keeps_a_list(seed: int) -> None:
    program = program_of(random_graph(seed, 6, (6, 7, 1)), seed)
    wanted = np.array([alive(program, device) for device in range(program.mesh.devices)]).T
    assert count_live_bytes(program).tolist() == wanted.tolist()


def alive(program: Program, device: int) -> list[int]:
    """Bytes one device holds during every instruction, and at the end."""

    def size(name: str) -> int:
        value = program.values[name]
        held = part(value.sharding, value.type.shape, program.mesh, device)
        return int(np.prod([each.stop - each.start for each in held])) * value.type.itemsize

    held, found = {name: size(name) for name, _ in program.arguments}, []
    stays = {*held, *program.outputs}
    for place, done in enumerate(program.instructions):
        held |= {name: size(name) for name in done.results}
        found.append(sum(held.values()))
        later = {name for after in program.instructions[place + 1 :] for name in after.operands}
        held = {name: count for name, count in held.items() if name in stays | later}
    return [*found, sum(held.values())]
