"""Attention whose blocks of keys and values pass round a ring: planned, priced, run, counted and refused."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

import solvers
from planner.choose.hardware import load_profile
from planner.choose.ring_cost import RingStep, ring_s
from planner.choose.variables import Role
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.errors import InvalidRequest, InvalidRule, InvalidSharding
from planner.export.formats import export_program
from planner.frontends.ring_attention import offer_rings
from planner.frontends.zoo import import_zoo
from planner.ir.accounting import count_received_bytes
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.ir.notation import parse_rule
from planner.ir.program import OpCall
from planner.judge.analysis import Analysis
from planner.pipeline import plan
from planner.planning.plan_types import Plan, Request
from planner.run.executor import run_program
from planner.run.inputs import random_inputs
from planner.run.mpi import run_over_mpi
from planner.run.validate import validate
from tests.testing.graphs import Sketch
from tests.testing.ring_cases import RING_CASES
from tests.testing.ring_programs import (
    ATTENTION,
    BATCH,
    HEAD,
    KEY_HEADS,
    SEQUENCE,
    possible_rings,
    ring_program,
    trained,
)
from tests.testing.sample_programs import alone, question_of


def is_ring(run: object) -> bool:
    return isinstance(run, OpCall) and bool(run.op.rule.ring_axes(run.option))


@pytest.mark.parametrize("seed", range(12))
def test_any_choice_costs_and_holds_what_its_program_does(seed: int) -> None:
    mesh = ("2", "4", "2x2", "2x4")[seed % 4]
    question = question_of(trained(window=5 * (seed % 3)), mesh)
    chosen, program = possible_rings(question, seed)
    found = Analysis(program, question.model)
    told = solvers.evaluate(question.problem, chosen)
    assert sum(map(is_ring, found.program.instructions)) == 2
    assert told.cost == found.step_ps
    assert told.peak >= found.peak_bytes


@pytest.mark.parametrize("seed", range(6))
def test_the_peak_of_one_op_with_its_buffers_is_exact(seed: int) -> None:
    question = question_of(
        alone(next(case for case in RING_CASES if case.attrs.get("scale"))), ("2", "4", "2x2")[seed % 3]
    )
    chosen, program = possible_rings(question, seed)
    found = Analysis(program, question.model)
    assert solvers.evaluate(question.problem, chosen).peak == found.peak_bytes
    assert {kind: live.sum() for kind, live in found.memory_by_kind.items()}["communication_buffer"] > 0


@pytest.mark.parametrize("mesh", ["2", "4", "2x2", "8", "2x4"])
def test_a_ring_is_run_and_counted(mesh: str) -> None:
    programs = [ring_program(mesh, seed, trained(dropout=0.3 * (seed % 2))) for seed in range(3)]
    for case in RING_CASES:
        question = question_of(alone(case), mesh)
        (op,) = question.graph.ops
        if any(op.rule.ring_axes(option) for option in question.variables[question.index[Role.OP, op.id]].options):
            programs.append(ring_program(mesh, 0, alone(case)))
    assert len(programs) > 8
    for program in programs:
        found = validate(program, shrinking="none")
        assert found.verdict == "equal", (program, found)
        assert (found.counted_bytes, found.counted_peak_bytes) == (found.predicted_bytes, found.predicted_peak_bytes)


def test_what_a_device_receives_is_what_the_ring_brings() -> None:
    """By hand: n - 1 blocks of keys and values forward, twice that and n of their gradients backward."""
    program, n = ring_program("4"), 4
    received = count_received_bytes(program)
    block = BATCH * KEY_HEADS * (SEQUENCE // n) * HEAD * 4
    forward, backward = (received[place].tolist() for place, run in enumerate(program.instructions) if is_ring(run))
    assert forward == [(n - 1) * 2 * block] * n
    assert backward == [2 * (n - 1) * 2 * block + n * 2 * block] * n


@pytest.mark.skipif(find_spec("mpi4py") is None, reason="mpi4py is not installed (extra mpi)")
def test_ranks_have_the_results_bytes_and_peaks_of_logical_devices() -> None:
    program = ring_program("2x2", 3)
    here = run_program(program, random_inputs(program.graph, np, "f64", seed=1), np, precision="f64")
    ranks = run_over_mpi(program, "f64", 1)
    assert (ranks.received == here.received).all()
    assert (ranks.peak == here.peak).all()
    for mine, theirs in zip(here.outputs, ranks.outputs, strict=True):
        for one, other in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(one, other)


def test_half_precision_is_rounded_at_every_step() -> None:
    s = Sketch("bf16")
    shape = (2, 16, 8)
    query, key, value, grad = (s.input(*shape) for _ in range(4))
    into = s.op(f"{ATTENTION}_backward", [query, key, value, grad], shape, shape, shape, ring=True)
    found = validate(ring_program("4", 0, s.graph(into, f"{into}:1")), precision="rounded", shrinking="none")
    assert found.verdict == "equal"


def step(x: float) -> RingStep:
    return RingStep(1e-6, x, x, 2 * x)


def test_a_ring_takes_its_work_where_sending_is_free_and_its_sends_where_computing_is() -> None:
    assert ring_s(8e-3, (1.0,), 4, step=step(0), results_travel=False) == pytest.approx(8e-3 + 3e-6)
    assert ring_s(8e-3, (0.4, 1.0), 4, step=step(0), results_travel=True) == pytest.approx(1.4 * 7.999e-3 + 8e-6)
    assert ring_s(1e-9, (1.0,), 4, step=step(1.0), results_travel=False) == pytest.approx(3)
    # Operands leave thrice and gradients four times, in steps of one, two, two, one and one.
    assert ring_s(1e-9, (1.0,), 4, step=step(1.0), results_travel=True) == pytest.approx(1 + 2 + 2 + 1 + 1)


@pytest.mark.parametrize("n", [2, 3, 8])
@pytest.mark.parametrize("travel", [False, True])
def test_a_ring_is_never_faster_than_its_work_or_its_sends(n: int, travel: bool) -> None:
    for x in (1e-6, 1e-4, 1e-2):
        seconds = ring_s(1e-3, (1.0,), n, step=step(x), results_travel=travel)
        assert seconds >= (1 - 1e-12) * max(1e-3, (n - 1) * x + n * x * travel)


def layer(sequence: int, *, ring: bool) -> Graph:
    """Return a training step of a layer of Llama-7B, its tokens in blocks of the sequence."""
    document = import_zoo(
        "llama-7b", layers=1, batch=1, seq=sequence, vocabulary=512, train="adam", ring_attention=ring
    )
    return load_graph(GraphDocument.model_validate(document), Mesh.parse("cp=8"))


def planned(graph: Graph, limit: int | None = None, objective: str = "time") -> Plan:
    request = Request(gap=1e-3, deterministic=True, memory_limit_bytes=limit, objective=objective)  # type: ignore[arg-type]
    return plan(graph, Mesh.parse("cp=8"), load_profile("h100-sxm"), request=request)


def test_a_plan_with_rings_holds_less_where_memory_is_scarce() -> None:
    plain, ring = (planned(layer(1024, ring=ring), objective="memory").analysis for ring in (False, True))
    assert plain is not None
    assert ring is not None
    assert ring.peak_bytes <= plain.peak_bytes


def test_the_rings_of_a_graph_are_offered_by_its_attribute() -> None:
    document = import_zoo("llama-7b", layers=1, batch=1, seq=64, vocabulary=64, train="adam")
    offered = offer_rings(document)
    nodes = [node for node in offered["nodes"] if node["op"].startswith(ATTENTION)]
    assert [node["attrs"]["ring"] for node in nodes] == [True, True]
    assert offered == import_zoo(
        "llama-7b", layers=1, batch=1, seq=64, vocabulary=64, train="adam", ring_attention=True
    )
    with pytest.raises(InvalidRequest, match="no attention"):
        offer_rings({"name": "mlp", "nodes": [{"id": "n", "op": "relu", "inputs": ["x"]}]})


@pytest.mark.parametrize("name", ["mesh", "shard", "sdy", pytest.param("torch", marks=pytest.mark.frameworks("torch"))])
def test_a_format_without_rings_says_so(name: str) -> None:
    with pytest.raises(InvalidSharding, match="blocks travel while an op runs"):
        export_program(ring_program("4"), name)


def test_an_option_that_gives_a_ring_two_sets_of_axes_is_refused() -> None:
    graph = trained()
    (op,) = [op for op in graph.ops if op.op == ATTENTION]
    names = [loop.name for loop in op.rule.loops]
    option = tuple({"s": (0,), "t": (1,)}.get(name, ()) for name in names)
    asked = replace(graph, ops=tuple(replace(each, option=option) if each is op else each for each in graph.ops))
    with pytest.raises(InvalidSharding, match="no such option"):
        plan(asked, Mesh.parse("2x2"), load_profile("h100-sxm"))


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("s e, t e -> s e; ring s t 1", "a blocked loop"),
        ("s e, t e -> s e; blocked t; ring s t", "1 to 9 rounds"),
        ("s e, t e -> s e; blocked t; ring t t 1", "a loop that stays, one that travels"),
        ("s e, t e -> s e; blocked t; ring s u 1", "names no loop"),
        ("(s e), t e -> s e; blocked t; ring s t 1", "a dim of its own"),
        ("s e, t e -> s e; blocked t; ring s t 1; ring s t 2", "one at most"),
    ],
)
def test_a_ring_that_makes_no_sense_is_refused(rule: str, message: str) -> None:
    with pytest.raises(InvalidRule, match=message):
        parse_rule(rule)


def test_the_text_of_a_rule_has_its_ring() -> None:
    rule = "s e, t e -> s e; blocked t; ring s t 2"
    assert str(parse_rule(rule)) == rule
