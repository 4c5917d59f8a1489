"""Training steps of Llama 7B in JAX: lowered, imported from StableHLO, and planned, with one process per case.

Seconds of conversion are CPU seconds of one process; the text is what `lower(...).as_text()` returns.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

from benchmarks.record import timed, write
from examples.jax_models import LLAMA_7B, Model, training
from planner import Request, pipeline
from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.frontends.stablehlo import import_text
from planner.ir.mesh import Mesh

HARDWARE, MESH, CUBE, BATCH = "h100-sxm", "dp=8,tp=8", "4x4x4", 64
GAP, SECONDS = 5e-3, 300.0
MODELS: dict[str, tuple[Model, str]] = {
    "unrolled, sgd": (LLAMA_7B, "sgd"),
    "unrolled, adam": (LLAMA_7B, "adam"),
    "scanned, adam": (replace(LLAMA_7B, scanned=True), "adam"),
}
PLANNED = {"scanned, adam": (MESH, CUBE), "unrolled, sgd": (MESH,)}


@contextmanager
def worked(result: dict[str, Any], key: str) -> Iterator[None]:
    """Store the CPU seconds of the context in result[key]."""
    start = time.process_time()
    yield
    result[key] = round(time.process_time() - start, 3)


def case(name: str) -> dict[str, Any]:
    """Convert a step; plan it on the meshes in PLANNED."""
    result: dict[str, Any] = {"model": name}
    model, optimizer = MODELS[name]
    with worked(result, "lower_cpu_s"):
        function, *arguments = training(model, BATCH, optimizer)
        text = function.lower(*arguments).as_text()
    with worked(result, "import_cpu_s"):
        document = import_text(text, name).document
    with worked(result, "graph_cpu_s"):
        graph = load_graph(GraphDocument.model_validate(document), Mesh.parse(MESH))
    stablehlo = sum(text.count(f" {dialect}") for dialect in ("stablehlo.", '"stablehlo.', "chlo.", "call @"))
    result |= {"stablehlo_ops": stablehlo, "characters": len(text), "nodes": len(graph.ops)}
    result["planned"] = [planned(document, mesh) for mesh in PLANNED.get(name, ())]
    return result | {"peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def planned(document: dict[str, Any], mesh_text: str) -> dict[str, Any]:
    """Plan a document and return the figures of each stage, and those of the named layouts."""
    result: dict[str, Any] = {"mesh": mesh_text}
    mesh = Mesh.parse(mesh_text)
    graph = load_graph(GraphDocument.model_validate(document), mesh)
    with worked(result, "plan_cpu_s"), timed(result, "plan_s"):
        plan = pipeline.plan(graph, mesh, load_profile(HARDWARE), request=Request(gap=GAP, time_limit_s=SECONDS))
    certificate = plan.certificate
    return result | {
        "status": certificate.status,
        "objective_s": certificate.objective_s,
        "bound_s": certificate.bound_s,
        "gap": certificate.gap,
        "solve_s": certificate.wall_s,
        "folding": None if certificate.folding is None else asdict(certificate.folding),
        "baselines_s": {each.name: each.step_s for each in plan.baselines},
    }


def main() -> None:
    """Measure everything and write results/jax_models.json."""
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawned, max_tasks_per_child=1) as process:
        rows = [process.submit(case, name).result() for name in MODELS]
    settings = {"hardware": HARDWARE, "batch": BATCH, "gap_asked": GAP, "time_limit_s": SECONDS}
    write("jax_models", {**settings, "steps": rows})


if __name__ == "__main__":
    main()
