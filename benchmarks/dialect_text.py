"""Measures programs as text of the mesh dialect: lowered to local tensors, printed for mlir-opt 19 and 22, read back.

Random partitioned programs, with uneven blocks, halos, offsets and terms of every kind, are lowered. The lowered
program, and what is read from its text in both dialects where it has no halos, must compute on every logical device
what the whole graph does; printing what was read must give the same text. mlir-opt refuses dims that do not divide, and
our own reader alone knows halos that change their size.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.record import write
from planner.errors import ShardplanError
from planner.export.mlir import Dialect, print_program
from planner.ir.program import Program, Reshard
from planner.reshard.documented_path import make_documented_path
from planner.rewrite.materialize import materialize_completed
from planner.rewrite.propagation.propagate import propagate
from planner.run.executor import run_whole
from planner.run.inputs import random_inputs
from tests.testing.lowered_programs import check_lowered
from tests.testing.mlir_opt import TOOLS
from tests.testing.random_graphs import random_graph
from tests.testing.random_programs import random_program

SEEDS = range(7000, 7060)


def programs() -> Iterator[tuple[int, Program]]:
    """Yield random programs of options, and of annotated graphs with and without halos and offsets."""
    for seed in SEEDS:
        yield seed, random_program(seed)
        for halos in (False, True):
            graph, mesh = random_graph(seed, halos)
            try:
                route = make_documented_path(graph, mesh)
                yield seed, materialize_completed(graph, mesh, propagate(graph, mesh), route=route)
            except ShardplanError:
                continue  # a conflict, which is diagnosed


def is_accepted(text: str, dialect: Dialect) -> bool:
    """Return whether mlir-opt parses and verifies a text."""
    environment = {**os.environ, "LLVM_DISABLE_SYMBOLIZATION": "1"}
    run = subprocess.run([TOOLS[dialect]], input=text, capture_output=True, text=True, check=False, env=environment)
    return run.returncode == 0


def measure() -> dict[str, Any]:
    """Return the counts, and descriptions of failures."""
    counts, failures = Counter[str](), list[str]()
    for seed, program in programs():
        arrays = random_inputs(program.graph, np, "f64", seed=seed)
        # Roots and logarithms of negative numbers are no numbers, and these are equal to nothing.
        arrays = {name: abs(array) + 1 if array.dtype.kind == "f" else array for name, array in arrays.items()}
        counts["programs"] += 1
        counts["with an exchange"] += any(
            isinstance(done, Reshard) and done.collective.is_exchange for done in program.instructions
        )
        try:
            with np.errstate(all="ignore"):
                check_lowered(program, arrays, run_whole(program.graph, arrays, np, precision="f64"), seed)
            counts["equal"] += 1
        except (AssertionError, ShardplanError) as error:
            failures.append(f"seed {seed}: {type(error).__name__}: {error}"[:300])
        for dialect in Dialect:
            counts[f"accepted by {TOOLS[dialect]}"] += is_accepted(print_program(program, dialect), dialect)
    return {"seeds": [SEEDS.start, SEEDS.stop], **counts, "failures": failures[:20], "failed": len(failures)}


def table(result: dict[str, Any]) -> str:
    """Return the result as a Markdown table."""
    count = result["programs"]
    rows = [
        ("random programs lowered, printed in both dialects, read back and run", f"{count:,}"),
        ("of these with an exchange", f"{result['with an exchange']:,}"),
        ("equal to the whole graph on every device, text read back the same", f"{result['equal']:,} of {count:,}"),
        *((f"texts that {tool} accepts", f"{result[f'accepted by {tool}']:,} of {count:,}") for tool in TOOLS.values()),
    ]
    return "\n".join(["| check | result |", "|---|---|", *(f"| {check} | {found} |" for check, found in rows)])


if __name__ == "__main__":
    write("dialect_text", measure())
