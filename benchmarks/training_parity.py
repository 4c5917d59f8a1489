"""Compares five training steps under JAX and torch's DTensor, run from our exports, with the same steps unsharded.

The models are families of the zoo with two narrow layers, Adam and f32, in a standard layout; GPT-2 has a prime number
of words, so that its blocks are uneven. Each step takes the parameters that the step before returned. The losses must
equal those of the whole graph, run in numpy. There are three ways to run the steps:

shard-map       the literal program, as `export --format shard-map` writes it, jitted on eight host devices of JAX
partition-spec  the graph as a JAX function of one device, jitted with the exported specs of arguments and results;
                XLA's own partitioner chooses the rest
dtensor         the forward pass in torch over DTensors with the exported placements, with torch's autograd and Adam
                (`benchmarks.torch_steps`)
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.jax_steps import Job, under_jax
from benchmarks.record import write
from planner import pipeline
from planner.choose.cost import CostModel
from planner.choose.formulate import formulate
from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument, validate_document
from planner.export.formats import export_program
from planner.frontends.zoo import import_zoo
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.ir.program import Program
from planner.judge.baselines import encode_baseline
from planner.judge.standard_layouts import list_baselines
from planner.run.executor import run_whole

STEPS, MESH = 5, "dp=2,tp=4"
LAYOUTS = ("DPxTP", "FSDP")
SMALL: dict[str, Any] = {"vocabulary": 64, "width": 32, "heads": 4, "feed_forward": 64}
WORDS = 61
FAMILIES = {
    "gpt2": SMALL | {"positions": 16, "vocabulary": WORDS},
    "llama-7b": SMALL,
    "mixtral-8x7b": SMALL | {"kv_heads": 4, "experts": 4},
}
Arrays = dict[str, Any]


def step(family: str, layout: str, mesh: str = MESH, layers: int = 2) -> Program:
    """Return the program of a training step in a named layout."""
    sizes = FAMILIES[family]
    document = import_zoo(family, layers=layers, batch=8, seq=16, dtype="f32", train="adam", capacity=2.0, **sizes)
    devices = Mesh.parse(mesh)
    graph = load_graph(validate_document(GraphDocument, document, family), devices)
    question = formulate(graph, CostModel(devices, load_profile("h100-sxm")))
    chosen = encode_baseline(question, next(each for each in list_baselines(graph, devices) if each.name == layout))
    assert chosen is not None, f"{family} in {layout} exists"
    return pipeline.write_program(question, question.decode(chosen))


def beginning(graph: Graph, seed: int = 0) -> Arrays:
    """Return the inputs of the first step: small weights, zero moments, tokens."""
    random = np.random.default_rng(seed)
    arrays: Arrays = {}
    for entry in graph.inputs:
        shape = entry.type.shape
        if entry.kind == "input":
            arrays[entry.id] = random.integers(0, WORDS, shape)
        elif entry.kind == "optimizer_state":
            arrays[entry.id] = np.full(shape, float(entry.id == "step"), "f4")
        else:
            arrays[entry.id] = (random.standard_normal(shape) / 4 + (len(shape) == 1)).astype("f4")
    return arrays


def whole(graph: Graph, arrays: Arrays) -> list[float]:
    """Return the losses of the unsharded graph."""
    losses = []
    for _ in range(STEPS):
        values = run_whole(graph, arrays, np, precision="declared")
        losses.append(float(values[graph.outputs[0]]))
        arrays = arrays | {name: values[graph.outputs[number]] for number, name in graph.state_outputs.items()}
    return losses


def shard_map_job(program: Program, arrays: Arrays) -> Job:
    return _job(program, export_program(program, "shard-map"), None, arrays)


def partition_spec_job(program: Program, alone: Program, arrays: Arrays) -> Job:
    """Return the job of a step partitioned by XLA; `alone` is the same step on one device."""
    return _job(
        program, export_program(alone, "shard-map"), json.loads(export_program(program, "partition-spec")), arrays
    )


def _job(program: Program, text: str, specs: dict[str, Any] | None, arrays: Arrays) -> Job:
    names = [name for name, _ in program.arguments]
    feeds = {number: names.index(name) for number, name in program.graph.state_outputs.items()}
    return Job(text, specs, [arrays[name] for name in names], feeds, STEPS)


def _by_shard_map(program: Program, arrays: Arrays) -> list[float]:
    return under_jax([shard_map_job(program, arrays)])[0]


def _by_partition_spec(program: Program, alone: Program, arrays: Arrays) -> list[float]:
    return under_jax([partition_spec_job(program, alone, arrays)])[0]


def measured() -> Iterator[dict[str, Any]]:
    from benchmarks.torch_steps import under_dtensor  # the table is read where torch is not installed

    for family in FAMILIES:
        for layout in LAYOUTS:
            program = step(family, layout)
            arrays = beginning(program.graph)
            wanted = whole(program.graph, arrays)
            alone = step(family, "fully replicated", "1")
            ways: dict[str, Callable[[], list[float]]] = {
                "JAX, shard-map": partial(_by_shard_map, program, arrays),
                "JAX, partition-spec": partial(_by_partition_spec, program, alone, arrays),
                "torch, dtensor": partial(under_dtensor, program, arrays, STEPS),
            }
            for name, way in ways.items():
                start = time.perf_counter()
                losses = way()
                yield {
                    "step": f"{family}, 2 layers, adam, {layout}",
                    "devices": program.mesh.devices,
                    "by": name,
                    "losses": losses,
                    "unsharded": wanted,
                    "largest_error": largest_error(losses, wanted),
                    "wall_s": round(time.perf_counter() - start, 1),
                }


def largest_error(losses: list[float], wanted: list[float]) -> float:
    """Return the largest relative error of any step."""
    return max(abs(got - right) / abs(right) for got, right in zip(losses, wanted, strict=True))


def table(result: dict[str, Any]) -> str:
    """Return the result as a Markdown table with a row per step."""
    ways = list(dict.fromkeys(row["by"] for row in result["rows"]))
    lines = [f"| step | loss, first to fifth | {' | '.join(ways)} |", "|---" * (2 + len(ways)) + "|"]
    for what in dict.fromkeys(row["step"] for row in result["rows"]):
        rows = {row["by"]: row for row in result["rows"] if row["step"] == what}
        losses = rows[ways[0]]["unsharded"]
        errors = " | ".join(f"{rows[way]['largest_error']:.0e}" for way in ways)
        lines.append(f"| {what} | {losses[0]:.3f} to {losses[-1]:.3f} | {errors} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run all of it and write results/training_parity.json."""
    rows = []
    for row in measured():
        print(row, flush=True)
        rows.append(row)
    write("training_parity", {"steps": STEPS, "mesh": MESH, "rows": rows})


if __name__ == "__main__":
    main()
