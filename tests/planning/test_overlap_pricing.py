"""Plans for hardware on which collectives run beside ops."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from planner import pipeline
from planner.choose.cost import PICO, CostModel
from planner.choose.hardware import Hardware, load_profile
from planner.documents.graphs import load_graph
from planner.documents.hardware import load_planned_hardware
from planner.documents.plans import dump_plan, parse_plan
from planner.documents.schemas import GraphDocument
from planner.errors import InvalidHardware, InvalidRequest
from planner.ir.collectives import Collective, Kind
from planner.ir.graph import Graph, TensorType
from planner.ir.mesh import Mesh
from planner.ir.sharding import Sharding
from planner.judge.analysis import Analysis
from planner.judge.overlap import schedule_overlap
from planner.planning.overlap_pricing import apply_overlap, exposed_shares, overlapped_step_ps, reprice_links
from planner.planning.plan_types import Plan, Request
from tests.testing.random_programs import random_program
from tests.testing.seeds import seeds

MESH = Mesh.parse("8")
BUSY = 24
H100 = replace(load_profile("h100-sxm"), op_times=None)  # the roofline: what is tested is communication


def busy_then_product(batch: int = 1000, width: int = 1024) -> Graph:
    """A chain of ops, then a product with a weight that is stored split along what is contracted.

    To contract part by part and scatter the sums moves a little less than to gather the weight first. But the weight
    may be gathered beside the chain, and the sums only wait for its end.
    """
    rows, square = {"shape": [batch, width], "dtype": "f32"}, {"shape": [width, width], "dtype": "f32"}
    chain: list[dict[str, Any]] = [
        {"id": f"e{k}", "op": "tanh", "inputs": [f"e{k - 1}" if k else "x"], "attrs": {}, "outputs": [rows]}
        for k in range(BUSY)
    ]
    last = {"id": "y", "op": "matmul", "inputs": [chain[-1]["id"], "w"], "attrs": {}, "outputs": [rows]}
    document = {
        "format": "shardplan.graph",
        "version": 1,
        "name": "busy",
        "inputs": [
            {"id": "x", "kind": "input", "name": "x", **rows},
            {"id": "w", "kind": "parameter", "name": "w", **square},
        ],
        "nodes": [*chain, last],
        "outputs": ["y"],
        "annotations": [
            {"value": "w", "sharding": {"split_axes": [["0"], []]}},
            {"value": "y", "sharding": {"split_axes": [["0"], []]}, "user": "return"},
        ],
    }
    return load_graph(GraphDocument.model_validate(document), MESH)


@cache
def planned(share: float) -> Plan:
    return pipeline.plan(busy_then_product(), MESH, replace(H100, overlap=share), request=Request(deterministic=True))


def kinds(plan: Plan) -> set[str]:
    assert plan.analysis is not None
    moves = [done for done in plan.analysis.program.instructions if hasattr(done, "collective")]
    return {move.collective.kind.value for move in moves}


def test_communication_that_can_be_hidden_wins_where_the_hardware_overlaps() -> None:
    serial, beside = planned(0.0), planned(1.0)
    assert (kinds(serial), kinds(beside)) == ({"reduce_scatter"}, {"all_gather"})
    assert serial.analysis is not None
    assert beside.analysis is not None
    assert serial.analysis.step_ps < beside.analysis.step_ps
    hidden, alone = (schedule_overlap(each.analysis, each.limit_bytes) for each in (beside, serial) if each.analysis)
    assert hidden.scheduled_ps < alone.scheduled_ps


def test_the_certificate_of_an_overlapped_plan_bounds_its_serial_sum_and_names_the_best_layout() -> None:
    serial, beside = planned(0.0).certificate, planned(1.0).certificate
    assert beside.status == "feasible"
    assert "with overlap FSDP takes" in beside.reason
    assert beside.bound_s == serial.bound_s
    assert beside.objective_s is not None
    assert beside.gap == pytest.approx(1 - beside.bound_s / beside.objective_s)


def test_a_plan_has_its_step_with_and_without_overlap() -> None:
    for share in (0.0, 0.5, 1.0):
        plan = planned(share)
        cost = dump_plan(plan)["cost"]
        told = cost["overlap"]
        assert told["lower_bound_s"] <= told["scheduled_s"] <= told["step_s"] <= cost["step_s"]
        wanted = cost["step_s"] - share * (cost["step_s"] - told["scheduled_s"])
        assert told["step_s"] == pytest.approx(wanted, abs=2e-12)


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_no_plan_has_a_shorter_step_with_overlap_than_is_proven(share: float) -> None:
    plan = planned(share)
    told = dump_plan(plan)["cost"]["overlap"]
    assert 0 < told["bound_s"] <= told["step_s"]
    other = planned(0.0).analysis
    assert other is not None
    beside = Analysis(other.program, plan.model)
    assert told["bound_s"] <= overlapped_step_ps(beside, plan.limit_bytes) * PICO


def test_a_request_for_overlap_comes_before_the_profile() -> None:
    measured = load_profile("a100-sxm")
    assert measured.overlap == 1.0
    by_profile, serial, half = (
        pipeline.plan(busy_then_product(), MESH, measured, request=Request(deterministic=True, overlap=share))
        for share in (None, 0.0, 0.5)
    )
    assert [each.model.hardware.overlap for each in (by_profile, serial, half)] == [1.0, 0.0, 0.5]
    documents = [dump_plan(each) for each in (by_profile, serial, half)]
    assert documents[1]["cost"]["overlap"]["step_s"] == documents[1]["cost"]["step_s"]
    assert documents[1]["cost"]["overlap"]["bound_s"] == pytest.approx(documents[1]["solver"]["bound_s"])
    assert load_planned_hardware(parse_plan(documents[0], "plan")) == measured
    for document in documents:
        assert document["solver"]["objective_s"] == document["cost"]["step_s"]
    with pytest.raises(InvalidRequest, match="overlap"):
        Request(overlap=1.5)


def at_every_picosecond(found: Analysis, limit: int) -> dict[str, float]:
    """The exposed share of a program of one link, by looking at each picosecond in turn."""
    made = schedule_overlap(found, limit).schedule
    assert made is not None
    busy, sent = np.zeros(made.length_ps, bool), np.zeros(made.length_ps, bool)
    for place, done in enumerate(found.program.instructions):
        sends = hasattr(done, "collective") and done.collective.kind is not Kind.ALL_SLICE
        (sent if sends else busy)[made.starts[place] : made.ends[place]] = True
    return {"nvlink": float((sent & ~busy).sum() / sent.sum())} if sent.any() else {}


def test_the_exposed_share_is_communication_that_no_op_overlaps() -> None:
    slow = {name: replace(link, latency_s=2e-8, step_s=0.0, fill_s=0.0) for name, link in H100.links.items()}
    quick: Hardware = replace(H100, links=slow, launch_s=3e-8)
    looked_at = 0
    for seed in seeds(20):
        program = random_program(seed)
        found = Analysis(program, CostModel(program.mesh, quick))
        wanted = schedule_overlap(found, 1 << 60)
        if wanted.schedule is not None and wanted.communication_ps:
            told = exposed_shares(found, wanted)
            assert told == pytest.approx(at_every_picosecond(found, 1 << 60))
            assert 0 <= min(told.values()) <= max(told.values()) <= 1
            looked_at += 1
    assert looked_at


@pytest.mark.parametrize("kind", [Kind.ALL_GATHER, Kind.REDUCE_SCATTER, Kind.ALL_REDUCE, Kind.ALL_TO_ALL])
@pytest.mark.parametrize("mesh", ["8", "16", "4x16"])
def test_a_link_that_counts_half_makes_every_collective_on_it_half_as_long(kind: Kind, mesh: str) -> None:
    shares = dict.fromkeys(H100.links, 0.5)
    halved = reprice_links(replace(H100, overlap=1.0), shares)
    whole, half = (CostModel(Mesh.parse(mesh), hardware) for hardware in (H100, halved))
    last = len(whole.mesh.axes) - 1
    source = Sharding(((last,), ())) if kind in (Kind.ALL_GATHER, Kind.ALL_TO_ALL) else Sharding(((), ()), (last,))
    dim = {Kind.ALL_REDUCE: None, Kind.ALL_TO_ALL: 1}.get(kind, 0)
    move = Collective(kind, (last,), dim, 0 if kind is Kind.ALL_TO_ALL else None)
    for size in (64, 1 << 12, 1 << 16):
        held = TensorType((size, 64), "f32")
        assert half.move_ps(move, source, held) == pytest.approx(whole.move_ps(move, source, held) / 2, abs=2)


def test_a_share_of_the_gain_counts() -> None:
    for seed in seeds(20):
        program = random_program(seed)
        found = Analysis(program, CostModel(program.mesh, replace(H100, overlap=0.25)))
        gain = schedule_overlap(found, 1 << 60).gain_ps
        assert overlapped_step_ps(found, 1 << 60) == found.step_ps - round(0.25 * gain)
        assert apply_overlap(schedule_overlap(found, 1 << 60), 0.0) == found.step_ps


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_no_profile_overlaps_more_than_all(share: float) -> None:
    with pytest.raises(InvalidHardware, match="overlap"):
        replace(H100, overlap=share)
