"""Training steps of the zoo: written, bound, formulated and solved, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import resource
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import solvers
from benchmarks.record import timed, write
from planner.choose.cost import PICO, CostModel
from planner.choose.formulate import formulate
from planner.choose.hardware import load
from planner.documents.graphs import graph_from
from planner.documents.schemas import GraphDocument
from planner.frontends.zoo import import_zoo
from planner.model.mesh import Mesh

HARDWARE = "h100-sxm"
GAP, SECONDS = 1e-3, 300.0
BATCH, SEQUENCE = 64, 2048
CASES = (
    ("llama-7b", 2, "dp=8,tp=8"),
    ("llama-7b", 8, "dp=8,tp=8"),
    ("llama-7b", 32, "dp=8,tp=8"),
    ("llama-7b", 2, "4x4x4"),
    ("mixtral-8x7b", 2, "dp=8,tp=8"),
)
WRITTEN = ("gpt2", "llama-7b", "llama-70b", "mixtral-8x7b")


def written(name: str) -> dict[str, Any]:
    """Seconds to write the document of a whole model's training step, and its size."""
    result: dict[str, Any] = {"model": name}
    with timed(result, "import_s"):
        document = import_zoo(name, train="adam")
    return result | {"nodes": len(document["nodes"]), "inputs": len(document["inputs"])}


def case(name: str, layers: int, mesh_text: str) -> dict[str, Any]:
    """Plan a training step with Adam, bf16, batch 64 x 2048."""
    result: dict[str, Any] = {"model": name, "layers": layers, "mesh": mesh_text, "hardware": HARDWARE}
    mesh, hardware = Mesh.parse(mesh_text), load(HARDWARE)
    with timed(result, "import_s"):
        document = import_zoo(name, layers=layers, batch=BATCH, seq=SEQUENCE, train="adam")
    with timed(result, "graph_s"):
        graph = graph_from(GraphDocument.model_validate(document), mesh)
    with timed(result, "formulate_s"):
        question = formulate(graph, CostModel(mesh, hardware), hardware.memory_bytes)
    with timed(result, "solve_s"):
        solution = solvers.solve(question.problem, gap=GAP, time_limit=SECONDS)
    return result | {
        "ops": len(graph.ops),
        "variables": len(question.variables),
        "strategies": sum(len(variable.costs) for variable in question.variables),
        "edges": len(question.problem.edges),
        "pair_cells": sum(edge.matrix.size for edge in question.problem.edges),
        "status": solution.status,
        "objective_s": None if solution.cost is None else solution.cost * PICO,
        "bound_s": solution.bound * PICO,
        "gap": solution.gap,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def main() -> None:
    """Measure everything and write results/zoo.json."""
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawned, max_tasks_per_child=1) as process:
        rows = [process.submit(case, *each).result() for each in CASES]
    settings = {"batch": BATCH, "sequence": SEQUENCE, "gap_asked": GAP, "time_limit_s": SECONDS}
    write("zoo", {**settings, "written": [written(name) for name in WRITTEN], "planned": rows})


if __name__ == "__main__":
    main()
