"""Measures whether `--time-limit` bounds a whole command, and what the answer is: one process per row.

Training steps of Llama (Adam, bf16, 2048 tokens) are planned, searched for capacity, compared and explained through the
command line. `wall_s` is from the start of the process to its end, with the start of Python; `cpu_s` includes child
processes. `overrun_s` is by how much the wall time exceeds the limit, and `late_s` by how much the lesser of wall time
and CPU time does: on a machine with other work, only the latter is the command's own. `load` is the load average when
the row began. `fits` names the standard layouts that were priced and fit the memory limit. Rows without a limit are
commands on a plan that take none, or whose plan the rows after them read.

    python -m benchmarks.time_limits [--time-limit SECONDS]

The whole takes a quarter of an hour on an idle machine. With a limit no row begins after so many seconds; `listed` is
how many rows there are. The series of plans comes last: the rows before it take half of the time.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.record import write
from planner.frontends.zoo import import_zoo
from planner.units import format_share

ROOT = Path(__file__).resolve().parents[1]
BATCHES = {"8x8": 64, "2048x8": 2048, "2x2x2x2": 16, "2x8x8x4": 512}
"""The meshes, each with the sequences of a batch."""
LAYERS = {"llama-7b": 32, "llama-70b": 80, "llama-3-405b": 126}
MODELS, LIMITS_S, LIMIT_S = tuple(LAYERS), (5.0, 20.0, 1.0), 5.0
PROOF_LIMIT_S = 60.0
"""The limit of the plan that the commands on a plan read, half of which is for its proof."""
SEQUENCE = 2048
GRACE_S = 2.0
"""What a command may take longer than its limit."""
KILLED_S = 300.0
"""A command that runs so much longer than its limit is ended."""
SEVEN, SEVENTY, LARGEST = zip(MODELS, ("8x8", "2x8x8x4", "2048x8"), strict=True)
OPTIONS: tuple[tuple[str, tuple[str, ...], tuple[tuple[str, str], ...]], ...] = (
    ("--recompute auto", ("--recompute", "auto"), (SEVEN, SEVENTY, LARGEST)),
    ("tight memory", ("--memory-limit", "8GiB"), (SEVEN, SEVENTY)),
    ("tight memory, --recompute auto", ("--memory-limit", "8GiB", "--recompute", "auto"), (SEVEN, SEVENTY)),
    ("--microbatches 8", ("--microbatches", "8"), (SEVEN, SEVENTY, LARGEST)),
    ("--proof", ("--proof", "{folder}/proof.json.gz"), (SEVEN, SEVENTY)),
    ("--validate", ("--validate",), (SEVEN, SEVENTY)),
)
"""What is asked for besides a plan, the options, and of which models on which meshes."""
SWEEPS = (("llama-7b", "8..64", "64"), ("llama-70b", "64..1024", "256"), ("llama-3-405b", "1024..16384", "1024"))
"""Model, devices and sequences of a batch of a capacity search."""
FOLLOWING: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("check", ("check", "{graph}", "--base", "{plan}")),
    ("explain", ("explain", "{plan}")),
    ("explain an op", ("explain", "{plan}", "{op}")),
    ("validate", ("validate", "{plan}")),
    ("verify", ("verify", "{plan}", "{proof}")),
    ("report", ("report", "{plan}", "-o", "{folder}/report.html")),
)
"""Commands on a plan that take a limit; `check` reads a graph with one layer less than the plan's."""
UNLIMITED: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("import zoo", ("import", "zoo", "{model}", "--train", "adam", "--batch", "{batch}", "-o", "{folder}/again.json")),
    ("diff", ("diff", "{plan}", "{plan}")),
    ("show", ("show", "{plan}")),
    ("export", ("export", "{plan}", "--format", "partition-spec", "-o", "{folder}/specs.py")),
    ("migrate", ("migrate", "{plan}", "{plan}")),
)
"""Commands on a plan that take no limit, to show that they need none."""


@dataclass(frozen=True, slots=True)
class Case:
    """A command, and its limit in seconds (None: it takes none)."""

    command: str
    model: str
    mesh: str
    words: tuple[str, ...]
    limit_s: float | None


