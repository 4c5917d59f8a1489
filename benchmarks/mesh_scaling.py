"""Measures how planning grows with the devices and the axes of a mesh: seconds and peak memory, one process per plan.

`devices`: one layer of Llama-70B, Adam, bf16, on dp=N/8,tp=8 with N from 2^3 to 2^20 devices. All meshes get the same
problem: the batch is as large as the largest dp, and memory has no limit. `axes`: GPT-2, Adam, on 64 devices in one to
six axes. `steps`: a training step of Llama-7B on meshes of four axes. The time of a plan is that of the whole call
`planner.pipeline.plan`: formulating, solving, writing the program, and pricing the standard layouts. The whole takes
five minutes on an idle machine.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from benchmarks.record import write
from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.frontends.zoo import import_zoo
from planner.ir.mesh import Mesh
from planner.pipeline import plan
from planner.planning.plan_types import Request
from planner.units import format_share

HARDWARE, SECONDS = "h100-sxm", 120.0
DEVICES = tuple(f"dp={1 << power},tp=8" for power in (0, 3, 5, 8, 11, 14, 17))
AXES = ("64", "8x8", "4x4x4", "2x2x4x4", "2x2x2x2x4", "2x2x2x2x2x2")
STEPS = ("2x2x2x2", "4x4x4x4", "2x8x8x4")


@dataclass(frozen=True, slots=True)
class Model:
    """A model of the zoo, its sizes, and the gap that is asked for."""

    name: str
    batch: int
    seq: int
    layers: int | None
    gap: float
    limit_bytes: int | None = None


LLAMA_LAYER = Model("llama-70b", 1 << 17, 2048, 1, 1e-3, limit_bytes=1 << 60)
GPT2 = Model("gpt2", 64, 512, None, 1e-2)
LLAMA = Model("llama-7b", 64, 2048, None, 1e-2)


def case(model: Model, mesh_text: str) -> dict[str, Any]:
    """Plan a model on a mesh and return its figures."""
    mesh, hardware = Mesh.parse(mesh_text), load_profile(HARDWARE)
    document = import_zoo(model.name, batch=model.batch, seq=model.seq, layers=model.layers, train="adam")
    graph = load_graph(GraphDocument.model_validate(document), mesh)
    start, cpu = time.perf_counter(), time.process_time()
    found = plan(graph, mesh, hardware, request=Request(model.limit_bytes, model.gap, SECONDS))
    return {
        "model": model.name,
        "mesh": mesh_text,
        "devices": mesh.devices,
        "axes": len(mesh.axes),
        "gap_asked": model.gap,
        "status": found.certificate.status,
        "gap": found.certificate.gap,
        "step_s": found.certificate.objective_s,
        "wall_s": round(time.perf_counter() - start, 2),
        "cpu_s": round(time.process_time() - cpu, 2),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def main() -> None:
    """Measure everything and write results/mesh_scaling.json."""
    cases = {
        "devices": [(LLAMA_LAYER, mesh) for mesh in DEVICES],
        "axes": [(GPT2, mesh) for mesh in AXES],
        "steps": [(LLAMA, mesh) for mesh in STEPS],
    }
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawned, max_tasks_per_child=1) as process:
        rows = {what: [process.submit(case, *each).result() for each in listed] for what, listed in cases.items()}
    write("mesh_scaling", {"hardware": HARDWARE, "time_limit_s": SECONDS, **rows})


def table(result: dict[str, Any]) -> str:
    """Return the rows as a page shows them."""
    lines = [
        "| model | mesh | devices | gap asked | gap proven | seconds | peak memory |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['model']} | {row['mesh']} | {row['devices']:,} | {100 * row['gap_asked']:.1f} % | "
        f"{format_share(row['gap'])} | {row['wall_s']:.1f} | "
        f"{row['peak_rss_bytes'] / 2**30:.2f} GiB |"
        for what in ("devices", "axes", "steps")
        for row in result[what]
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
