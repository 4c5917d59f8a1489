"""Captures models of transformers with torch, without weights, and plans them, each in a process of its own.

`import_s` starts with nothing loaded and ends with the document: importing torch and transformers, tracing,
translating. `*_cpu_s` are CPU seconds of the process, which other work on the machine disturbs less. Models are solved
as plans are: with equal layers folded first, then unfolded from that solution; `folded` is the size of the folded
problem. One case is imported from ONNX, and its import includes torch's own exporter.

`compared`: the planned step of two captured layers, divided by that of the zoo's version. Mixtral's versions are not
the same computation: the zoo dispatches by capacity within each sequence, transformers sorts the tokens of the whole
batch by expert.

    python -m benchmarks.models [case ...] [--import-only]
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import solvers
from benchmarks.measured import MEASURED, measured_commit
from benchmarks.onnx_export import exported
from benchmarks.record import read_last, timed, write
from planner.choose.cost import PICO, CostModel
from planner.choose.fold import RepeatedLayers
from planner.choose.formulate import formulate
from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument
from planner.frontends.onnx import build_graph_document
from planner.frontends.torch import import_torch
from planner.frontends.zoo import import_zoo
from planner.ir.mesh import Mesh
from planner.planning import folded_solve
from planner.planning.plan_types import Request

HARDWARE, MESH = "h100-sxm", "dp=8,tp=8"
CUBE, LARGE = "4x4x4", "8x8x8"
GAP, SECONDS = 5e-3, 120.0
BATCH, SEQUENCE = 64, 2048
LLAMA_70B = {
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "intermediate_size": 28672,
}


NO_DROPOUT = {
    "gpt2": {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    "bert": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    "t5": {"dropout_rate": 0.0},
}
"""The zoo has none."""


@dataclass(frozen=True)
class Case:
    """A model of transformers, captured or exported to ONNX; `zoo`: the zoo's version, to compare two layers with."""

    kind: str
    train: str | None = None
    config: dict[str, Any] = field(default_factory=dict)
    batch: int = BATCH
    seq: int | None = SEQUENCE
    zoo: str | None = None
    onnx: bool = False
    meshes: tuple[str, ...] = (MESH,)


CASES = {
    "gpt2": Case("gpt2", seq=1024, zoo="gpt2"),
    "gpt2 through ONNX": Case("gpt2", seq=1024, onnx=True),
    "gpt2 training": Case("gpt2", "adam", NO_DROPOUT["gpt2"], seq=1024, zoo="gpt2"),
    "bert training": Case("bert", "adam", NO_DROPOUT["bert"], seq=512),
    "vit training": Case("vit", "adam", seq=None),
    "t5 training": Case("t5", "adam", NO_DROPOUT["t5"], seq=512),
    "llama-7b": Case("llama", zoo="llama-7b"),
    "llama-7b training": Case("llama", "adam", zoo="llama-7b", meshes=(MESH, CUBE)),
    "llama-70b": Case("llama", config=LLAMA_70B, meshes=(LARGE,)),
    "mixtral-8x7b": Case("mixtral"),
    "mixtral-8x7b training": Case("mixtral", "adam"),
}


def captured(case: Case, layers: int | None = None) -> dict[str, Any]:
    if case.onnx:
        assert case.seq
        return build_graph_document(exported(case.kind, case.batch, case.seq), case.kind)
    return import_torch(
        f"transformers:{case.kind}",
        batch=case.batch,
        seq=case.seq,
        layers=layers,
        dtype="bf16",
        config=case.config,
        train=case.train,
    )


def measured(name: str, import_only: bool) -> dict[str, Any]:
    """Return seconds and memory of the import, the size of the graph, and the planning figures on each mesh."""
    result: dict[str, Any] = {"model": name}
    start = time.process_time()
    with timed(result, "import_s"):
        document = captured(CASES[name])
    result["import_cpu_s"] = round(time.process_time() - start, 3)
    ops = Counter(node["op"] for node in document["nodes"])
    return result | {
        "import_peak_rss_bytes": _peak_rss(),
        "nodes": len(document["nodes"]),
        "inputs": len(document["inputs"]),
        "nodes_by_rule_alone": sum("rule" in node for node in document["nodes"]),
        "ops": dict(sorted(ops.items(), key=lambda item: (-item[1], item[0]))),
        "planned": [] if import_only else [_solved(document, mesh) for mesh in CASES[name].meshes],
    }