def list_cases(folder: Path) -> Iterator[Case]:
    """Yield the cases; those on a plan read the one that a case before them wrote."""
    for what, options, asked in OPTIONS:
        words = tuple(word.format(folder=folder) for word in options)
        for model, mesh in asked:
            yield _plan_case(f"plan, {what}", model, mesh, words, LIMIT_S, folder)
    for model, devices, batch in SWEEPS:
        words = ("capacity", model, "--hardware", "h100-sxm", "--devices", devices, "--train", "adam", "--batch", batch)
        words = (*words, "--seq", str(SEQUENCE))
        yield from (Case("capacity", model, devices, words, limit_s) for limit_s in LIMITS_S[:2])
    for model, mesh in (SEVEN, SEVENTY):
        yield from _list_following(model, mesh, folder)
    for limit_s in LIMITS_S:
        yield from (_plan_case("plan", model, mesh, (), limit_s, folder) for model in MODELS for mesh in BATCHES)


def _plan_case(what: str, model: str, mesh: str, words: tuple[str, ...], limit_s: float, folder: Path) -> Case:
    plan = folder / f"{model}-{mesh}.plan.json.gz"
    graph = folder / f"{model}-{BATCHES[mesh]}.json.gz"
    asked = ("plan", str(graph), "--mesh", mesh, "--hardware", "h100-sxm", "-o", str(plan), *words)
    return Case(what, model, mesh, asked, limit_s)


