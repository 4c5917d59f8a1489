"""What a stage sends costs what an exchange between the devices of its own two ranks costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from planner.choose.hardware import Tier, load_profile
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.frontends.zoo import import_zoo
from planner.ir.collectives import Collective
from planner.ir.mesh import Mesh
from planner.ir.program import Reshard
from planner.pipeline_stages.pipeline_plan import number_devices
from planner.pipeline_stages.plan_pipeline import plan_pipeline
from planner.pipeline_stages.received_parts import PartsReceiver
from planner.pipeline_stages.request import PipelineRequest
from planner.pipeline_stages.validate import validate_pipeline
from planner.planning.plan_types import Plan, Request
from planner.reshard.cross_mesh import PlacedSharding
from planner.reshard.cross_mesh_cost import CrossMeshReshard

MESH, PROFILE = Mesh.parse("2"), load_profile("h100-sxm")
NODES = (4, 8, 3)
"""Devices of a node: two ranks, all ranks, and a rank and a half."""


def list_other_moves(plan: Plan, values: Sequence[str]) -> list[Collective]:
    """Return the collectives of a plan's program that do not move these values."""
    assert plan.analysis is not None
    moved = {plan.graph.types[value] for value in values}
    program = plan.analysis.program
    done = (each for each in program.instructions if isinstance(each, Reshard))
    return [each.collective for each in done if program.values[each.operand].type not in moved]


@pytest.mark.parametrize("node", NODES)
def test_a_send_costs_what_it_does_between_the_devices_of_its_ranks(node: int) -> None:
    hardware = replace(PROFILE, tiers=(Tier("nvlink", node), Tier("infiniband", None)))
    document = import_zoo(
        "llama-7b", train="sgd", layers=2, width=16, heads=4, vocabulary=24, batch=4, seq=8, dtype="f32"
    )
    graph = load_graph(GraphDocument.model_validate(document), MESH)
    plan = plan_pipeline(graph, MESH, hardware, pipeline=PipelineRequest(4), request=Request(microbatches=4))
    assert len(plan.sends) == 6
    for send in plan.sends:
        source, target = plan.stages[send.source], plan.stages[send.target]
        placed = [
            PlacedSharding(layout, MESH, number_devices([MESH] * (rank + 1), rank))
            for layout, rank in (
                (source.sent_as(send.value), send.source),
                (target.received_as(send.value), send.target),
            )
        ]
        alone = CrossMeshReshard(placed[0], placed[1], source.stage.graph.types[send.value], hardware)
        assert (send.reshard.time_ps, send.received_bytes) == (alone.time_ps, int(alone.received.sum()))


def test_a_stage_receives_in_parts_on_all_devices_and_computes_the_same() -> None:
    mesh = Mesh.parse("2x2")
    document = import_zoo(
        "llama-7b", train="sgd", layers=2, width=16, heads=4, vocabulary=24, batch=4, seq=8, dtype="f32"
    )
    graph = load_graph(GraphDocument.model_validate(document), mesh)
    plan = plan_pipeline(graph, mesh, PROFILE, pipeline=PipelineRequest(2), request=Request(microbatches=4))
    parts, stages = PartsReceiver(), []
    for one in plan.stages:
        values = (*one.stage.received, *one.stage.received_gradients)
        found = replace(one, plan=parts.receive_in_parts(one.plan, values))
        stages.append(found)
        assert found.analysis.step_ps >= one.analysis.step_ps
        assert found.plan.certificate.bound_s == one.plan.certificate.bound_s
        assert found.plan.certificate.objective_s == pytest.approx(found.analysis.step_ps * 1e-12)
        assert list_other_moves(found.plan, values) == list_other_moves(one.plan, values)
        for value in values:
            split = [axis for axes in found.received_as(value).split_axes for axis in axes]
            assert sorted(split) == [0, 1]
    changed = replace(plan, stages=tuple(stages))
    assert max(s.reshard.time_ps for s in changed.sends) <= max(s.reshard.time_ps for s in plan.sends)
    checked = validate_pipeline(changed).verdict
    assert checked is not None
    assert checked.verdict == "equal"


def test_what_the_search_receives_in_parts_makes_no_step_longer() -> None:
    document = import_zoo("llama-7b", train="sgd", layers=4, width=256, heads=4, vocabulary=64, batch=4, seq=64)
    mesh = Mesh.parse("2x2")
    graph = load_graph(GraphDocument.model_validate(document), mesh)
    plan = plan_pipeline(graph, mesh, PROFILE, pipeline=PipelineRequest(2), request=Request(microbatches=4))
    assert plan.certificate.objective_s == pytest.approx(plan.step_s)
    assert plan.certificate.bound_s <= plan.step_s
