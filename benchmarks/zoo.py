"""Formulates and solves training steps of the zoo's models, each model in a process of its own.

Each step is solved with the hardware's memory first, then under limits that bind: shares of the first plan's peak, and
a little above the least limit known to be feasible. Each problem is solved by the solver alone, and through the folded
problem, as plans are.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import solvers
from benchmarks.record import timed, write
from benchmarks.solver_run import peak_bytes, processor_s
from planner.choose.cost import PICO, CostModel
from planner.choose.formulate import Formulation, formulate
from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.frontends.zoo import import_zoo
from planner.ir.mesh import Mesh
from planner.planning import folded_solve
from planner.planning.plan_types import Request

HARDWARE, SEQUENCE = "h100-sxm", 2048
SHARES, ABOVE_LEAST = (0.9, 0.75, 0.6), 1.02
WRITTEN = ("gpt2", "llama-7b", "llama-70b", "mixtral-8x7b")


Ask = Callable[[solvers.Problem, float, float], solvers.Solution]
"""Solves a problem to a relative gap within a number of seconds."""


@dataclass(frozen=True, slots=True)
class Case:
    """A model on a mesh; target gaps without and with a binding limit (None: not tried); seconds per solve."""

    model: str
    layers: int
    mesh: str
    batch: int = 64
    train: str | None = "adam"
    gap: float = 1e-3
    gap_limited: float | None = None
    seconds: float = 30.0


CASES = (
    Case("llama-7b", 2, "dp=8,tp=8"),
    Case("llama-7b", 8, "dp=8,tp=8", gap_limited=5e-3),
    Case("llama-7b", 32, "dp=8,tp=8", gap_limited=5e-3),
    Case("llama-7b", 32, "dp=8,tp=8", batch=16, gap_limited=5e-3),
    Case("llama-7b", 2, "4x4x4"),
    Case("llama-7b", 32, "4x4x4", gap=5e-3, gap_limited=5e-3, seconds=90.0),
    Case("mixtral-8x7b", 2, "dp=8,tp=8"),
    Case("mixtral-8x7b", 32, "dp=8,tp=8", gap=5e-3, seconds=60.0),
    Case("llama-70b", 80, "8x8x8", batch=16, train=None, gap=5e-3, seconds=120.0),
)


def written(name: str) -> dict[str, Any]:
    """Return the seconds to write a whole model's training step, and the size of the document."""
    result: dict[str, Any] = {"model": name}
    with timed(result, "import_s"):
        document = import_zoo(name, train="adam")
    return result | {"nodes": len(document["nodes"]), "inputs": len(document["inputs"])}


def measured(case: Case) -> dict[str, Any]:
    """Build and solve one case under each of its limits."""
    result: dict[str, Any] = asdict(case)
    mesh, hardware = Mesh.parse(case.mesh), load_profile(HARDWARE)
    with timed(result, "graph_s"):
        document = import_zoo(case.model, layers=case.layers, batch=case.batch, seq=SEQUENCE, train=case.train)
        graph = load_graph(GraphDocument.model_validate(document), mesh)
    began = time.process_time()
    with timed(result, "build_s"):
        question = formulate(graph, CostModel(mesh, hardware), hardware.memory_bytes)
    result |= {"build_cpu_s": round(time.process_time() - began, 3), "ops": len(graph.ops)} | _sizes(question)
    for key, ask in WAYS.items():
        result[key] = [_solved(question.problem, hardware.memory_bytes, case.gap, case.seconds, ask)]
    free = result["solved"][0]
    if case.gap_limited is not None and "peak_bytes" in free:
        least = _solved(question.problem, 0, case.gap_limited, case.seconds)
        result |= {key: least[key] for key in ("least_limit", "least_limit_bound")}
        limits = [int(share * free["peak_bytes"]) for share in SHARES]
        limits.append(int(ABOVE_LEAST * least["least_limit"]))
        feasible = [limit for limit in limits if limit >= least["least_limit"]]
        for key, ask in WAYS.items():
            result[key] += [_solved(question.problem, limit, case.gap_limited, case.seconds, ask) for limit in feasible]
    return result | {"peak_rss_bytes": peak_bytes()}


def _sizes(question: Formulation) -> dict[str, int]:
    layout = question.problem.arrays
    return {
        "variables": len(question.variables),
        "strategies": int(layout.node_start[-1]),
        "edges": int(layout.source.size),
        "pair_cells": int((layout.height * layout.width).sum()),
        "distinct_cells": int(layout.pair_cost.size),
    }


def _alone(problem: solvers.Problem, gap: float, seconds: float) -> solvers.Solution:
    return solvers.solve(problem, gap=gap, time_limit=seconds)


def _folded(problem: solvers.Problem, gap: float, seconds: float) -> solvers.Solution:
    return folded_solve.solve_folded(problem, Request(gap=gap, time_limit_s=seconds), ())[0]


WAYS: dict[str, Ask] = {"solved": _alone, "folded": _folded}


def _solved(problem: solvers.Problem, limit: int, gap: float, seconds: float, ask: Ask = _alone) -> dict[str, Any]:
    """Return wall and CPU seconds (of all threads and processes) of one solve, and the plan's peak."""
    result: dict[str, Any] = {"limit_bytes": limit, "gap_asked": gap}
    limited, began = solvers.Problem(problem.nodes, problem.edges, limit), processor_s()
    with timed(result, "solve_s"):
        found = ask(limited, gap, seconds)
    result |= {"cpu_s": round(processor_s() - began, 3), "status": found.status, "reason": found.reason}
    if found.assignment is None or found.cost is None:
        return result | {"least_limit": found.min_feasible_limit, "least_limit_bound": found.min_feasible_limit_bound}
    peak = solvers.evaluate(limited, found.assignment).peak
    return result | {
        "objective_s": found.cost * PICO,
        "bound_s": found.bound * PICO,
        "gap": found.gap,
        "peak_bytes": peak,
    }


def table(result: dict[str, Any]) -> str:
    """Return a Markdown table with a row per model and limit: the proven gap via folding, and by the solver alone."""
    head = "| model | mesh | batch | nodes | limit | target gap | via folding, as plans are | solver alone |"
    lines = [head, "|---" * 8 + "|"]
    for row in result["planned"]:
        step = ", Adam" if row["train"] else ", forward"
        model = f"{row['model']}, {row['layers']} layers{step} | {row['mesh']} | {row['batch']} | {row['variables']:,}"
        for found, alone in zip(row["folded"], row["solved"], strict=True):
            limit, asked = f"{found['limit_bytes'] / 1e9:.1f} GB", f"{100 * found['gap_asked']:g} %"
            lines.append(f"| {model} | {limit} | {asked} | {_shown(found)} | {_shown(alone)} |")
    return "\n".join(lines)


def _shown(found: dict[str, Any]) -> str:
    proven = "none found" if found.get("gap") is None else f"{100 * found['gap']:.2f} %"
    return f"{proven}, {found['solve_s']:.1f} s"


def main() -> None:
    """Measure everything, writing results/zoo.json after every case."""
    spawned, rows = multiprocessing.get_context("spawn"), list[dict[str, Any]]()
    known = {"hardware": HARDWARE, "sequence": SEQUENCE, "written": [written(name) for name in WRITTEN]}
    with ProcessPoolExecutor(1, mp_context=spawned, max_tasks_per_child=1) as process:
        for each in CASES:
            rows.append(process.submit(measured, each).result())
            write("zoo", {**known, "planned": rows})


if __name__ == "__main__":
    main()
