"""Measures how the time of propagation and partition grows with the number of ops."""

from __future__ import annotations

import time
from random import Random
from typing import Any

import numpy as np

from planner.ir.graph import Annotation, Graph
from planner.ir.mesh import Mesh
from planner.ir.sharding import Sharding
from planner.reshard.documented_path import make_documented_path
from planner.rewrite.materialize import materialize_completed
from planner.rewrite.propagation.propagate import propagate
from tests.testing.op_graph_builder import Sketch

OPS, MESH, REPEATS = (1_250, 2_500, 5_000, 10_000), "2x4", 3


def chain(ops: int) -> Graph:
    """Return a chain of products, functions and sums in turn; every 97th result is annotated, with hints between."""
    sketch, random = Sketch(), Random(0)
    value = kept = sketch.input(64, 64)
    weights = [sketch.input(64, 64) for _ in range(8)]
    for place in range(ops):
        match place % 3:
            case 0:
                value = sketch.op("matmul", [value, weights[place // 3 % 8]], (64, 64))
            case 1:
                value = sketch.op(random.choice(["tanh", "relu"]), [value], (64, 64))
            case _:
                value, kept = sketch.op("add", [value, kept], (64, 64)), value
    asked = [Annotation(f"n{place}", Sharding(((0,), (1,)))) for place in range(0, ops, 97)]
    asked += [
        Annotation(f"n{place}", Sharding(((1,), ())), False, f"n{place + 1}") for place in range(50, ops - 1, 101)
    ]
    return sketch.graph(value, annotations=tuple(asked))


def growth() -> dict[str, Any]:
    """Return the best of three times of propagation and partition, in seconds, and the exponent of their growth."""
    mesh, rows = Mesh.parse(MESH), []
    for ops in OPS:
        graph = chain(ops)
        runs = [growth_row(graph, mesh) for _ in range(REPEATS)]
        rows.append({"ops": ops, **min(runs, key=lambda row: row["together_s"])})
    ops_log, seconds_log = (np.log([row[key] for row in rows]) for key in ("ops", "together_s"))
    return {"mesh": MESH, "rows": rows, "exponent": round(float(np.polyfit(ops_log, seconds_log, 1)[0]), 2)}


def growth_row(graph: Graph, mesh: Mesh) -> dict[str, Any]:
    start = time.perf_counter()
    completed = propagate(graph, mesh)
    between = time.perf_counter()
    program = materialize_completed(graph, mesh, completed, route=make_documented_path(graph, mesh))
    stop = time.perf_counter()
    row = {"propagate_s": between - start, "partition_s": stop - between, "together_s": stop - start}
    return {key: round(value, 3) for key, value in row.items()} | {"instructions": len(program.instructions)}
