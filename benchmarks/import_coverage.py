"""Which PyTorch models the torch frontend imports, as `model_zoo_coverage` and `vision_model_coverage` measure it.

Every model is imported, as a forward pass and as a training step, in a child process with a limit of processor time,
which the machine's load does not change, and of memory.
The outcome is `complete` (every call has a row), `replicated` (with the calls that have none), `refused`
(with the designed error), `not exportable` (refused because torch.export cannot trace or torch cannot differentiate the
model), `failed` (any other error: a defect) or `timeout`. A document is loaded as a graph, but not planned.

Without options all models are imported. `--only NAME ...`, `--failed` and `--missing` import some and keep the results
of the others, with the commit at which they were measured.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import re
import resource
import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Any, NamedTuple

from benchmarks.measured import MEASURED, measured_commit
from benchmarks.record import describe_older, read_last
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument, validate_document
from planner.errors import ShardplanError
from planner.frontends.uncovered_ops import UnknownOpWarning
from planner.ir.mesh import Mesh

LIMIT_S, LIMIT_BYTES = 180, 8 << 30
LONGEST_S = 10 * LIMIT_S
"""Seconds of wall time after which a child is ended whatever it has computed."""
MAX_DETAIL = 140
OUTCOMES = ("complete", "replicated", "refused", "not exportable", "failed", "timeout")
STEPS = {"forward": None, "training": "adamw"}
CANNOT_EXPORT = ("model cannot be built", "torch.export cannot trace", "torch cannot differentiate")
Outcome = tuple[str, str]
Task = tuple[str, str]
"""A model and a step."""
Row = dict[str, str]
"""A model, the step, the outcome with its detail, and the commit at which it was measured."""
Import = Callable[[str, str | None], dict[str, Any]]
"""Returns the document of a model; the second argument is the optimizer of a training step, None for a forward pass."""


class Child(NamedTuple):
    task: Task
    process: ForkProcess
    started_s: float


def is_not_exportable(refusal: str) -> bool:
    """Return whether a refusal says that torch or the model's package, not shardplan, cannot do it."""
    return any(each in refusal for each in CANNOT_EXPORT)


def classify(build: Callable[[], dict[str, Any]]) -> Outcome:
    """Return the outcome of an import and the calls or the error that it names."""
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        try:
            load_graph(validate_document(GraphDocument, build(), "document"), Mesh.parse("2"))
        except ShardplanError as refusal:
            return "not exportable" if is_not_exportable(str(refusal)) else "refused", str(refusal)[:400]
        except Exception as failure:  # noqa: BLE001 - any other error is a defect, and counted
            return "failed", f"{type(failure).__name__}: {failure}"[:400]
    named = [str(each.message) for each in raised if issubclass(each.category, UnknownOpWarning)]
    calls = sorted(set(re.findall(r"(\S+?)(?: \([^;]*\))?, \d+x at", " ".join(named))))
    return ("replicated", ", ".join(calls)) if named else ("complete", "")


def _run(pipe: Connection, task: Task, build: Import) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT_BYTES, LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, 2 * LIMIT_S))  # ended by SIGXCPU
    # torch and transformers print whole graphs when they cannot export one
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    name, step = task
    pipe.send(classify(partial(build, name, STEPS[step])))


def measure(tasks: Sequence[Task], build: Import, processes: int) -> Iterator[tuple[Task, Outcome]]:
    """Yield the outcome of every task, in the order in which they end; so many run at once."""
    waiting, running = list(tasks), dict[Connection, Child]()
    while waiting or running:
        while waiting and len(running) < processes:
            running.update([_start(waiting.pop(0), build)])
        ready = wait(list(running), timeout=1)
        for pipe in list(running):
            child = running[pipe]
            if pipe in ready or time.monotonic() > child.started_s + LONGEST_S:
                del running[pipe]
                yield child.task, _end(pipe, child)


def _start(task: Task, build: Import) -> tuple[Connection, Child]:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(theirs, task, build))
    process.start()
    theirs.close()
    return ours, Child(task, process, time.monotonic())