def compared(name: str) -> dict[str, Any]:
    """Return the planned step of two layers, as captured and as the zoo writes them."""
    case = CASES[name]
    assert case.zoo
    zoo = import_zoo(case.zoo, batch=case.batch, seq=case.seq, layers=2, train=case.train)
    theirs, ours = _solved(captured(case, 2)), _solved(zoo)
    ratio = None
    if theirs["objective_s"] and ours["objective_s"]:
        ratio = theirs["objective_s"] / ours["objective_s"]
    return {"model": name, "layers": 2, "captured": theirs, "zoo": ours, "captured_per_zoo": ratio}


def _solved(document: dict[str, Any], mesh_text: str = MESH) -> dict[str, Any]:
    result: dict[str, Any] = {"mesh": mesh_text, "hardware": HARDWARE}
    mesh, hardware = Mesh.parse(mesh_text), load_profile(HARDWARE)
    with timed(result, "graph_s"):
        graph = load_graph(GraphDocument.model_validate(document), mesh)
    start = time.process_time()
    with timed(result, "formulate_s"):
        question = formulate(graph, CostModel(mesh, hardware), hardware.memory_bytes)
    with timed(result, "solve_s"):
        solution, folded = folded_solve.solve_folded(question.problem, Request(gap=GAP, time_limit_s=SECONDS), ())
    result["planning_cpu_s"] = round(time.process_time() - start, 3)
    layers = RepeatedLayers.of(question.problem) if folded else None
    return result | {
        "ops": len(graph.ops),
        **_sizes(question.problem),
        "folded": None if layers is None else _sizes(layers.quotient().problem),
        "folding_loss_bound": None if folded is None else folded.loss_bound,
        "status": solution.status,
        "objective_s": None if solution.cost is None else solution.cost * PICO,
        "bound_s": solution.bound * PICO,
        "gap": solution.gap,
        "peak_rss_bytes": _peak_rss(),
    }


def _sizes(problem: solvers.Problem) -> dict[str, int]:
    """Return the numbers of nodes, strategies, pairs of strategies on edges, and pairs of classes."""
    strategies = [len(node.cost) for node in problem.nodes]
    return {
        "variables": len(strategies),
        "strategies": sum(strategies),
        "pairs": sum(strategies[edge.source] * strategies[edge.target] for edge in problem.edges),
        "pairs_of_classes": problem.arrays.pairs,
    }


def _peak_rss() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def table(result: dict[str, Any]) -> str:
    """Return the result as a Markdown table."""
    head = "| model | nodes | import, CPU s | mesh | options | build + solve, CPU s | gap | memory | step / zoo's |"
    ratios = {case["model"]: f"{case['captured_per_zoo']:.4f}" for case in result["compared"]}
    rows = [_row(case, plan, ratios.get(case["model"], "")) for case in result["cases"] for plan in case["planned"]]
    return "\n".join([head, "|---|---|---|---|---|---|---|---|---|", *rows])


def _row(case: dict[str, Any], plan: dict[str, Any], ratio: str) -> str:
    imported = f"{case['model']} | {case['nodes']:,} | {case['import_cpu_s']:.0f}"
    solved = f"{plan['mesh']} | {plan['strategies']:,} | {plan['planning_cpu_s']:.0f} | {plan['gap']:.1e}"
    return f"| {imported} | {solved} | {plan['peak_rss_bytes'] / 2**30:.1f} GiB | {ratio} |"


def main() -> None:
    """Measure everything, or the cases named, and write results/models.json after each; others keep their rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="case", help=f"of {', '.join(CASES)}; else all")
    parser.add_argument("--import-only", action="store_true", help="plan nothing, write nothing")
    asked = parser.parse_args()
    names = asked.cases or list(CASES)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=1) as process:
        for name in names:
            row = process.submit(measured, name, asked.import_only).result()
            print(row) if asked.import_only else _kept("cases", row)
        for name in [] if asked.import_only else [name for name in names if CASES[name].zoo]:
            _kept("compared", process.submit(compared, name).result())


def _kept(part: str, row: dict[str, Any]) -> None:
    """Write a row with its commit, replacing the last one of its model."""
    settings = {"batch": BATCH, "sequence": SEQUENCE, "dtype": "bf16", "gap_asked": GAP, "time_limit_s": SECONDS}
    last = read_last("models") or {}
    found = {key: {each["model"]: each for each in last.get(key, ())} for key in ("cases", "compared")}
    found[part][row["model"]] = {**row, "commit": measured_commit(MEASURED["models"])}
    listed = {key: [rows[name] for name in CASES if name in rows] for key, rows in found.items()}
    write("models", settings | listed)


if __name__ == "__main__":
    main()
