"""Runs ops' programs in PyTorch with four processes over gloo, and compares them with what was planned.

Every case of every row of the op table, in programs with two random options, on 2x2 (`export --format torch`). Results
must be those of the unsharded graph (1e-5 of the largest element, f32), and the bytes that all processes receive, as
their calls of torch's collectives say, those predicted. The result is written after every batch of programs, all first
options before the second ones: a run that is stopped says how many it ran. `--continue` runs those after the last that
the result has, and adds them to it: `rows` says how many ran at which commit.
"""

# Takes hours: `make bench` leaves it out.

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measured import MEASURED, measured_commit
from benchmarks.record import read_last, write
from planner.errors import InvalidSharding
from planner.ir.accounting import count_received_bytes
from planner.ir.program import Program
from planner.run.executor import run_whole
from planner.run.inputs import random_inputs
from tests.testing.op_cases import CASES
from tests.testing.sample_programs import alone, question_of, random_program
from tests.testing.torch_programs import run_programs

NAME, MESH, RANKS, OPTIONS, NEAR = "torch_programs", "dp=2,tp=2", 4, 2, 1e-5
PROGRAMS = 75
"""Programs that one batch of processes runs."""


def measure_rows(last: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield, after every batch of programs, how many were run, and which are not equal in numbers or bytes.

    `last` is a result whose programs are not run again.
    """
    from planner.export.torch_program import print_torch

    rows, unequal, refused = [*last["rows"]], [*last["unequal"]], [*last["refused"]]
    rows.append({"commit": measured_commit(MEASURED[NAME]), "programs": 0})
    cases = [(case, seed) for seed in range(OPTIONS) for case in CASES]
    tried = last["programs"] + len(refused)
    for start in range(tried, len(cases), PROGRAMS):
        listed = list[tuple[str, Program, str]]()
        for case, seed in cases[start : start + PROGRAMS]:
            program = random_program(question_of(alone(case), "2x2"), seed)
            try:
                listed.append((f"{case.op}, option {seed}", program, print_torch(program)))
            except InvalidSharding as error:
                refused.append(str(error))
        unequal += _list_unequal(listed)
        rows[-1]["programs"] += len(listed)
        found = {"mesh": MESH, "ops": len({case.op for case, _ in cases[: start + PROGRAMS]}), "cases": len(cases)}
        found["programs"] = sum(row["programs"] for row in rows)
        yield found | {"rows": rows, "unequal": sorted(unequal), "refused": sorted(refused)}


def _list_unequal(listed: Sequence[tuple[str, Program, str]]) -> list[str]:
    """Run programs in one batch of processes, and return the names of those whose numbers or bytes are others."""
    inputs = [random_inputs(program.graph, np, "declared", seed=0) for _, program, _ in listed]
    jobs = [
        (text, [arrays[name] for name, _ in program.arguments])
        for (_, program, text), arrays in zip(listed, inputs, strict=True)
    ]
    with tempfile.TemporaryDirectory() as folder:
        results, received = run_programs(Path(folder), jobs, RANKS)
    cases = zip(listed, inputs, results, received, strict=True)
    return [
        name
        for (name, program, _), arrays, found, counted in cases
        if not _is_equal(program, arrays, found) or round(counted) != count_received_bytes(program).sum()
    ]


def _is_equal(program: Program, arrays: dict[str, Any], found: list[Any]) -> bool:
    with np.errstate(all="ignore"):
        whole = run_whole(program.graph, arrays, np, precision="declared")
    for name, result in zip(program.graph.outputs, found, strict=True):
        most = np.abs(whole[name][np.isfinite(whole[name])]).max(initial=1e-30)
        if not np.allclose(result, whole[name], rtol=0, atol=NEAR * most, equal_nan=True):
            return False
    return True


def table(result: dict[str, Any]) -> str:
    """Return the counts as Markdown."""
    right = result["programs"] - len(result["unequal"])
    rows = ", ".join(f"{row['programs']} at {row['commit']}" for row in result.get("rows", ()))
    return (
        "| programs | run | ops | numbers and bytes equal | refused |\n|---|---|---|---|---|\n"
        f"| {result['cases']} | {result['programs']} | {result['ops']} | {right} | {len(result['refused'])} |\n"
        + (f"\nPrograms by commit: {rows}.\n" if rows else "")
    )


def main() -> None:
    """Run the programs and write results/torch_programs.json after every batch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--continue", action="store_true", dest="is_continued", help="after those of the result")
    none: dict[str, Any] = {"rows": [], "programs": 0, "unequal": [], "refused": []}
    last = read_last(NAME) if parser.parse_args().is_continued else None
    for found in measure_rows(last or none):
        write(NAME, found)


if __name__ == "__main__":
    main()
