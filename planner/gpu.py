"""Plan files run and checked on a GPU: `python -m planner.gpu PLAN... -o RESULT` (`make gpu`).

It takes numpy, networkx, pydantic and cupy: no solver, no service, no command line. For every plan the verdict, the
peak of every logical device's memory pool beside what its live values come to (aligned as cupy does), and the seconds
of ops by name are written as JSON. Ends with 1 where a plan is not equal or a pool not as predicted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from planner.documents.plans import read_plan, verdict_document
from planner.documents.programs import program_from
from planner.documents.writing import check_writable, write_text
from planner.errors import ShardplanError
from planner.model.program import Program, Run
from planner.run.backend import HALF, PRECISIONS, ROUNDED, array_module
from planner.run.devices import Execution
from planner.run.homes import ALIGNMENT
from planner.run.shrink import shrink
from planner.run.validate import executed


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m planner.gpu", description=__doc__)
    parser.add_argument("plans", nargs="+", type=Path, metavar="PLAN")
    parser.add_argument("-o", "--output", type=Path, help="where to write the result (else: standard output)")
    parser.add_argument("--backend", default="cupy", choices=("cupy", "numpy"))
    parser.add_argument("--precision", default="f32", choices=(*PRECISIONS, ROUNDED, HALF))
    parser.add_argument("--shrink", action="store_true", help="run the same instructions on small sizes")
    asked = parser.parse_args(arguments)
    try:
        if asked.output:
            check_writable(asked.output)
        xp = array_module(asked.backend)
        found = [_checked(path, asked) for path in asked.plans]
    except ShardplanError as error:
        sys.stderr.write(f"planner.gpu: {error}\n")
        return 1
    text = json.dumps({"device": _device(xp), "alignment_bytes": ALIGNMENT, "plans": found}, indent=1) + "\n"
    if asked.output:
        write_text(asked.output, text)
    else:
        sys.stdout.write(text)
    return 0 if all(each["verdict"]["verdict"] == "equal" and each["pools_agree"] for each in found) else 1


def _checked(path: Path, asked: argparse.Namespace) -> dict[str, Any]:
    whole = program_from(read_plan(path))
    program = shrink(whole) if asked.shrink else whole
    verdict, done = executed(program, asked.backend, asked.precision)
    pools = [pool for pool in done.pools if pool is not None]
    return {
        "plan": path.name,
        "verdict": verdict_document(verdict),
        "pool_peak_bytes": [measured for measured, _ in pools],
        "predicted_pool_peak_bytes": [predicted for _, predicted in pools],
        "pools_agree": all(measured == predicted for measured, predicted in pools),
        "op_seconds": _seconds(program, done),
    }


def _seconds(program: Program, done: Execution) -> dict[str, float]:
    """Of every op by name, on the device that takes longest, all of them together."""
    taken = Counter[str]()
    for instruction, seconds in zip(program.instructions, done.seconds.max(axis=1).tolist(), strict=True):
        if isinstance(instruction, Run):
            taken[instruction.op.op] += seconds
    return dict(sorted(taken.items()))


def _device(xp: Any) -> str:
    if xp.__name__ == "numpy":
        return "numpy"
    name: bytes = xp.cuda.runtime.getDeviceProperties(xp.cuda.Device().id)["name"]
    return name.decode()


if __name__ == "__main__":
    sys.exit(main())
