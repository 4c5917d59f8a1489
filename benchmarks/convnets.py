"""Convolutional networks on one image: without a batch to split, the image is split and halos are exchanged."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from benchmarks.record import timed, write
from planner import Request, pipeline
from planner.choose.hardware import load_profile
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.run.validate import validate
from tests.testing.convnets import unet

MESHES = ("4", "2x2", "2x4", "2x2x2")


def planned(graph: Graph, mesh_text: str) -> dict[str, Any]:
    """Return the figures of the plan and of the named layouts, and the verdict of running the plan."""
    mesh, result = Mesh.parse(mesh_text), {"ops": len(graph.ops), "mesh": mesh_text}
    with timed(result, "plan_s"):
        plan = pipeline.plan(graph, mesh, load_profile("h100-sxm"), request=Request())
    assert plan.analysis is not None
    program = plan.analysis.program
    result["certificate"] = asdict(plan.certificate)
    result["baselines"] = [asdict(figures) for figures in plan.baselines]
    result["values_with_halos"] = sum(any(value.sharding.halo_sizes) for value in program.values.values())
    with timed(result, "validate_s"):
        result["verdict"] = asdict(validate(program))
    return result


def main() -> None:
    """Plan a U-Net on one image of 512 x 512 on every mesh, run it, and write results/convnets.json."""
    write("convnets", {"unet 512, 64 channels": [planned(unet(512, 64), mesh) for mesh in MESHES]})


if __name__ == "__main__":
    main()
