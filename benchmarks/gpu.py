"""What only a GPU can show, in one command: `make gpu`, or `python3 -m benchmarks.gpu` with any Python that has cupy.

Needs numpy, networkx, pydantic and cupy, and torch for the last part: no solver, service, pytest or network. Parts:

rows: every case of the op table, on the GPU as in numpy, in the case's dtypes.
plan: GPT-2's training step, data and tensor parallel on eight logical devices of one GPU; bytes and pools as predicted.
calibrate: a hardware profile measured on the GPU.
torch: a training step of GPT-2 with one device's program in PyTorch, its measured op times beside those predicted with
the measured profile.

A part that fails says why, and the others run. The result goes to results/gpu.json; the exit code is 1 where a part
failed or a number differs. `--backend numpy` runs all of it on the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from planner.choose.cost import CostModel
from planner.choose.hardware import parse_hardware
from planner.documents.graphs import load_graph
from planner.documents.hardware import read_profile
from planner.documents.plans import dump_verdict
from planner.documents.profiler_trace import read_profiler_trace
from planner.documents.schemas import GraphDocument, validate_document
from planner.errors import RunFailed
from planner.frontends.zoo import import_zoo
from planner.ir.mesh import Mesh
from planner.ir.program import Program
from planner.judge.analysis import Analysis
from planner.judge.baselines import encode_baseline
from planner.judge.standard_layouts import list_baselines
from planner.pipeline import write_program
from planner.run.backend import array_module, synchronize, to_host
from planner.run.executor import run_whole
from planner.run.inputs import random_inputs
from planner.run.shrink import shrink
from planner.run.validate import execute
from planner.usecases.calibrate import calibrate_profile, select_probes
from planner.usecases.compare_run import compare_times
from tests.testing.op_cases import CASES
from tests.testing.sample_programs import alone, question_of, training_step

RESULT = Path(__file__).parent / "results" / "gpu.json"
NEAR, STEPS = 1e-4, 3
ROWS_S = 240.0
"""After so long no more rows are begun: kernels are compiled when they first run."""


def compare_rows(xp: Any, cases: Sequence[Any]) -> dict[str, Any]:
    """Return the cases whose numbers differ from numpy's by more than rounding, and how many were run in time."""
    different, run, start = [], 0, time.perf_counter()
    for case in cases:
        if time.perf_counter() - start > ROWS_S:
            break
        graph = alone(case)
        with np.errstate(all="ignore"):
            wanted, found = (
                run_whole(graph, random_inputs(graph, module, "declared", seed=0), module, precision="declared")
                for module in (np, xp)
            )
        error = max((_error(to_host(xp, found[name]), wanted[name]) for name in graph.outputs), default=0.0)
        if not error <= NEAR:
            different.append({"op": case.op, "error": error})
        run += 1
    return {"cases": len(cases), "run": run, "different": different, "is_right": not different}


def _error(found: Any, wanted: Any) -> float:
    """Return the largest difference, as a share of the largest finite element; infinite where other elements are not
    finite."""
    finite = np.isfinite(wanted)
    if not np.array_equal(np.isfinite(found), finite):
        return float("inf")
    most = float(np.abs(wanted[finite]).max(initial=0)) or 1.0
    difference = found[finite].astype(np.float64) - wanted[finite].astype(np.float64)
    return float(np.abs(difference).max(initial=0)) / most


def run_plan(backend: str) -> dict[str, Any]:
    """Run a training step on eight logical devices; return the verdict, and pools where there are any."""
    verdict, done = execute(training_step("gpt2", "f32"), backend, "f32")
    pools = [pool for pool in done.measured_peaks if pool is not None]
    agree = all(measured == predicted for measured, predicted in pools)
    return {
        "verdict": dump_verdict(verdict),
        "pool_peak_bytes": [measured for measured, _ in pools],
        "predicted_pool_peak_bytes": [predicted for _, predicted in pools],
        "is_right": verdict.verdict == "equal" and agree,
    }


