"""What a stage sends costs what an exchange between the devices of its own two ranks costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.choose.hardware import Tier, load_profile
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.frontends.zoo import import_zoo
from planner.ir.mesh import Mesh
from planner.pipeline_stages.pipeline_plan import number_devices
from planner.pipeline_stages.plan_pipeline import plan_pipeline
from planner.pipeline_stages.request import PipelineRequest
from planner.planning.plan_types import Request
from planner.reshard.cross_mesh import PlacedSharding
from planner.reshard.cross_mesh_cost import CrossMeshReshard

MESH, PROFILE = Mesh.parse("2"), load_profile("h100-sxm")
NODES = (4, 8, 3)
"""Devices of a node: two ranks, all ranks, and a rank and a half."""


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
            PlacedSharding(layout, MESH, number_devices(MESH, rank))
            for layout, rank in (
                (source.sent_as(send.value), send.source),
                (target.received_as(send.value), send.target),
            )
        ]
        alone = CrossMeshReshard(placed[0], placed[1], source.stage.graph.types[send.value], hardware)
        assert (send.reshard.time_ps, send.received_bytes) == (alone.time_ps, int(alone.received.sum()))
