"""Whether a plan's numbers are what they say: memory to the byte, times to the picosecond, reasons within seconds.

`python -m benchmarks.accounts`: random graphs, the shipped example and small training steps of every family are planned
and run on all logical devices; counted bytes and peaks are held against the predicted ones, device by device, and the
times of instructions against the solver's cost. Then ops of a 7B training step's plan are explained.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from benchmarks.random_graphs import random_graph
from benchmarks.record import write
from planner import pipeline
from planner.choose.cost import PICO
from planner.choose.hardware import load
from planner.documents.explanations import decision_document, explained
from planner.documents.graphs import graph_from, read_graph
from planner.documents.plans import checked_plan, plan_document
from planner.documents.schemas import GraphDocument
from planner.frontends.zoo import import_zoo
from planner.model.accounts import live_bytes, received_bytes
from planner.model.graph import Graph
from planner.model.mesh import Mesh
from planner.plans import Plan, Request
from planner.run.shrink import shrink
from planner.run.validate import executed

RANDOM = 200
EXAMPLE = Path(__file__).parent.parent / "examples" / "gpt2.json.gz"
FAMILIES = ("gpt2", "llama-7b", "mixtral-8x7b")
SMALL = {"layers": 1, "width": 64, "heads": 4, "feed_forward": 128, "vocabulary": 96, "batch": 8, "seq": 16}
HARDWARE, GAP, SOLVING = "h100-sxm", 1e-3, 4.0
EXPLAINED, OPTIONS, SECONDS = 12, 8, 4.0
LARGE: dict[str, Any] = {"batch": 64, "seq": 2048, "train": "adam"}


def problems() -> Iterator[tuple[str, Graph, Mesh]]:
    """Graphs and meshes to plan."""
    for seed in range(RANDOM):
        graph, mesh = random_graph(seed)
        yield f"random {seed}", replace(graph, annotations=()), mesh
    for text in ("2x4", "8"):
        mesh = Mesh.parse(text)
        yield f"example on {text}", read_graph(EXAMPLE, mesh), mesh
        for family in FAMILIES:
            document = import_zoo(family, dtype="f32", train="adam", **SMALL)
            yield f"{family} training on {text}", graph_from(GraphDocument.model_validate(document), mesh), mesh


def faults(plan: Plan) -> list[str]:
    """What of a plan's numbers is not as it is run and added up."""
    assert plan.analysis is not None
    program = shrink(plan.analysis.program)
    verdict, done = executed(program, "numpy", "f64")
    cost = round((plan.certificate.objective_s or 0.0) / PICO)
    right = {
        "result": verdict.verdict == "equal",
        "peak": bool((done.peak == live_bytes(program).max(axis=0)).all()),
        "received": bool((done.received == received_bytes(program)).all()),
        "terms": sum(plan.analysis.times_ps) == cost,
    }
    return [what for what, fine in right.items() if not fine]


def accounts() -> dict[str, Any]:
    """How many plans were run, and those whose numbers were wrong. Models are planned once more under a limit."""
    wrong: list[str] = []
    plans = 0
    for name, graph, mesh in problems():
        first = _planned(graph, mesh, None)
        least = min((figures.peak_bytes for figures in first.baselines), default=0)
        second = [] if name.startswith("random") else [_planned(graph, mesh, least)]
        for plan in (first, *second):
            if plan.analysis is not None:
                plans += 1
                wrong += [f"{name}, {plan.limit_bytes} bytes: {what}" for what in faults(plan)]
    return {"random_graphs": RANDOM, "plans": plans, "wrong": wrong}


def _planned(graph: Graph, mesh: Mesh, limit: int | None) -> Plan:
    return pipeline.plan(graph, mesh, load(HARDWARE), Request(limit, gap=GAP, time_limit_s=SOLVING))


def explaining() -> dict[str, Any]:
    """Seconds to explain ops of a 7B step's plan, as `shardplan explain PLAN OP` does once the plan is read."""
    mesh = Mesh.parse("dp=8,tp=8")
    graph = graph_from(GraphDocument.model_validate(import_zoo("llama-7b", **LARGE)), mesh)
    plan = pipeline.plan(graph, mesh, load(HARDWARE), Request(gap=5e-3))
    document = checked_plan(json.loads(json.dumps(plan_document(plan))), "plan")
    drawn = Random(0).sample(graph.ops, EXPLAINED)
    wall, cpu = [], []
    for op in drawn:
        began, process = time.perf_counter(), time.process_time()
        found = explained(document)
        asked = found.decision(op.id)
        decision_document(found, asked, found.forced(asked, OPTIONS, SECONDS))
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - process)
    seconds = {"median": round(float(np.median(wall)), 2), "most": round(max(wall), 2), "most_cpu": round(max(cpu), 2)}
    return {"model": "llama-7b training", "ops": len(graph.ops), "mesh": "dp=8,tp=8", "asked": EXPLAINED, **seconds}


def main() -> None:
    """Measure, and write results/accounts.json."""
    write("accounts", {"accounts": accounts(), "explain": explaining()})


if __name__ == "__main__":
    main()
