"""Checks a plan's numbers: memory to the byte, times to the picosecond, and the seconds that `explain` takes.

`python -m benchmarks.plan_accounting`: random graphs, every example and small training steps of every family are
planned and run on all logical devices. Counted bytes and peaks are compared with the predicted ones device by device,
memory by kind with both, and the times of instructions with the solver's cost. For every random graph, programs of
random choices are run as well. Models are planned once more under a tight limit, with recomputation. Then ops of a 7B
training step's plan are explained: one of every kind of op, and random others.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import numpy as np

import solvers
from benchmarks.record import write
from planner import pipeline
from planner.choose.cost import PICO, CostModel
from planner.choose.formulate import formulate
from planner.choose.hardware import load_profile
from planner.documents.explain import dump_decision, explain_plan
from planner.documents.graphs import load_graph, read_graph
from planner.documents.plans import dump_plan, parse_plan
from planner.documents.schemas import GraphDocument
from planner.frontends.mlir import read_mlir
from planner.frontends.stablehlo import import_text
from planner.frontends.zoo import import_zoo
from planner.ir.accounting import count_live_bytes, count_received_bytes
from planner.ir.graph import Graph, Op
from planner.ir.mesh import Mesh
from planner.judge.analysis import Analysis
from planner.planning.plan_types import Plan, RecomputeMode, Request
from planner.run.shrink import shrink
from planner.run.validate import execute
from tests.testing.random_graphs import random_graph
from tests.testing.random_strategies import random_strategies

RANDOM, PROGRAMS = 200, 2
EXAMPLES = Path(__file__).parent.parent / "examples"
MESHES = ("2x4", "8")
FAMILIES = ("gpt2", "llama-7b", "mixtral-8x7b")
JAX = ("gpt", "llama", "mixtral", "vit")
SMALL: dict[str, Any] = {
    "layers": 1,
    "width": 64,
    "heads": 4,
    "feed_forward": 128,
    "vocabulary": 96,
    "batch": 8,
    "seq": 16,
}
HARDWARE, GAP, SOLVING = "h100-sxm", 1e-3, 4.0
EXPLAINED, OPTIONS, SECONDS = 32, 8, 4.0
LARGE: dict[str, Any] = {"batch": 64, "seq": 2048, "train": "adam"}


def models() -> Iterator[tuple[str, Graph, Mesh]]:
    """Yield names, graphs and meshes to plan with and without a limit."""
    from examples.jax_models import Model, training  # the table is read where JAX is not installed

    yield "mlp.mlir", *read_mlir(EXAMPLES / "mlp.mlir")
    for mesh in map(Mesh.parse, MESHES):
        yield f"gpt2.json.gz on {mesh.notation}", read_graph(EXAMPLES / "gpt2.json.gz", mesh), mesh
        for family in FAMILIES:
            document = import_zoo(family, dtype="f32", train="adam", **SMALL)
            yield (
                f"{family} training on {mesh.notation}",
                load_graph(GraphDocument.model_validate(document), mesh),
                mesh,
            )
    mesh = Mesh.parse(MESHES[0])
    for family in JAX:
        function, *arguments = training(Model(family, scanned=family == "llama"), 4, "adam")
        document = import_text(function.lower(*arguments).as_text(), family).document
        yield f"jax {family}", load_graph(GraphDocument.model_validate(document), mesh), mesh


def faults(analysis: Analysis, cost: int | None, shrinking: str = "none") -> list[str]:
    """Return the numbers of a program that differ from those counted; `cost` is the solver's, in ps."""
    kinds = np.sum(list(analysis.memory_by_kind.values()), axis=0)
    program = shrink(analysis.program) if shrinking == "auto" else analysis.program
    verdict, done = execute(program, "numpy", "f64")
    right = {
        "result": verdict.verdict == "equal",
        "peak": bool((done.peak == count_live_bytes(program).max(axis=0)).all()),
        "kinds": bool((kinds == count_live_bytes(program)[:, analysis.peak_device]).all()),
        "received": bool((done.received == count_received_bytes(program)).all()),
        "terms": cost is None or analysis.step_ps == cost,
    }
    return [what for what, fine in right.items() if not fine]


def random_programs() -> dict[str, Any]:
    """Check the plans of random graphs, and programs of random assignments."""
    wrong, plans, programs = list[str](), 0, 0
    for seed in range(RANDOM):
        graph, mesh = random_graph(seed)
        plain = replace(graph, annotations=())
        plan = _planned(plain, mesh, None)
        listed = [(plan.analysis, _cost(plan))] if plan.analysis is not None else []
        plans += len(listed)
        question = formulate(plain, CostModel(mesh, load_profile(HARDWARE)))
        for number in range(PROGRAMS):
            strategies = random_strategies(question, np.random.default_rng(number))
            program = pipeline.write_program(question, question.decode(strategies))
            worth = solvers.evaluate(question.problem, strategies)
            listed.append((Analysis(program, question.model), worth.cost))
            programs += 1
        wrong += [f"random {seed}: {what}" for analysis, cost in listed for what in faults(analysis, cost)]
    return {"graphs": RANDOM, "plans": plans, "programs_of_random_choices": programs, "wrong": wrong}


