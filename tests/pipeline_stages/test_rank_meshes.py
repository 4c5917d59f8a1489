"""Stages whose ranks have meshes of different shapes: planned, written, read, explained and compared as others are."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from planner import explain_pipeline
from planner.choose.cost import CostModel
from planner.choose.hardware import load_profile
from planner.documents.canonical_json import digest_document
from planner.documents.diff import compare_documents, load_regression
from planner.documents.graphs import load_graph
from planner.documents.pipeline_sections import PipelineDocument
from planner.documents.pipelines import dump_pipeline, load_pipeline, load_pipeline_request, parse_pipeline
from planner.documents.schemas import GraphDocument
from planner.errors import InvalidDocument, InvalidRequest
from planner.frontends.zoo import import_zoo
from planner.ir.graph import Annotation, Graph
from planner.ir.mesh import Mesh
from planner.ir.program import Reshard
from planner.ir.sharding import Sharding
from planner.judge.check.limits import parse_limits
from planner.judge.check.measures import measure_change
from planner.pipeline_stages.cuts import find_units
from planner.pipeline_stages.pipeline_plan import PipelinePlan, list_sends, number_devices
from planner.pipeline_stages.plan_pipeline import plan_pipeline, price_stages
from planner.pipeline_stages.rank_costs import RankCosts
from planner.pipeline_stages.request import PipelineRequest
from planner.pipeline_stages.stage_costs import StageCosts
from planner.planning.deadline import Deadline
from planner.planning.plan_types import Request
from planner.reshard.cross_mesh import PlacedSharding
from planner.reshard.cross_mesh_cost import CrossMeshReshard
from planner.usecases.check import compare_plans

HARDWARE = load_profile("h100-sxm")
TIGHT = 60_000
"""Bytes a device, which whole parameters on each device exceed."""
SMALL, LARGE, FLAT = Mesh.parse("dp=1,tp=2"), Mesh.parse("dp=2,tp=2"), Mesh.parse("2")


@cache
def tiny(name: str = "llama-7b", feed_forward: int = 32) -> Graph:
    sizes: dict[str, Any] = {"width": 16, "heads": 4, "vocabulary": 24, "batch": 4, "seq": 8, "layers": 2}
    sizes |= {"feed_forward": feed_forward} if name == "llama-7b" else {}
    return load_graph(GraphDocument.model_validate(import_zoo(name, train="sgd", dtype="f32", **sizes)), SMALL)


@cache
def plan_on(
    *meshes: Mesh,
    name: str = "llama-7b",
    schedule: Any = "1f1b",
    chunks: int = 1,
    feed_forward: int = 32,
    limit: int | None = None,
) -> tuple[PipelinePlan, PipelineRequest]:
    asked = PipelineRequest(len(meshes), schedule, chunks, meshes)
    graph, request = tiny(name, feed_forward), Request(limit, microbatches=6, gap=0.2, deterministic=True)
    return plan_pipeline(graph, meshes[0], HARDWARE, pipeline=asked, request=request), asked


def write(plan: PipelinePlan, asked: PipelineRequest) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(dump_pipeline(plan, asked)))
    return document


def read(plan: PipelinePlan, asked: PipelineRequest) -> PipelineDocument:
    return parse_pipeline(write(plan, asked), "plan")


CASES: list[tuple[tuple[Mesh, ...], dict[str, Any]]] = [
    ((SMALL, LARGE), {}),
    ((LARGE, SMALL), {"schedule": "zb-h1"}),
    ((LARGE, FLAT, SMALL), {"schedule": "gpipe"}),
    ((SMALL, FLAT), {"schedule": "interleaved", "chunks": 2}),
    ((SMALL, LARGE), {"name": "gpt2"}),
]


@pytest.mark.parametrize(("meshes", "sizes"), CASES)
def test_a_plan_is_written_and_read_back(meshes: tuple[Mesh, ...], sizes: dict[str, Any]) -> None:
    plan, asked = plan_on(*meshes, **sizes)
    document = read(plan, asked)
    again = load_pipeline(document)
    assert load_pipeline_request(document) == asked
    assert again.meshes == plan.meshes == tuple(replace(mesh, device=meshes[0].device) for mesh in meshes)
    assert again.devices == sum(mesh.devices for mesh in meshes) == document.model_dump()["cost"]["devices"]
    assert again.timeline == plan.timeline
    assert [one.analysis.program.mesh for one in again.stages] == [
        meshes[number % len(meshes)] for number in range(len(plan.stages))
    ]
    assert plan.certificate.bound_s <= plan.step_s


def test_ranks_with_equal_meshes_share_their_plans() -> None:
    plan, _ = plan_on(SMALL, LARGE, LARGE)
    models = [one.plan.model for one in plan.stages]
    costs = RankCosts.of(
        models, lambda model: StageCosts(find_units(plan.graph), model, plan.request, 6, False, 1, Deadline())
    )
    assert costs.of_stage(1) is costs.of_stage(2) is not costs.of_stage(0)
    assert len(costs.distinct) == 2


@pytest.mark.parametrize("span", [4, 3])
def test_sends_are_priced_between_the_devices_that_ranks_have(span: int) -> None:
    """Tiers of the network join ranks of unequal sizes differently, so that no send stands for another wrongly."""
    nearest, *others = HARDWARE.tiers
    hardware = replace(HARDWARE, tiers=(replace(nearest, devices=span), *others))
    meshes = (FLAT, Mesh.parse("1"), LARGE, FLAT)
    asked = PipelineRequest(4, meshes=meshes)
    plan = plan_pipeline(tiny(), FLAT, hardware, pipeline=asked, request=Request(microbatches=4, gap=0.9))
    for send in list_sends(plan.stages, 4):
        placed = [
            PlacedSharding(layout, meshes[rank], number_devices(meshes, rank))
            for rank, layout in (
                (send.source, plan.stages[send.source].sent_as(send.value)),
                (send.target, plan.stages[send.target].received_as(send.value)),
            )
        ]
        kind = plan.graph.types[send.value]
        wanted = CrossMeshReshard(placed[0], placed[1], kind, plan.model.hardware)
        assert send.reshard.time_ps == wanted.time_ps
        assert send.received_bytes == int(wanted.received.sum())


def test_a_unit_that_fits_some_ranks_only_is_bounded_on_the_others() -> None:
    model = price_stages(CostModel(SMALL, HARDWARE))
    units = find_units(tiny())
    costs = RankCosts(tuple(StageCosts(units, model, Request(gap=0.0), 4, False, 1, Deadline()) for _ in range(2)))
    small, large = costs.by_rank
    before = costs.matrix(0, "step").copy()
    small.is_unfit[1] = True
    bounds = costs.matrix(0, "step")
    assert np.isinf(bounds[:2, 2:]).all()
    assert (bounds[2:, 3:] == before[2:, 3:]).all()
    assert np.isfinite(costs.matrix(1, "step")[0, -1])
    assert not costs.is_hopeless
    large.is_unfit[1] = True
    assert costs.is_hopeless


def test_an_explanation_moves_cuts_between_meshes() -> None:
    plan, _ = plan_on(SMALL, LARGE)
    (cut,) = explain_pipeline(plan).cuts
    assert all(move.step_ps is None or move.step_ps >= move.bound_ps for move in cut.moves if move.bound_ps)
    assert any(move.step_ps for move in cut.moves)


def test_plans_on_other_axes_are_compared() -> None:
    base, new = read(*plan_on(SMALL, FLAT, limit=TIGHT)), read(*plan_on(LARGE, FLAT, limit=TIGHT))
    ends = [term[side] for term in compare_documents(base, new)["terms"] for side in ("base", "new") if term[side]]
    assert {axis for end in ends for moved in end["collectives"] for axis in moved["axes"]} == {"dp", "tp"}
    with pytest.raises(InvalidRequest, match="plans of another mesh cannot be compared"):
        compare_plans(base, new)


def test_limits_are_checked_along_the_axes_of_each_rank() -> None:
    plans = plan_on(SMALL, FLAT, limit=TIGHT), plan_on(SMALL, FLAT, limit=TIGHT, feed_forward=24)
    diff = load_regression(read(*plans[0]), read(*plans[1]))
    assert diff is not None
    measured = [measure_change(diff, limit) for limit in parse_limits("time[tp]>5%,time[0]>5%")]
    for place, change in zip((0, 1), measured, strict=True):
        own = plans[0][0].stages[place].analysis
        sent = [isinstance(done, Reshard) for done in own.program.instructions]
        assert change.base == sum(time for time, is_sent in zip(own.times_ps, sent, strict=True) if is_sent)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"stages": 3, "meshes": (SMALL, LARGE)}, r"meshes of pipeline stages \(got 2; wanted 3, one mesh for each rank"),
    ({"stages": None, "meshes": (SMALL, LARGE)}, "meshes of pipeline stages.*a number of stages"),
]


@pytest.mark.parametrize(("sizes", "words"), REFUSED)
def test_ranks_without_a_mesh_are_refused(sizes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        PipelineRequest(**sizes)


def test_what_cannot_be_on_different_meshes_is_refused() -> None:
    asked, request = PipelineRequest(2, meshes=(SMALL, FLAT)), Request(microbatches=4)
    with pytest.raises(InvalidRequest, match=r"mesh of a pipeline \(got 0=2; wanted dp=1,tp=2, that of the first rank"):
        plan_pipeline(tiny(), FLAT, HARDWARE, pipeline=asked, request=request)
    with pytest.raises(InvalidRequest, match=r"pins or a layout of a pipeline \(got a rank on 0=2; wanted .*dp, tp"):
        plan_pipeline(tiny(), SMALL, HARDWARE, pipeline=asked, request=replace(request, layout="dp"))
    value = tiny().outputs[0]
    pinned = replace(tiny(), annotations=(Annotation(value, Sharding(())),))
    with pytest.raises(InvalidRequest, match="pins or a layout of a pipeline"):
        plan_pipeline(pinned, SMALL, HARDWARE, pipeline=asked, request=request)


def test_a_stage_on_another_mesh_than_its_rank_is_refused() -> None:
    document = write(*plan_on(SMALL, LARGE))
    document["request"]["pipeline"]["meshes"] = ["dp=1,tp=2", "dp=4,tp=1"]
    rest = {key: value for key, value in document.items() if key != "digest"}
    document["digest"] = digest_document(rest)
    with pytest.raises(InvalidDocument, match=r"mesh of a stage .*got dp=2,tp=2; wanted dp=4,tp=1"):
        load_pipeline(parse_pipeline(document, "plan"))


@pytest.mark.parametrize("text", ["2x2/", "2x2/a=b", "/"])
def test_meshes_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(Exception, match="mesh"):
        PipelineRequest.parse(None, "1f1b", None, text)


def test_meshes_are_read_as_they_are_written() -> None:
    asked = PipelineRequest.parse(None, "1f1b", None, "2x4/dp=2,tp=2")
    assert asked == PipelineRequest(2, meshes=(Mesh.parse("2x4"), Mesh.parse("dp=2,tp=2")))
