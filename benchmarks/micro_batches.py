"""Measures planning of whole updates: Llama-70B with Adam, 512 sequences of 4,096 tokens, on 256 to 1,024 H100.

The graph is one micro-batch of a sequence for each index of `dp`; the micro-batches, and the layout in which gradients
are accumulated, follow from the global batch. One process per plan. `plan_*` is the call `planner.pipeline.plan`,
`validate_*` running the plan on the smaller sizes and mesh that `validate` chooses by itself.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from benchmarks.record import write
from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.frontends.zoo import import_zoo
from planner.ir.mesh import Mesh
from planner.pipeline import plan, validate_plan
from planner.planning.plan_types import Request
from planner.units import format_share

MODEL, HARDWARE = "llama-70b", "h100-sxm"
GLOBAL_BATCH, SEQ, TP = 512, 4096, 8
DEVICES = (256, 512, 1024)
GAP, SECONDS = 1e-3, 60.0


def case(devices: int) -> dict[str, Any]:
    """Plan and validate on a number of devices, and return the figures."""
    dp = devices // TP
    mesh = Mesh.parse(f"dp={dp},tp={TP}")
    graph = load_graph(GraphDocument.model_validate(import_zoo(MODEL, batch=dp, seq=SEQ, train="adam")), mesh)
    request = Request(gap=GAP, time_limit_s=SECONDS, global_batch=GLOBAL_BATCH)
    start, cpu = time.perf_counter(), time.process_time()
    found = plan(graph, mesh, load_profile(HARDWARE), request=request)
    planned, planned_cpu = time.perf_counter(), time.process_time()
    row: dict[str, Any] = {
        "mesh": mesh.notation,
        "devices": devices,
        "microbatches": GLOBAL_BATCH // dp,
        "status": found.certificate.status,
        "gap": found.certificate.gap,
        "step_s": found.certificate.objective_s,
        "plan_s": round(planned - start, 1),
        "plan_cpu_s": round(planned_cpu - cpu, 1),
    }
    if found.analysis is not None:
        verdict = validate_plan(found).verdict
        row |= {
            "peak_memory_bytes": found.analysis.peak_bytes,
            "verdict": None if verdict is None else verdict.verdict,
            "validate_s": round(time.perf_counter() - planned, 1),
            "validate_cpu_s": round(time.process_time() - planned_cpu, 1),
        }
    return row | {"peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def main() -> None:
    """Measure everything and write results/micro_batches.json."""
    load = os.getloadavg()[0]
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawned, max_tasks_per_child=1) as process:
        rows = [process.submit(case, devices).result() for devices in DEVICES]
    sizes = {"model": MODEL, "hardware": HARDWARE, "global_batch": GLOBAL_BATCH, "seq": SEQ}
    write("micro_batches", {**sizes, "gap_asked": GAP, "time_limit_s": SECONDS, "load_before": load, "rows": rows})


def table(result: dict[str, Any]) -> str:
    """Return the rows as a page shows them."""
    lines = [
        "| mesh | micro-batches | step | gap proven | peak memory | planned, s (CPU s) | run, CPU s | verdict |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['mesh']} | {row['microbatches']} | {row['step_s']:.2f} s | {format_share(row['gap'])} | "
        f"{row['peak_memory_bytes'] / 2**30:.1f} GiB | {row['plan_s']:.0f} ({row['plan_cpu_s']:.0f}) | "
        f"{row['validate_cpu_s']:.0f} | {row['verdict']} |"
        for row in result["rows"]
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