def _end(pipe: Connection, child: Child) -> Outcome:
    """End a child and return its outcome."""
    try:
        return pipe.recv() if pipe.poll() else ("timeout", f"after {LONGEST_S} s")
    except EOFError:
        child.process.join()
        if child.process.exitcode == -signal.SIGXCPU:
            return "timeout", f"after {LIMIT_S} s of processor time"
        return "failed", f"the process ended with {child.process.exitcode}"
    finally:
        child.process.kill()
        child.process.join()


def read_rows(name: str) -> dict[Task, Row]:
    """Return the rows of a benchmark's committed result, each with the commit at which it was measured."""
    result = read_last(name) or {"commit": "", "models": []}
    return {(row["model"], row["step"]): {"commit": result["commit"]} | row for row in result["models"]}


def cover(name: str, families: Mapping[str, str], build: Import) -> Iterator[dict[str, Any]]:
    """Import the models that the command line asks for, and yield the result so far after each.

    name      of the benchmark, whose other results are kept where only some models are imported
    families  the family of every model
    build     imports one of them

    Raises SystemExit for an unknown name.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="+", default=[], help="names of models")
    parser.add_argument(
        "--failed", action="store_true", help="those that the last run did not find complete, or did not have"
    )
    parser.add_argument("--missing", action="store_true", help="those of which there is no result")
    parser.add_argument("--processes", type=int, default=2, help="imports at once")
    args = parser.parse_args()
    if unknown := set(args.only) - set(families):
        raise SystemExit(f"no model is called {', '.join(sorted(unknown))}")
    known, commit = read_rows(name), measured_commit(MEASURED[name])
    tasks = [(name, step) for name in args.only or families for step in STEPS]
    if args.missing:
        tasks = [task for task in tasks if task not in known]
    if args.failed:
        tasks = [task for task in tasks if task not in known or known[task]["outcome"] != "complete"]
    known = known if args.only or args.failed or args.missing else {}
    gc.freeze()  # what is imported here is not searched for garbage in every child
    for (model, step), (outcome, detail) in measure(tasks, build, args.processes):
        print(model, step, outcome, detail, flush=True)
        known[model, step] = {"model": model, "step": step, "outcome": outcome, "detail": detail, "commit": commit}
        yield _result(families, known)


def _result(families: Mapping[str, str], known: Mapping[Task, Row]) -> dict[str, Any]:
    """Return the results so far, with the number of models by family, step and outcome."""
    rows = [
        known[name, step] | {"family": family}
        for name, family in families.items()
        for step in STEPS
        if (name, step) in known
    ]
    counts = {
        family: {
            step: dict(Counter(row["outcome"] for row in rows if (row["family"], row["step"]) == (family, step)))
            for step in STEPS
        }
        for family in dict.fromkeys(families.values())
    }
    return {"counts": counts, "models": rows}


def coverage_table(result: dict[str, Any]) -> str:
    """Return the counts by family, the models that are complete, and the others one by one, as a page shows them."""
    lines = [f"| family | step | models | {' | '.join(OUTCOMES)} |", "|---" * (len(OUTCOMES) + 3) + "|"]
    for family, steps in result["counts"].items():
        for step, counts in steps.items():
            cells = [str(counts.get(outcome, 0)) for outcome in OUTCOMES]
            lines.append(f"| {family} | {step} | {sum(counts.values())} | {' | '.join(cells)} |")
    if older := describe_older(result):
        lines.append(older.rstrip("\n"))
    left = {row["model"] for row in result["models"] if row["outcome"] != "complete"}
    complete = dict.fromkeys(row["model"] for row in result["models"] if row["model"] not in left)
    lines += ["", f"Complete in both steps ({len(complete)}): {', '.join(complete)}."]
    lines += ["", "| model | step | outcome | detail |", "|---|---|---|---|"]
    lines += [
        f"| {row['model']} | {row['step']} | {row['outcome']} | {_shorten(row['detail'])} |"
        for row in result["models"]
        if row["outcome"] != "complete"
    ]
    return "\n".join(lines)


def _shorten(detail: str) -> str:
    """Return the start of an error as the cell of a table."""
    text = re.sub(r"[|`<>*_\[\]]", " ", " ".join(detail.split()))
    return text if len(text) <= MAX_DETAIL else text[:MAX_DETAIL].rsplit(" ", 1)[0] + " ..."
