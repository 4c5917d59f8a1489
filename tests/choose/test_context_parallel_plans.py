"""Where the sequence is split, plans exchange it for heads by all_to_alls (Ulysses), or gather keys and values.

S. A. Jacobs et al., "DeepSpeed Ulysses: system optimizations for enabling training of extreme long sequence
transformer models", 2023.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import pytest

from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.frontends.zoo import import_zoo
from planner.ir.collectives import Kind
from planner.ir.graph import Annotation, Graph
from planner.ir.mesh import Mesh
from planner.ir.program import OpCall, Program, Reshard
from planner.ir.sharding import Sharding
from planner.pipeline import plan, validate_plan
from planner.planning.plan_types import Plan, Request
from tests.testing.split_sequences import CASES, SplitSequence

SEQUENCE, HEADS, KEY_HEADS, HEAD, BF16 = 8192, 64, 8, 128, 2
ATTENTION = "scaled_dot_product_attention"


def layer(mesh: Mesh, *, gathers_keys: bool = False, sequence: int = SEQUENCE, ring: bool = False) -> Graph:
    """A layer of Llama-70B: parameters on every device, tokens in blocks of the sequence.

    `gathers_keys`: attention reads queries in blocks of the sequence, so that keys and values are gathered.
    """
    document = import_zoo("llama-70b", layers=1, batch=1, seq=sequence, vocabulary=512, ring_attention=ring)
    graph = load_graph(GraphDocument.model_validate(document), mesh)
    whole = [each for each in graph.inputs if each.kind == "parameter"]
    pins = [Annotation(each.id, Sharding(tuple(() for _ in each.type.shape))) for each in whole]
    pins.append(Annotation("input_ids", Sharding(((), (0,)))))
    op = next(each for each in graph.ops if each.op == ATTENTION)
    if gathers_keys:
        pins.append(Annotation(op.inputs[0], Sharding(((), (), (), (0,), ())), user=op.id))
    return replace(graph, annotations=tuple(pins))


@cache
def planned(devices: int, gathers_keys: bool = False) -> Plan:
    mesh = Mesh.parse(f"cp={devices}")
    request = Request(gap=5e-3, deterministic=True)
    return plan(layer(mesh, gathers_keys=gathers_keys), mesh, load_profile("h100-sxm"), request=request)


def program_of(plan: Plan) -> Program:
    assert plan.analysis is not None
    return plan.analysis.program


def attention_split(program: Program) -> dict[str, tuple[int, ...]]:
    (call,) = [each for each in program.instructions if isinstance(each, OpCall) and each.op.op == ATTENTION]
    return dict(zip((loop.name for loop in call.op.rule.loops), call.option, strict=True))


def exchanges(program: Program) -> list[tuple[int, Reshard]]:
    moves = [(k, each) for k, each in enumerate(program.instructions) if isinstance(each, Reshard)]
    return [(k, each) for k, each in moves if each.collective.kind is Kind.ALL_TO_ALL]


def test_a_split_sequence_is_exchanged_for_heads_around_attention() -> None:
    """Bytes by hand: of its own 1 / n of queries, keys, values and results a device receives all but 1 / n anew."""
    devices, found = 8, planned(8)
    program, analysis = program_of(found), found.analysis
    assert analysis is not None
    assert attention_split(program)["_1"] == (0,)
    sizes = [heads * SEQUENCE * HEAD * BF16 for heads in (HEADS, KEY_HEADS, KEY_HEADS, HEADS)]
    moves = exchanges(program)
    assert [each for each in program.instructions if isinstance(each, Reshard)] == [each for _, each in moves]
    assert [(each.collective.source_dim, each.collective.dim) for _, each in moves] == [(3, 1)] * 3 + [(2, 1)]
    for (place, _), size in zip(moves, sizes, strict=True):
        assert (analysis.received[place] == size // devices * (devices - 1) // devices).all()
        assert analysis.times_ps[place] > 0


def test_heads_are_chosen_because_they_are_faster_than_gathered_keys() -> None:
    exchanged, gathered = planned(8), planned(8, gathers_keys=True)
    assert attention_split(program_of(gathered))["s"] == (0,)
    assert (exchanged.certificate.objective_s or math.inf) < gathered.certificate.bound_s


def test_fewer_heads_of_keys_than_devices_leave_the_sequence_split_and_gather_keys_and_values() -> None:
    program = program_of(planned(16))
    assert attention_split(program)["s"] == (0,)
    kinds = [each.collective.kind for each in program.instructions if isinstance(each, Reshard)]
    assert kinds == [Kind.ALL_GATHER] * 2


@pytest.mark.parametrize(("sequence", "travels"), [(SEQUENCE, False), (16 * SEQUENCE, True)])
def test_a_ring_is_chosen_where_computing_on_a_block_hides_sending_it(sequence: int, travels: bool) -> None:
    mesh = Mesh.parse("cp=16")
    graph = layer(mesh, sequence=sequence, ring=True)
    found = plan(graph, mesh, load_profile("h100-sxm"), request=Request(gap=5e-3, deterministic=True))
    gathered = plan(layer(mesh, sequence=sequence), mesh, load_profile("h100-sxm"), request=found.request)
    split = attention_split(program_of(found))
    assert split["s"] == (0,)
    assert split["t"] == ((0,) if travels else ())
    assert ((found.certificate.objective_s or 0) < gathered.certificate.bound_s) == travels
    verdict = validate_plan(found).verdict
    assert verdict is not None
    assert (verdict.verdict, verdict.counted_bytes) == ("equal", verdict.predicted_bytes)
    assert verdict.counted_peak_bytes == verdict.predicted_peak_bytes


def test_the_layer_is_run_and_counted() -> None:
    verdict = validate_plan(planned(8)).verdict
    assert verdict is not None
    assert verdict.verdict == "equal"
    assert (verdict.counted_bytes, verdict.counted_peak_bytes) == (
        verdict.predicted_bytes,
        verdict.predicted_peak_bytes,
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_attention_and_its_gradient_over_a_split_sequence_are_run_and_counted(case: SplitSequence) -> None:
    found = case.plan()
    moves = [each.collective.kind for each in program_of(found).instructions if isinstance(each, Reshard)]
    assert len(moves) == 8
    assert set(moves) <= {Kind.ALL_TO_ALL, Kind.EXCHANGE}
    assert moves.count(Kind.ALL_TO_ALL) >= 4
    verdict = validate_plan(found, shrinking="none").verdict
    assert verdict is not None
    assert (verdict.verdict, verdict.counted_bytes) == ("equal", verdict.predicted_bytes)
    assert verdict.counted_peak_bytes == verdict.predicted_peak_bytes
