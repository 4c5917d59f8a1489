"""Measures the main job: GPT-2 planned, proven and run; a 4-block transformer on three meshes; the command's start.

Every entry is measured in a process of its own, so that start-up, imports and loading the compiled solver
count. `cold` is the very first use after installation, when the solver is compiled.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import solvers
from benchmarks.record import timed, write
from planner import Request, pipeline
from planner.choose.cost import CostModel
from planner.choose.formulate import formulate
from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph, read_graph
from planner.documents.schemas import GraphDocument
from planner.ir.mesh import Mesh
from planner.run.validate import validate
from tests.testing.transformer import transformer

EXAMPLE = Path(__file__).parents[1] / "examples" / "gpt2.json.gz"
MESH = "dp=2,tp=4"
LIMITED = 400_000_000
GAP, PROVEN = Request().gap, 1e-6
MESHES = ("8", "2x4", "2x2x2")


def demo(limit: int | None, gap: float = GAP) -> dict[str, Any]:
    """Plan GPT-2 small, batch 8 x 512, as exported by PyTorch; run it in f64 and f32; compare with named layouts."""
    result: dict[str, Any] = {"graph": "gpt2 forward, batch 8, sequence 512", "mesh": MESH, "memory_limit_bytes": limit}
    mesh, request = Mesh.parse(MESH), Request(limit, gap=gap)
    with timed(result, "plan_s"):
        plan = pipeline.plan(read_graph(EXAMPLE, mesh), mesh, load_profile("h100-sxm"), request=request)
    result["certificate"] = asdict(plan.certificate)
    result["baselines"] = [asdict(figures) for figures in plan.baselines]
    assert plan.analysis is not None
    best = plan.certificate.objective_s
    result["peak_bytes"] = plan.analysis.peak_bytes
    result["no_named_layout_that_fits_is_faster"] = all(
        best is not None and best <= figures.step_s for figures in plan.baselines if figures.fits
    )
    for precision in ("f64", "f32"):
        with timed(result, f"validate_{precision}_s"):
            verdict = validate(plan.analysis.program, precision=precision)
        result[f"verdict_{precision}"] = asdict(verdict)
    return result


def blocks(mesh_text: str) -> dict[str, Any]:
    """Build and solve a forward transformer of 4 blocks: d 1024, ff 4096, 16 heads, batch 32 x 128, f32."""
    result: dict[str, Any] = {"graph": "transformer, 4 blocks, forward", "mesh": mesh_text}
    mesh = Mesh.parse(mesh_text)
    document = GraphDocument.model_validate(transformer())
    start = time.perf_counter()
    with timed(result, "formulate_s"):
        graph = load_graph(document, mesh)
        question = formulate(graph, CostModel(mesh, load_profile("h100-sxm")), load_profile("h100-sxm").memory_bytes)
    with timed(result, "solve_s"):
        solution = solvers.solve(question.problem, gap=1e-6)
    result["build_and_solve_s"] = round(time.perf_counter() - start, 3)
    result |= {
        "ops": len(graph.ops),
        "variables": len(question.variables),
        "strategies": sum(len(variable.costs) for variable in question.variables),
        "edges": len(question.problem.edges),
        "pair_cells": question.problem.arrays.pairs,
        "status": solution.status,
        "cost_ps": solution.cost,
        "bound_ps": solution.bound,
        "gap": solution.gap,
    }
    return result


def in_own_process(call: str, **environment: str) -> dict[str, Any]:
    """Run one entry in a fresh interpreter and return its result."""
    code = f"import json; from benchmarks import headline; print(json.dumps(headline.{call}))"
    start = time.perf_counter()
    environment = {**os.environ, **environment}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**found, "process_s": round(time.perf_counter() - start, 3)}


def start_up() -> dict[str, float]:
    """Return the best and worst wall seconds of three runs of `shardplan --help`."""
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "api", "--help"], check=True, capture_output=True)
        seconds.append(round(time.perf_counter() - start, 3))
    return {"best_s": min(seconds), "worst_s": max(seconds)}


def table(result: dict[str, Any]) -> str:
    """Return the result as a Markdown table."""
    rows = ["| case | mesh | build + solve | status | gap |", "|---|---|---|---|---|"]
    cases = {
        "demo": "GPT-2 small, batch 8 x 512",
        "demo_limited": "the same in 400 MB a device",
        "demo_proven": f"the same, proven to {PROVEN:g}",
    }
    for case, name in cases.items():
        found = result[case]
        proof = found["certificate"]
        rows.append(f"| {name} | {found['mesh']} | {found['plan_s']:.1f} s | {proof['status']} | {proof['gap']:.0e} |")
    for found in result["blocks"]:
        seconds = f"{found['build_and_solve_s']:.1f} s"
        rows.append(f"| {found['graph']} | {found['mesh']} | {seconds} | {found['status']} | {found['gap']:.0e} |")
    return "\n".join(rows)


def main() -> None:
    """Measure everything and write results/headline.json."""
    with tempfile.TemporaryDirectory() as cache:
        cold = in_own_process("demo(None)", NUMBA_CACHE_DIR=cache)
    result = {
        "demo_cold": {key: cold[key] for key in ("plan_s", "process_s")},
        "demo": in_own_process("demo(None)"),
        "demo_limited": in_own_process(f"demo({LIMITED})"),
        "demo_proven": in_own_process(f"demo({LIMITED}, gap={PROVEN})"),
        "blocks": [in_own_process(f"blocks({mesh!r})") for mesh in MESHES],
        "help": start_up(),
    }
    write("headline", result)


if __name__ == "__main__":
    main()