def model_plans() -> dict[str, Any]:
    """Check plans of models: without a limit, at the least peak of a named layout, 10 % below with recomputation."""
    wrong, plans, infeasible = list[str](), 0, 0
    for name, graph, mesh in models():
        free = _planned(graph, mesh, None)
        least = min((figures.peak_bytes for figures in free.baselines), default=free.limit_bytes)
        listed = [free, _planned(graph, mesh, least), _planned(graph, mesh, least * 9 // 10, "auto")]
        infeasible += sum(plan.analysis is None for plan in listed)
        for plan in listed:
            if plan.analysis is not None:
                plans += 1
                found = faults(plan.analysis, _cost(plan), "auto" if name.startswith("gpt2.") else "none")
                wrong += [f"{name}, {plan.limit_bytes} bytes: {what}" for what in found]
    return {"plans": plans, "not_planned": infeasible, "wrong": wrong}


def _cost(plan: Plan) -> int:
    return round((plan.certificate.objective_s or 0.0) / PICO)


def _planned(graph: Graph, mesh: Mesh, limit: int | None, recompute: RecomputeMode = "none") -> Plan:
    request = Request(limit, gap=GAP, time_limit_s=SOLVING, recompute=recompute)
    return pipeline.plan(graph, mesh, load_profile(HARDWARE), request=request)


def explaining() -> dict[str, Any]:
    """Measure the seconds of `shardplan explain PLAN OP` for ops of a 7B step's plan, reading the plan included."""
    mesh = Mesh.parse("dp=8,tp=8")
    graph = load_graph(GraphDocument.model_validate(import_zoo("llama-7b", **LARGE)), mesh)
    text = json.dumps(dump_plan(pipeline.plan(graph, mesh, load_profile(HARDWARE), request=Request(gap=5e-3))))
    drawn = sampled(graph)
    wall, cpu = [], []
    for op in drawn:
        began, process = time.perf_counter(), time.process_time()
        found = explain_plan(parse_plan(json.loads(text), "plan"))
        asked = found.explain_decision(op.id)
        dump_decision(found, asked, found.force_options(asked, OPTIONS, SECONDS))
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - process)
    times = {f"{what}_s": spread(taken) for what, taken in (("wall", wall), ("cpu", cpu))}
    kinds = len({(op.op, op.phase) for op in graph.ops})
    model = {"model": "llama-7b training", "mesh": mesh.notation, "ops": len(graph.ops), "kinds": kinds}
    return {**model, "asked": len(drawn), "forcing_limit_s": SECONDS, **times}


def sampled(graph: Graph) -> list[Op]:
    """Return one random op of every kind in every phase, then random others."""
    random, by_kind = Random(0), defaultdict[tuple[str, str], list[Op]](list)
    for op in graph.ops:
        by_kind[op.op, op.phase].append(op)
    drawn = [random.choice(each) for each in by_kind.values()]
    return drawn + random.sample([op for op in graph.ops if op not in drawn], max(0, EXPLAINED - len(drawn)))


def spread(taken: list[float]) -> dict[str, float]:
    return {"median": round(median(taken), 2), "most": round(max(taken), 2)}


def table(result: dict[str, Any]) -> str:
    """Return the result as a Markdown table."""
    found, asked = result["accounts"], result["explain"]
    random, models = found["random"], found["models"]
    programs = random["plans"] + random["programs_of_random_choices"]
    wrong = len(random["wrong"]) + len(models["wrong"])
    seconds = f"{asked['wall_s']['median']} s median, {asked['wall_s']['most']} s at most"
    lines = [
        ("programs of random graphs, run", f"{programs:,} of {random['graphs']:,} graphs"),
        ("plans of models and examples, run", f"{models['plans']:,}"),
        ("with bytes received, peak, memory by kind or terms other than counted", f"{wrong:,}"),
        (f"`explain` of {asked['asked']} ops of {asked['model']}, wall clock", seconds),
    ]
    return "\n".join(["| check | result |", "|---|---|", *(f"| {what} | {shown} |" for what, shown in lines)])


def main() -> None:
    """Measure, and write results/plan_accounting.json."""
    began = time.process_time()
    found = {"random": random_programs(), "models": model_plans(), "cpu_s": round(time.process_time() - began, 1)}
    write("plan_accounting", {"accounts": found, "explain": explaining()})


if __name__ == "__main__":
    main()