def calibrate(backend: str, ops: Sequence[str]) -> dict[str, Any]:
    """Return the measured profile."""
    base = read_profile("h100-sxm" if backend == "cupy" else "cpu")
    return {"profile": calibrate_profile(base, f"{backend}-measured", backend, probes=select_probes(ops))}


def time_torch(profile: dict[str, Any], is_small: bool) -> dict[str, Any]:
    """Run one device's training step in PyTorch, and return measured and predicted seconds by class of op."""
    import torch
    import torch.distributed as dist

    from planner.export.torch_program import print_torch

    program = _write_single(is_small)
    on_gpu = torch.cuda.is_available()
    torch.set_default_device("cuda" if on_gpu else "cpu")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["SHARDPLAN_TRACE"] = folder
            path = Path(folder, "program.py")
            path.write_text(print_torch(program))
            module = runpy.run_path(str(path))
            arrays = random_inputs(program.graph, np, "declared", seed=0)
            held = module["local"](*[torch.as_tensor(arrays[name]) for name, _ in program.arguments])
            module["program"](*held)
            with torch.profiler.profile(record_shapes=True) as measured:
                for _ in range(STEPS):
                    module["program"](*held)
                if on_gpu:
                    torch.cuda.synchronize()
            measured.export_chrome_trace(str(Path(folder, "profile.json")))
            rows = read_profiler_trace(Path(folder, "profile.json"))
            trace = json.loads(next(Path(folder).glob("*rank-0.json")).read_text())
    finally:
        del os.environ["SHARDPLAN_TRACE"]
        dist.destroy_process_group()
        torch.set_default_device("cpu")
    analysis = Analysis(program, CostModel(program.mesh, parse_hardware(profile)))
    return {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "held_bytes": trace["functions"]["program"]["held_bytes"],
        "predicted_peak_bytes": analysis.peak_bytes,
        "times": compare_times(analysis, rows),
    }


def _write_single(is_small: bool) -> Program:
    document = import_zoo("gpt2", layers=2, batch=8, seq=512, train="adam", dtype="f32")
    mesh = Mesh.parse("1")
    graph = load_graph(validate_document(GraphDocument, document, "gpt2"), mesh)
    question = question_of(graph, "1")
    chosen = encode_baseline(question, list_baselines(graph, mesh)[0])
    assert chosen is not None, "one device has one layout"
    program = write_program(question, question.decode(chosen))
    return shrink(program) if is_small else program


def _measure(part: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return a part's result with its seconds, or why it failed: a GPU's errors have many types."""
    start = time.perf_counter()
    try:
        found = part()
    except Exception:  # noqa: BLE001
        found = {"error": traceback.format_exc(), "is_right": False}
    return found | {"wall_s": round(time.perf_counter() - start, 2)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all parts, write the result, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.gpu")
    parser.add_argument("--backend", default="cupy", choices=("cupy", "numpy"))
    parser.add_argument("--small", action="store_true", help="few rows and probes, and a small model")
    parser.add_argument("-o", "--output", type=Path, default=RESULT)
    options = parser.parse_args(arguments)
    try:
        xp = array_module(options.backend)
    except RunFailed as error:
        sys.stderr.write(f"benchmarks.gpu: {error}; nothing was run\n")
        return 1
    cases, ops = (CASES[::40], ("matmul", "add")) if options.small else (CASES, ())
    result = {"backend": options.backend, "rows": _measure(lambda: compare_rows(xp, cases))}
    synchronize(xp)
    result["plan"] = _measure(lambda: run_plan(options.backend))
    result["calibrate"] = _measure(lambda: calibrate(options.backend, ops))
    fallback = "h100-sxm" if options.backend == "cupy" else "cpu"
    profile = result["calibrate"].get("profile") or read_profile(fallback)
    result["torch"] = _measure(lambda: time_torch(profile, options.small))
    options.output.write_text(json.dumps(result, indent=1) + "\n")
    parts = {name: part for name, part in result.items() if isinstance(part, dict)}
    for name, part in parts.items():
        sys.stdout.write(f"{name}: {'ok' if part.get('is_right', True) else 'NOT RIGHT'}, {part['wall_s']} s\n")
    return 0 if all(part.get("is_right", True) for part in parts.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
