"""Measures recomputation: a Llama training step in 40 % less memory than any plan without it needs, and the cost.

`min_required_bytes` is the peak of the best plan found without recomputation, `least_bound_bytes` a proven lower bound
of the peak of every such plan. The limit is 60 % of the latter. `free_s` is the step without recomputation and without
a limit. The gap is that of the unfolded problem, in which equal layers may differ. CPU seconds include child processes.

    python -m benchmarks.recompute
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.record import write
from planner import pipeline
from planner.choose.cost import CostModel
from planner.choose.formulate import Formulation, formulate
from planner.choose.hardware import load_profile
from planner.choose.rematerialization import find_recomputable_ops
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.frontends.zoo import import_zoo
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.planning.plan_types import Plan, RecomputeMode, Request

HARDWARE, MESH, MODEL, TRAIN = "h100-sxm", "dp=8,tp=8", "llama-7b", "adam"
BATCH, SEQUENCE = 512, 2048
LAYERS = (8, 32)
SHARE, GAP, SECONDS = 0.6, 1e-2, 120.0
TOO_SMALL, FREE = 1 << 30, 1 << 40


def step(layers: int) -> Graph:
    document = import_zoo(MODEL, batch=BATCH, seq=SEQUENCE, train=TRAIN, layers=layers)
    return load_graph(GraphDocument.model_validate(document), Mesh.parse(MESH))


def size(question: Formulation) -> dict[str, int]:
    """Return the size of a solver problem; pairs are those of classes, the pair variables of an ILP."""
    problem = question.problem
    return {
        "nodes": len(problem.nodes),
        "edges": len(problem.edges),
        "strategies": sum(len(node.cost) for node in problem.nodes),
        "pairs": problem.arrays.pairs,
    }


@contextmanager
def cpu(result: dict[str, Any], key: str) -> Iterator[None]:
    """Store the CPU seconds of the context, including processes that ended in it, in result[key]."""
    start = _spent()
    yield
    result[key] = round(_spent() - start, 1)


def _spent() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def planned(graph: Graph, limit: int, recompute: RecomputeMode, result: dict[str, Any], what: str) -> Plan:
    request = Request(limit, GAP, SECONDS, recompute=recompute)
    with cpu(result, f"{what}_cpu_s"):
        return pipeline.plan(graph, Mesh.parse(MESH), load_profile(HARDWARE), request=request)


def case(layers: int) -> dict[str, Any]:
    """Measure the model with this many layers."""
    graph = step(layers)
    result: dict[str, Any] = {"layers": layers, "ops": len(graph.ops), "candidates": len(find_recomputable_ops(graph))}
    model = CostModel(Mesh.parse(MESH), load_profile(HARDWARE))
    result |= {
        "plain": size(formulate(graph, model)),
        "again": size(formulate(graph, model, None, late=find_recomputable_ops(graph))),
    }
    free = planned(graph, FREE, "none", result, "free").certificate
    least = planned(graph, TOO_SMALL, "none", result, "least").certificate
    bound = least.least_limit_bound_bytes or 0
    limit = int(SHARE * bound)
    found = planned(graph, limit, "auto", result, "again")
    analysis, proven = found.analysis, found.certificate
    return result | {
        "free_s": free.objective_s,
        "free_bound_s": free.bound_s,
        "least_bytes": least.least_limit_bytes,
        "least_bound_bytes": bound,
        "limit_bytes": limit,
        "status": proven.status,
        "step_s": proven.objective_s,
        "bound_s": proven.bound_s,
        "gap": proven.gap,
        "recompute_s": analysis and analysis.recompute_ps * 1e-12,
        "peak_bytes": analysis and analysis.peak_bytes,
        "ops_again": analysis and sum(op.recompute_of is not None for op in analysis.program.graph.ops),
    }


def table(result: dict[str, Any]) -> str:
    """Return the result as a Markdown table."""
    rows = [
        "| layers | nodes, pairs | least memory without | limit | step (without limit) | recomputed | gap | CPU s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case in result["cases"]:
        sizes = [f"{case[key]['nodes']:,}, {case[key]['pairs'] / 1e6:.1f} M" for key in ("plain", "again")]
        memory = [f"{case[key] / 2**30:.1f} GiB" for key in ("least_bound_bytes", "limit_bytes")]
        times = f"{case['step_s'] * 1e3:.0f} ms ({case['free_s'] * 1e3:.0f})"
        again = f"{case['ops_again']} ops, {case['recompute_s'] * 1e3:.0f} ms"
        cells = [case["layers"], " -> ".join(sizes), *memory, times, again, f"{case['gap']:.1e}", case["again_cpu_s"]]
        rows.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(rows)


def main() -> None:
    """Measure and write results/recompute.json."""
    asked = {"hardware": HARDWARE, "mesh": MESH, "model": MODEL, "train": TRAIN, "batch": BATCH, "sequence": SEQUENCE}
    limits = {"gap_asked": GAP, "time_limit_s": SECONDS, "share": SHARE}
    write("recompute", {**asked, **limits, "cases": [case(layers) for layers in LAYERS]})


if __name__ == "__main__":
    main()
