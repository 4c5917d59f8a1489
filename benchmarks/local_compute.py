"""Compares predicted with measured compute times of local programs, priced by a profile that is calibrated here.

`OPENBLAS_NUM_THREADS=1 python -m benchmarks.local_compute`: a transformer block under layouts that differ in mesh and
in the loops they split, each run as on the first device. Collectives are left out; random numbers stand for their
results. Times are CPU seconds of one thread, which other work on the machine disturbs least.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

import solvers
from benchmarks.record import timed, write
from planner import pipeline
from planner.choose.cost import PICO, CostModel
from planner.choose.formulate import Formulation, formulate
from planner.choose.hardware import Hardware, parse_hardware
from planner.documents.graphs import load_graph
from planner.documents.hardware import read_profile
from planner.documents.schemas import GraphDocument, validate_document
from planner.ir.graph import Graph
from planner.ir.indexing import can_split
from planner.ir.mesh import Mesh
from planner.ir.program import OpCall, Program
from planner.ir.sharding import Sharding, shard_shape
from planner.judge.baselines import encode_baseline
from planner.judge.standard_layouts import Baseline, list_baselines
from planner.rewrite.best_effort import complete_options
from planner.run.local_op import run_op
from planner.usecases.calibrate import calibrate_profile
from tests.testing.transformer import transformer

MESHES = ("1", "2", "4", "2x2", "8", "2x4")
SIZES: dict[str, Any] = {"blocks": 1, "d": 512, "ff": 2048, "heads": 8, "batch": 8, "seq": 128}
DRAWN, RUNS = 6, 5


def layouts(question: Formulation, seed: int) -> Iterator[tuple[str, Program]]:
    """Yield the named layouts, and some in which three ops are split at random and the rest follows."""
    graph, mesh = question.graph, question.model.mesh
    listed = list_baselines(graph, mesh) + [_drawn(graph, mesh, random.Random(seed + k)) for k in range(DRAWN)]
    for each in listed:
        start = encode_baseline(question, each)
        if start is not None and solvers.evaluate(question.problem, start).feasible:
            yield each.name, pipeline.write_program(question, question.decode(start))


def _drawn(graph: Graph, mesh: Mesh, draw: random.Random) -> Baseline:
    given = {}
    for op in draw.sample(graph.ops, 3):
        loop = draw.choice(op.rule.loops)
        axes = tuple(range(len(mesh.axes)))[: draw.randint(1, len(mesh.axes))]
        if can_split(loop, mesh.group_size(axes)):
            given[op.id] = {loop.name: axes}
    inputs = {entry.id: Sharding.replicated(len(entry.type.shape)) for entry in graph.inputs}
    return Baseline("drawn", inputs, complete_options(graph, mesh, given, inputs={}))


def measured_s(program: Program) -> dict[str, float]:
    """Return the seconds of each op on the first device, the median of several runs of the whole program."""
    found: dict[str, list[float]] = defaultdict(list)
    drawn = np.random.default_rng(0)
    for _ in range(RUNS):
        held: dict[str, Any] = {}

        def shard(name: str, held: dict[str, Any] = held) -> Any:
            if name not in held:
                value = program.values[name]
                shape = shard_shape(value.sharding, value.type.shape, program.mesh)
                held[name] = drawn.standard_normal(shape, np.float32)
            return held[name]

        for place, done in enumerate(program.instructions):
            if isinstance(done, OpCall):
                operands = [shard(name) for name in done.operands]
                start = time.process_time()
                made = run_op(done, program.mesh, 0, operands=operands, xp=np, precision="f32")
                found[done.op.id].append(time.process_time() - start)
                held |= dict(zip(done.results, made, strict=True))
            for name in done.operands:
                if program.last_use[name] == place:
                    held.pop(name, None)
    return {op: median(times) for op, times in found.items()}


def predicted_s(program: Program, hardware: Hardware) -> dict[str, float]:
    """Return the seconds of each op by the cost model."""
    model = CostModel(program.mesh, hardware)
    runs = [done for done in program.instructions if isinstance(done, OpCall)]
    kinds = {run.op.id: tuple(program.values[name].type for name in run.operands) for run in runs}
    return {run.op.id: model.op_ps(run.op, kinds[run.op.id], run.option) * PICO for run in runs}


def rank_correlation(one: list[float], other: list[float]) -> float:
    """Return Spearman's rank correlation."""
    ranks = [np.argsort(np.argsort(values)) for values in (one, other)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def compared(hardware: Hardware, seed: int) -> dict[str, Any]:
    """Compare all layouts on all meshes."""
    pairs, by_op = [], defaultdict(list)
    seen = set()
    for text in MESHES:
        mesh = Mesh.parse(text)
        graph = load_graph(validate_document(GraphDocument, transformer(**SIZES), "transformer"), mesh)
        question = formulate(replace(graph, annotations=()), CostModel(mesh, hardware))
        for _, program in layouts(question, seed):
            known = str(program)
            if known in seen:
                continue
            seen.add(known)
            got, wanted = predicted_s(program, hardware), measured_s(program)
            pairs.append((sum(got.values()), sum(wanted.values())))
            for op in graph.ops:
                by_op[op.op].append((got[op.id], wanted[op.id]))
    errors = [abs(got / wanted - 1) for got, wanted in pairs]
    return {
        "plans": len(pairs),
        "median_error": round(median(errors), 4),
        "largest_error": round(max(errors), 4),
        "rank_correlation": round(rank_correlation(*map(list, zip(*pairs, strict=True))), 4),
        "measured_s": [round(min(w for _, w in pairs), 5), round(max(w for _, w in pairs), 5)],
        "by_op": {
            op: {
                "median_ratio": round(median(got / wanted for got, wanted in each if got), 3),
                "share": round(sum(w for _, w in each) / sum(w for _, w in pairs), 3),
            }
            for op, each in sorted(by_op.items())
            if any(got for got, _ in each)
        },
    }


def table(result: dict[str, Any]) -> str:
    """Return the result as a Markdown table."""
    head = "| calibrated profile | plans | measured | median error | largest | rank correlation |"
    named = {"measured curves per op": result["curves"], "its peak rates only (roofline)": result["roofline"]}
    return "\n".join([head, "|---|---|---|---|---|---|", *(_row(name, found) for name, found in named.items())])


def _row(name: str, found: dict[str, Any]) -> str:
    least, most = (f"{1e3 * seconds:.0f}" for seconds in found["measured_s"])
    shown = [f"{found['median_error']:.1%}", f"{found['largest_error']:.0%}", f"{found['rank_correlation']:.2f}"]
    return f"| {name} | {found['plans']} | {least} to {most} ms | {' | '.join(shown)} |"


def main() -> None:
    """Calibrate, compare with measured curves and with the roofline alone, and write results/local_compute.json."""
    result: dict[str, Any] = {"sizes": SIZES, "meshes": MESHES}
    with timed(result, "calibrate_s"):
        document = calibrate_profile(read_profile("cpu"), "here", clock=time.process_time)
    hardware = parse_hardware(document)
    result["curves"] = compared(hardware, 0)
    result["roofline"] = compared(replace(hardware, curves={}), 0)
    write("local_compute", result)


if __name__ == "__main__":
    main()
