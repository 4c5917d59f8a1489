"""Measures the folding of repeated layers: its time, its loss, and its value as a warm start; one process per case.

`*_cpu_s` are CPU seconds of all threads. `folded` is the problem with equal layers tied, `from_folded` the unfolded one
that starts from its solution and proves the bound, `alone` the unfolded one without that start. `loss_bound` is the
share of the folded plan's cost that the unfolded bound leaves open: the loss is at most that.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

import solvers
from benchmarks.record import write
from planner.choose.cost import PICO, CostModel
from planner.choose.fold import RepeatedLayers
from planner.choose.formulate import formulate
from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.frontends.zoo import import_zoo
from planner.ir.mesh import Mesh

HARDWARE, GAP = "h100-sxm", 1e-3
FOLDED_SECONDS, SECONDS = 15.0, 30.0
BATCH, SEQUENCE, GIB = 64, 2048, 1 << 30
CASES = (
    ("llama-7b", "adam", "dp=8,tp=8", None),
    ("llama-7b", "adam", "dp=8,tp=8", 20),
    ("llama-7b", "adam", "dp=8,tp=8", 14),
    ("llama-7b", "adam", "4x4x4", None),
    ("mixtral-8x7b", "adam", "dp=8,tp=8", None),
    ("llama-70b", None, "8x8x8", None),
)


@contextmanager
def cpu(result: dict[str, Any], key: str) -> Iterator[None]:
    """Store the CPU seconds of the context in result[key]."""
    start = time.process_time()
    yield
    result[key] = round(time.process_time() - start, 2)


def solved(problem: solvers.Problem, seconds: float, starts: Sequence[Sequence[int]] = ()) -> dict[str, Any]:
    """Solve a problem and return the figures."""
    result: dict[str, Any] = {"nodes": len(problem.nodes), "edges": len(problem.edges)}
    with cpu(result, "cpu_s"):
        found = solvers.solve(problem, gap=GAP, time_limit=seconds, starts=starts)
    objective = None if found.cost is None else found.cost * PICO
    return {
        **result,
        "wall_s": round(found.wall_s, 2),
        "status": found.status,
        "objective_s": objective,
        "bound_s": found.bound * PICO,
        "gap": found.gap,
        "choice": found.assignment,
    }


def case(name: str, train: str | None, mesh_text: str, limit_gib: int | None) -> dict[str, Any]:
    """Measure one whole model on one mesh, bf16, batch 64 x 2048."""
    result: dict[str, Any] = {"model": name, "train": train, "mesh": mesh_text, "limit_gib": limit_gib}
    mesh, hardware = Mesh.parse(mesh_text), load_profile(HARDWARE)
    graph = load_graph(GraphDocument.model_validate(import_zoo(name, batch=BATCH, seq=SEQUENCE, train=train)), mesh)
    with cpu(result, "formulate_cpu_s"):
        limit = hardware.memory_bytes if limit_gib is None else limit_gib * GIB
        problem = formulate(graph, CostModel(mesh, hardware), limit).problem
    with cpu(result, "fold_cpu_s"):
        layers = RepeatedLayers.of(problem)
        folded = layers.quotient()
    result |= {"layers": list(layers.counts), "moments": problem.arrays.time_steps}
    result["folded_moments"] = folded.problem.arrays.time_steps
    first = solved(folded.problem, FOLDED_SECONDS)
    choice = first.pop("choice")
    then = solved(problem, SECONDS, [] if choice is None else [folded.unfold_choice(choice)])
    alone = solved(problem, FOLDED_SECONDS + SECONDS)
    then.pop("choice"), alone.pop("choice")
    if choice is not None:
        result["loss_bound"] = 1 - max(then["bound_s"], alone["bound_s"]) / first["objective_s"]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {**result, "folded": first, "from_folded": then, "alone": alone, "peak_rss_bytes": peak}


def main() -> None:
    """Measure everything and write results/folding.json."""
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawned, max_tasks_per_child=1) as process:
        rows = [process.submit(case, *each).result() for each in CASES]
    limits = {"folded_time_limit_s": FOLDED_SECONDS, "time_limit_s": SECONDS}
    write(
        "folding",
        {"hardware": HARDWARE, "batch": BATCH, "sequence": SEQUENCE, "gap_asked": GAP, **limits, "cases": rows},
    )


if __name__ == "__main__":
    main()
