"""Run and check plan files on a GPU: `python -m planner.usecases.validate_gpu PLAN... -o RESULT` (`make gpu`).

Requires numpy, networkx, pydantic and cupy, but no solver, service or command line. For each plan it writes as JSON the
verdict, the peak of each logical device's memory pool beside the predicted one (with cupy's alignment), and the seconds
of ops by name. Exits with 1 where a plan is not equal or a pool is not as predicted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from planner.documents.json_writer import check_writable, write_text
from planner.documents.plans import dump_verdict, read_plan
from planner.documents.programs import load_program
from planner.errors import ShardplanError
from planner.ir.program import OpCall, Program
from planner.run.backend import HALF, PRECISIONS, ROUNDED, array_module
from planner.run.device_memory import ALIGNMENT
from planner.run.executor import Execution
from planner.run.shrink import shrink
from planner.run.validate import execute


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m planner.usecases.validate_gpu", description=__doc__)
    parser.add_argument("plans", nargs="+", type=Path, metavar="PLAN")
    parser.add_argument("-o", "--output", type=Path, help="where to write the result (else: standard output)")
    parser.add_argument("--backend", default="cupy", choices=("cupy", "numpy"))
    parser.add_argument("--precision", default="f32", choices=(*PRECISIONS, ROUNDED, HALF))
    parser.add_argument("--shrink", action="store_true", help="run the same instructions on small sizes")
    options = parser.parse_args(arguments)
    try:
        if options.output:
            check_writable(options.output)
        xp = array_module(options.backend)
        checks = [_check_plan(path, options) for path in options.plans]
    except ShardplanError as error:
        sys.stderr.write(f"planner.usecases.validate_gpu: {error}\n")
        return 1
    text = json.dumps({"device": _device_name(xp), "alignment_bytes": ALIGNMENT, "plans": checks}, indent=1) + "\n"
    if options.output:
        write_text(options.output, text)
    else:
        sys.stdout.write(text)
    return 0 if all(each["verdict"]["verdict"] == "equal" and each["pools_agree"] for each in checks) else 1


def _check_plan(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    whole = load_program(read_plan(path))
    program = shrink(whole) if options.shrink else whole
    verdict, done = execute(program, options.backend, options.precision)
    pools = [pool for pool in done.measured_peaks if pool is not None]
    return {
        "plan": path.name,
        "verdict": dump_verdict(verdict),
        "pool_peak_bytes": [measured for measured, _ in pools],
        "predicted_pool_peak_bytes": [predicted for _, predicted in pools],
        "pools_agree": all(measured == predicted for measured, predicted in pools),
        "op_seconds": _op_seconds(program, done),
    }


def _op_seconds(program: Program, done: Execution) -> dict[str, float]:
    """Sum the seconds of the ops of each name, each on the device that takes longest."""
    totals = Counter[str]()
    for instruction, seconds in zip(program.instructions, done.seconds.max(axis=1).tolist(), strict=True):
        if isinstance(instruction, OpCall):
            totals[instruction.op.op] += seconds
    return dict(sorted(totals.items()))


def _device_name(xp: Any) -> str:
    if xp.__name__ == "numpy":
        return "numpy"
    name: bytes = xp.cuda.runtime.getDeviceProperties(xp.cuda.Device().id)["name"]
    return name.decode()


if __name__ == "__main__":
    sys.exit(main())
