"""Measures which PyTorch models the torch frontend imports: tiny models of transformers, and plain modules.

Every model is imported, as a forward pass and as a training step, in a child process with a limit of time and memory.
The outcome is `complete` (every call has a row), `replicated` (with the calls that have none), `refused`
(with the designed error), `not exportable` (refused because torch.export cannot trace or torch cannot differentiate the
model), `failed` (any other error: a defect) or `timeout`. A document is loaded as a graph, but not planned.

Without names all models are imported. `--only NAME ...` and `--failed` import some again and keep the other results.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import resource
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Any, NamedTuple

from benchmarks.record import RESULTS, write
from benchmarks.transformers_models import import_type, is_not_exportable, list_types
from planner.documents.graphs import load_graph
from planner.documents.schemas import GraphDocument, validate_document
from planner.errors import ShardplanError
from planner.frontends.torch import build_module_document
from planner.frontends.uncovered_ops import UnknownOpWarning
from planner.ir.mesh import Mesh

NAME = "model_zoo_coverage"
LIMIT_S, LIMIT_BYTES = 180, 8 << 30
MAX_DETAIL = 140
OUTCOMES = ("complete", "replicated", "refused", "not exportable", "failed", "timeout")
STEPS = {"forward": None, "training": "adamw"}
Outcome = tuple[str, str]
Task = tuple[str, str]
"""A model and a step."""


class Child(NamedTuple):
    task: Task
    process: ForkProcess
    started_s: float


def import_model(name: str, train: str | None) -> dict[str, Any]:
    """Return the document of one of `benchmarks.plain_modules`, or of a tiny instance of a type of transformers."""
    import torch

    from benchmarks.plain_modules import MODULES  # here, because the table is read where torch is not installed

    if name not in MODULES:
        return import_type(name, train)
    module, args = MODULES[name](train is not None)
    with torch.set_grad_enabled(train is not None):
        return build_module_document(module.eval(), args, {}, train=train)


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


def _run(pipe: Connection, task: Task) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    # torch and transformers print whole graphs when they cannot export one
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    name, step = task
    pipe.send(classify(lambda: import_model(name, STEPS[step])))


def measure(tasks: Sequence[Task], processes: int) -> Iterator[tuple[Task, Outcome]]:
    """Yield the outcome of every task, in the order in which they end; so many run at once."""
    waiting, running = list(tasks), dict[Connection, Child]()
    while waiting or running:
        while waiting and len(running) < processes:
            task = waiting.pop(0)
            running.update([_start(task)])
        ready = wait(list(running), timeout=1)
        for pipe in list(running):
            child = running[pipe]
            if pipe in ready or time.monotonic() > child.started_s + LIMIT_S:
                del running[pipe]
                yield child.task, _end(pipe, child)


def _start(task: Task) -> tuple[Connection, Child]:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(theirs, task))
    process.start()
    theirs.close()
    return ours, Child(task, process, time.monotonic())


def _end(pipe: Connection, child: Child) -> Outcome:
    """End a child and return its outcome."""
    try:
        return pipe.recv() if pipe.poll() else ("timeout", f"after {LIMIT_S} s")
    except EOFError:
        child.process.join()
        return "failed", f"the process ended with {child.process.exitcode}"
    finally:
        child.process.kill()
        child.process.join()


def _choose(args: argparse.Namespace, families: Mapping[str, str], known: Mapping[Task, Outcome]) -> list[Task]:
    """Return the tasks that are asked for. Raises SystemExit for an unknown name."""
    if unknown := set(args.only) - set(families):
        raise SystemExit(f"no model is called {', '.join(sorted(unknown))}")
    tasks = [(name, step) for name in args.only or families for step in STEPS]
    if args.missing:
        tasks = [task for task in tasks if task not in known]
    return [task for task in tasks if known[task][0] != "complete"] if args.failed else tasks


def _read() -> dict[Task, Outcome]:
    """Return the results of the last run."""
    path = RESULTS / f"{NAME}.json"
    rows = json.loads(path.read_text())["models"] if path.exists() else []
    return {(row["model"], row["step"]): (row["outcome"], row["detail"]) for row in rows}


def _write(families: Mapping[str, str], known: Mapping[Task, Outcome], versions: Mapping[str, str]) -> None:
    """Write the results so far, with the number of models by family, step and outcome."""
    rows = [
        {"model": name, "family": family, "step": step, "outcome": known[name, step][0], "detail": known[name, step][1]}
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
    write(NAME, {"versions": dict(versions), "counts": counts, "models": rows}, show=False)


def table(result: dict[str, Any]) -> str:
    """Return the counts by family, the models that are complete, and the others one by one, as a page shows them."""
    lines = [f"| family | step | models | {' | '.join(OUTCOMES)} |", "|---" * (len(OUTCOMES) + 3) + "|"]
    for family, steps in result["counts"].items():
        for step, counts in steps.items():
            cells = [str(counts.get(outcome, 0)) for outcome in OUTCOMES]
            lines.append(f"| {family} | {step} | {sum(counts.values())} | {' | '.join(cells)} |")
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


def main() -> None:
    """Import models and write results/model_zoo_coverage.json after each of them."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--only", nargs="+", default=[], help="names of models")
    parser.add_argument("--failed", action="store_true", help="those that the last run did not find complete")
    parser.add_argument("--missing", action="store_true", help="those of which there is no result")
    parser.add_argument("--processes", type=int, default=2, help="imports at once")
    args = parser.parse_args()
    import torch
    import transformers

    from benchmarks.plain_modules import MODULES

    torch.set_num_threads(1)
    versions = {"torch": torch.__version__.partition("+")[0], "transformers": transformers.__version__}
    families = dict.fromkeys(MODULES, "module") | list_types()
    partial = args.only or args.failed or args.missing
    known = _read()
    tasks = _choose(args, families, known)
    known = known if partial else {}
    import_model("lstm", "adamw")  # loads what every child process then has
    for (name, step), outcome in measure(tasks, args.processes):
        print(name, step, *outcome, flush=True)
        known[name, step] = outcome
        _write(families, known, versions)


if __name__ == "__main__":
    main()
