"""Runs programs on every backend of this machine: verdicts, and counted against predicted bytes and peaks.

Rows of the op table: every case, in programs with random options, many cases side by side in one program, on 4 and on 8
devices; half of the cases have sizes that do not divide evenly. Models: training steps in a standard layout, at shrunk
sizes (GPT-2's 50257 words stay uneven), in f64, and with every value rounded to its declared f16 or bf16; and the
example, planned. All run on logical devices in one process (numpy), and with one process per device (mpi) where mpi4py
is installed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import write
from planner import pipeline
from planner.choose.cost import CostModel
from planner.choose.formulate import Formulation, formulate
from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph, read_graph
from planner.documents.schemas import GraphDocument
from planner.errors import RunFailed
from planner.frontends.zoo import import_zoo
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.ir.program import Program
from planner.judge.baselines import encode_baseline
from planner.judge.standard_layouts import list_baselines
from planner.planning.plan_types import Request
from planner.run.backend import ROUNDED
from planner.run.validate import check_backend, validate
from tests.testing.graphs import Sketch
from tests.testing.op_case import Case
from tests.testing.op_cases import CASES
from tests.testing.random_strategies import random_strategies

HARDWARE, SEEDS, TOGETHER = "h100-sxm", 2, 400
UNDEFINED = {"log", "sqrt", "rsqrt", "pow"}
"""Ops undefined on half of the random inputs, so that an output may have no number to compare."""
EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "gpt2.json.gz"


@dataclass(frozen=True, slots=True)
class Model:
    """A training step of the zoo in a named layout."""

    name: str
    layers: int
    layout: str
    mesh: str = "dp=2,tp=4"
    dtype: str = "bf16"
    precision: str = "f64"

    def __str__(self) -> str:
        rounded = f", in {self.dtype}" if self.precision == ROUNDED else ""
        return f"{self.name}, {self.layers} layers, adam, {self.layout}{rounded}"


MODELS = (
    Model("gpt2", 12, "DPxTP"),
    Model("llama-7b", 2, "DPxTP"),
    Model("llama-7b", 2, "FSDP"),
    Model("mixtral-8x7b", 2, "DPxTP"),
    Model("gpt2", 2, "Megatron tensor parallel", "2x2"),
    Model("gpt2", 2, "DPxTP", dtype="f16", precision=ROUNDED),
    Model("llama-7b", 2, "DPxTP", dtype="bf16", precision=ROUNDED),
)


def backends() -> list[str]:
    """Return the backends that are available here."""
    found = []
    for name in ("numpy", "cupy", "mpi"):
        try:
            check_backend(name, "none", "f64", mesh=Mesh.parse("2"))
        except RunFailed:
            continue
        found.append(name)
    return found


def side_by_side(cases: Sequence[Case]) -> Graph:
    """Return one graph that contains every case with inputs and outputs of its own."""
    sketch, outputs = Sketch(), list[str]()
    for case in cases:
        operands = [sketch.input(*kind.shape, dtype=kind.dtype) for kind in case.operands]
        sketch.op(case.op, operands, *case.results, **case.attrs)
        outputs += sketch.ops[-1].values
    return sketch.graph(*outputs)


def question_of(graph: Graph, mesh: str) -> Formulation:
    return formulate(graph, CostModel(Mesh.parse(mesh), load_profile(HARDWARE)))


def row_programs(mesh: str) -> Iterator[Program]:
    """Yield programs of all cases of the table, with SEEDS draws of random options."""
    cases = [case for case in CASES if case.op not in UNDEFINED]
    for first in range(0, len(cases), TOGETHER):
        question = question_of(side_by_side(cases[first : first + TOGETHER]), mesh)
        for seed in range(SEEDS):
            chosen = random_strategies(question, np.random.default_rng(seed))
            yield pipeline.write_program(question, question.decode(chosen))


def model_program(model: Model) -> Program:
    mesh = Mesh.parse(model.mesh)
    document = import_zoo(model.name, layers=model.layers, batch=8, seq=128, train="adam", dtype=model.dtype)
    graph = load_graph(GraphDocument.model_validate(document), mesh)
    question = question_of(graph, model.mesh)
    named = next(each for each in list_baselines(graph, mesh) if each.name == model.layout)
    chosen = encode_baseline(question, named)
    assert chosen is not None, f"{model} exists"
    return pipeline.write_program(question, question.decode(chosen))


def example_program(mesh: str = "dp=2,tp=4") -> Program:
    """Return the example's plan with a tenth of its memory per device, so that it has to be sharded."""
    devices = Mesh.parse(mesh)
    request = Request(memory_limit_bytes=250 << 20, time_limit_s=60.0)
    found = pipeline.plan(read_graph(EXAMPLE, devices), devices, load_profile(HARDWARE), request=request)
    assert found.analysis is not None
    return found.analysis.program


def checked(
    what: str, programs: Sequence[Program], backend: str, shrinking: str = "none", precision: str = "f64"
) -> dict[str, Any]:
    """Run all programs on one backend and return the verdicts."""
    start = time.perf_counter()
    found = [validate(program, backend, shrinking, precision) for program in programs]
    return {
        "what": what,
        "devices": found[0].devices,
        "backend": backend,
        "programs": len(found),
        "equal": sum(each.verdict == "equal" for each in found),
        "largest_error": max(each.max_relative_error or 0.0 for each in found),
        "counted_bytes": sum(each.counted_bytes or 0 for each in found),
        "predicted_bytes": sum(each.predicted_bytes for each in found),
        "counted_peak_bytes": max(each.counted_peak_bytes or 0 for each in found),
        "predicted_peak_bytes": max(each.predicted_peak_bytes for each in found),
        "wall_s": round(time.perf_counter() - start, 2),
    }


def measured() -> Iterator[dict[str, Any]]:
    here = backends()
    for model in MODELS:
        program = model_program(model)
        for backend in here:
            yield checked(str(model), [program], backend, "auto", model.precision)
    example = example_program()
    for backend in here:
        yield checked("example gpt2, planned", [example], backend, "auto")
    for mesh in ("2x2", "2x4"):
        programs = list(row_programs(mesh))
        for backend in here:
            yield checked(f"rows x {SEEDS} options", programs, backend)


def table(result: dict[str, Any]) -> str:
    """Return the rows as a Markdown table."""
    lines = [
        "| program | devices | backend | equal | largest error | bytes counted / predicted | wall s |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        equal, moved = f"{row['equal']} of {row['programs']}", f"{row['counted_bytes']} / {row['predicted_bytes']}"
        cells = [
            row["what"],
            row["devices"],
            row["backend"],
            equal,
            f"{row['largest_error']:.0e}",
            moved,
            row["wall_s"],
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure everything and write results/execution.json."""
    rows = []
    for row in measured():
        print(row, flush=True)
        rows.append(row)
    write("execution", {"hardware": HARDWARE, "cases": len(CASES), "rows": rows})


if __name__ == "__main__":
    main()