def _fill(words: tuple[str, ...], places: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(word.format_map(places) for word in words)


def _list_following(model: str, mesh: str, folder: Path) -> Iterator[Case]:
    """Yield the commands on a plan, after the one that writes it with a proof."""
    proof = folder / f"{model}.proof.json.gz"
    yield _plan_case("plan, --proof", model, mesh, ("--proof", str(proof)), PROOF_LIMIT_S, folder)
    places: dict[str, object] = {
        "folder": folder,
        "model": model,
        "batch": BATCHES[mesh],
        "plan": folder / f"{model}-{mesh}.plan.json.gz",
        "graph": folder / f"{model}-{BATCHES[mesh]}-less.json.gz",
        "proof": proof,
        "op": "matmul_3",
    }
    for what, words in FOLLOWING:
        yield Case(what, model, mesh, _fill(words, places), LIMIT_S)
    for what, words in UNLIMITED:
        yield Case(what, model, mesh, _fill(words, places), None)


def write_graphs(folder: Path) -> None:
    """Write the graphs of the training steps, and those with one layer less."""
    for model, layers in LAYERS.items():
        for batch in BATCHES.values():
            _write_graph(folder / f"{model}-{batch}.json.gz", model, batch, layers)
            if (model, batch) in {(one, BATCHES[mesh]) for one, mesh in (SEVEN, SEVENTY)}:
                _write_graph(folder / f"{model}-{batch}-less.json.gz", model, batch, layers - 1)


def _write_graph(path: Path, model: str, batch: int, layers: int) -> None:
    document = import_zoo(model, batch=batch, seq=SEQUENCE, train="adam", layers=layers)
    with gzip.open(path, "wt", compresslevel=1) as file:
        json.dump(document, file)


def measure(case: Case, folder: Path) -> dict[str, Any]:
    """Run a case in a process and return its row."""
    limit = () if case.limit_s is None else ("--time-limit", f"{case.limit_s:g}")
    load, out, began_s = os.getloadavg()[0], folder / "out", time.monotonic()
    with out.open("w") as stdout, (folder / "err").open("w") as stderr:
        words = [sys.executable, "-m", "api", *case.words, *limit, *(() if case.command == "export" else ("--json",))]
        process = subprocess.Popen(words, cwd=ROOT, stdout=stdout, stderr=stderr)
        code, used = _wait(process, began_s + (case.limit_s or 0.0) + KILLED_S)
    wall_s, cpu_s = time.monotonic() - began_s, used.ru_utime + used.ru_stime
    row = {"command": case.command, "model": case.model, "mesh": case.mesh, "limit_s": case.limit_s}
    row |= {"code": code, "wall_s": round(wall_s, 2), "cpu_s": round(cpu_s, 2), "load": round(load, 1)}
    row["peak_rss_bytes"] = used.ru_maxrss * 1024
    if case.limit_s is not None:
        row |= {"overrun_s": round(wall_s - case.limit_s, 2), "late_s": round(min(wall_s, cpu_s) - case.limit_s, 2)}
    return row | _read_answer(case, out.read_text(), (folder / "err").read_text())


def _wait(process: subprocess.Popen[bytes], ends_s: float) -> tuple[int, Any]:
    """Wait for a process, which is killed at a time of the monotonic clock; return its code and what it used."""
    while True:
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode, used
        if time.monotonic() > ends_s:
            process.kill()
        time.sleep(0.02)


def _read_answer(case: Case, out: str, err: str) -> dict[str, Any]:
    """Return what a command answered: status and gap, or its last line where it failed."""
    try:
        answer = json.loads(out)
    except json.JSONDecodeError:
        return {"answer": err.strip().splitlines()[-1][:160] if err.strip() else "done"}
    if case.command == "capacity":
        plans = [point["objective_s"] for point in answer["frontier"]]
        told = f"{answer['planned']} of {len(answer['candidates'])} planned"
        return {"answer": told, "objective_s": min(plans, default=None), "gap": None, "is_known": bool(plans)}
    if case.command.startswith("plan"):
        document = json.loads(gzip.decompress(Path(case.words[case.words.index("-o") + 1]).read_bytes()))
        fits = [each["name"] for each in document["baselines"] if each["fits"]]
        keys = ("objective_s", "gap", "reason", "verdict")
        is_known = answer["status"] in ("optimal", "feasible", "infeasible")
        return {"answer": answer["status"], **{key: answer[key] for key in keys}, "fits": fits, "is_known": is_known}
    return {"answer": str(answer.get("verdict", answer.get("verified", "done"))), "reason": answer.get("reason")}


def table(result: dict[str, Any]) -> str:
    """Return the rows as a Markdown table."""
    lines = [
        "| command | model | mesh or devices | limit | wall | CPU | load | answer | gap |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        limit = "-" if row["limit_s"] is None else f"{row['limit_s']:g} s"
        gap = "-" if row.get("gap") is None else format_share(row["gap"])
        lines.append(
            f"| {row['command']} | {row['model']} | {row['mesh']} | {limit} | {row['wall_s']:.1f} s | "
            f"{row['cpu_s']:.1f} s | {row['load']:.0f} | {row['answer']} | {gap} |"
        )
    return "\n".join([*lines, "", describe(result["rows"], result["listed"])])


def describe(rows: Sequence[dict[str, Any]], listed: int) -> str:
    """Return how many rows ended in time, of how many that there are."""
    limited = [row for row in rows if row["limit_s"] is not None]
    in_time = sum(row["overrun_s"] <= GRACE_S for row in limited)
    by_cpu = sum(row["late_s"] <= GRACE_S for row in limited)
    return (
        f"{len(rows)} of {listed} rows were measured. {in_time} of {len(limited)} rows with a limit end within "
        f"{GRACE_S:g} s of it by the clock, and {by_cpu} by their own processor time."
    )


def main() -> None:
    """Measure every case, writing results/time_limits.json after each."""
    reader = argparse.ArgumentParser(description="Measure whether limits of time hold.")
    reader.add_argument("--time-limit", type=float, default=float("inf"), help="begin no row after so many seconds")
    ends_s, rows = time.monotonic() + reader.parse_args().time_limit, []
    with tempfile.TemporaryDirectory() as place:
        write_graphs(Path(place))
        cases = list(list_cases(Path(place)))
        for case in cases:
            if time.monotonic() > ends_s:
                break
            rows.append(measure(case, Path(place)))
            print(rows[-1], flush=True)
            write("time_limits", {"hardware": "h100-sxm", "listed": len(cases), "rows": rows}, show=False)


if __name__ == "__main__":
    main()
