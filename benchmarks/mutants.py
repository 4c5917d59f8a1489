"""Measures how many small random faults the tests catch: faults are planted one at a time, and their tests are run.

`python -m benchmarks.mutants [--count N] [--seed S] [--only PREFIX] [--resume | --again]`: a fault has a random kind
and a random place of that kind (`benchmarks.source_faults`), in the modules that `benchmarks.mutant_sample` lists. It
is planted into a copy of the working tree. The tests run in a fork of this process, one by one, until one fails: those
that enter the faulty function (`benchmarks.call_trace`); where none does, as for compiled code, those that enter its
module; else all tests that `mutant_sample` lists for it. Tests named after the module run first, then the shortest.

caught: a test failed. timeout: none failed within LIMIT_S CPU seconds, although without the fault all tests need no
more than `--enough`. undecided: the tests did not end within WALL_S, on a busy machine. survived: all passed; `--again`
tries survivors again, with tests that were added since, or with more of them. equivalent: a survivor that changes
nothing observable, named with the reason in benchmarks/data/equivalent_mutants.json. `survived_first` marks faults that
were caught after they had survived fewer tests.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.mutant_sample import TESTS, sampled
from benchmarks.mutant_trees import Tree
from benchmarks.record import RESULTS, write
from benchmarks.source_faults import KINDS, Fault

# Takes hours: `make bench` leaves it out.

ROOT = Path(__file__).resolve().parents[1]
RESULT = RESULTS / "mutants.json"
EQUIVALENT = ROOT / "benchmarks" / "data" / "equivalent_mutants.json"
COUNT, SEED = 300, 20261122
JOBS = 2
LIMIT_S, ENOUGH_S = 60, 20
"""CPU seconds; no fault may take more than WALL_S of wall clock, however busy the machine."""
WALL_S = 240
MEMORY_BYTES = 6 << 30
PRELOADED = ("numpy", "networkx", "pydantic", "ortools.linear_solver.pywraplp", "numba", "pytest")


@dataclass(frozen=True)
class Trace:
    """The seconds of every test and the functions that it enters."""

    seconds: dict[str, float]
    by_function: dict[tuple[str, str], set[str]]
    by_module: dict[str, set[str]]

    @classmethod
    def read(cls, path: Path) -> Trace:
        trace = cls({}, {}, {})
        for line in path.read_text().splitlines():
            row = json.loads(line)
            if row["ends"] == "failed":
                raise SystemExit(f"{row['test']} fails without any fault")
            trace.seconds[row["test"]] = ENOUGH_S if row["ends"] == "long" else row["seconds"]
            for module, function in row["enters"]:
                trace.by_function.setdefault((module, function), set()).add(row["test"])
                trace.by_module.setdefault(module, set()).add(row["test"])
        return trace

    def tests(self, fault: Fault, enough_s: float, most_files: int) -> list[str]:
        """Return the tests that may catch a fault, the likeliest first, as many as fit into `enough_s` CPU seconds."""
        folders = next(folders for prefix, folders in TESTS.items() if fault.path.startswith(prefix))
        near = tuple(f"tests/{folder}" for folder in folders)
        entering = self.by_function.get((fault.path, fault.function)) or self.by_module.get(fault.path)
        known = [test for test in entering or self.seconds if test.startswith(near)]
        own = f"test_{Path(fault.path).stem}.py"
        known.sort(key=lambda test: (own not in test, self.seconds[test], test))
        files, chosen, seconds = set[str](), [], 0.0
        for test in known:
            files |= {test.partition("::")[0]} if len(files) < most_files else set()
            if test.partition("::")[0] in files and (seconds := seconds + self.seconds[test]) <= enough_s:
                chosen.append(test)
        return chosen


@dataclass
class Attempt:
    """The tests of one fault, run in a fork."""

    fault: Fault
    tree: Tree
    tests: list[str]
    child: int
    start: float

    @classmethod
    def begin(cls, fault: Fault, tree: Tree, tests: list[str]) -> Attempt:
        tree.plant(fault)
        (tree.root / "order").write_text("\n".join(tests))
        child = os.fork()
        if child == 0:
            _run_tests(tree.root, sorted({test.partition("::")[0] for test in tests}))
        return cls(fault, tree, tests, child, time.perf_counter())

    def result(self) -> dict[str, Any] | None:
        """Return the outcome, None while it is running."""
        seconds = time.perf_counter() - self.start
        ended, status = os.waitpid(self.child, os.WNOHANG)
        if not ended and seconds < WALL_S:
            return None
        with suppress(ProcessLookupError):
            os.killpg(self.child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(status if ended else os.waitpid(self.child, 0)[1])
        ends = {0: "survived", -signal.SIGXCPU: "timeout", -signal.SIGKILL: "undecided"}
        result = ends.get(code, "caught")
        by = self.tree.first_failure(code) if result == "caught" else None
        self.tree.restore(self.fault)
        found = {"tests": len(self.tests), "result": result, "seconds": round(seconds, 1)}
        return self.fault._asdict() | found | ({"by": by} if by else {})


def _run_tests(root: Path, files: list[str]) -> None:
    """Run the tests in the fork, with our packages imported again from the tree."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, 2 * LIMIT_S))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    os.chdir(root)
    output = os.open("output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ |= {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1", "TEST_ORDER": str(root / "order")}
    sys.dont_write_bytecode = True
    sys.path[:] = [str(root), *(path for path in sys.path if path and Path(path).resolve() != ROOT)]
    for name in [name for name in sys.modules if name.partition(".")[0] in ("benchmarks", "planner", "solvers")]:
        del sys.modules[name]
    code = 3
    try:
        import pytest

        code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "benchmarks.call_trace", *files]))
    except BaseException:  # noqa: BLE001 - nothing may return to the parent's code
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def attempts(
    planted: Sequence[Fault], trace: Trace, trees: list[Tree], asked: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Yield the outcome of every fault as it ends; as many run at a time as there are trees."""
    waiting, free, running = list(planted)[::-1], list(trees), list[Attempt]()
    while waiting or running:
        while waiting and free:
            fault = waiting.pop()
            if tests := trace.tests(fault, asked.enough, asked.files):
                running.append(Attempt.begin(fault, free.pop(), tests))
            else:
                yield fault._asdict() | {"tests": 0, "result": "survived", "seconds": 0.0}
        time.sleep(0.02)
        for attempt in list(running):
            if (row := attempt.result()) is not None:
                running.remove(attempt)
                free.append(attempt.tree)
                yield row


def traced(path: Path) -> Trace:
    """Run every test of the sampled modules once without a fault and return the trace."""
    folders = sorted({f"tests/{folder}" for near in TESTS.values() for folder in near})
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "benchmarks.call_trace", *folders]
    environment = os.environ | {"CALL_TRACE": str(path), "PYTHONPATH": str(ROOT)}
    subprocess.run(command, check=False, cwd=ROOT, env=environment)  # long tests are ended
    return Trace.read(path)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Count the outcomes by kind of fault; equivalent faults do not count as survivors."""
    ends = Counter(row["result"] for row in rows)
    real = len(rows) - ends["equivalent"]
    share = round((ends["caught"] + ends["timeout"]) / max(real, 1), 4)
    first = Counter("survived" if row.get("survived_first") else row["result"] for row in rows)
    kinds = {kind: dict(Counter(row["result"] for row in rows if row["kind"] == kind)) for kind in KINDS}
    return {"planted": len(rows), "ends": dict(ends), "at_first": dict(first), "caught_share": share, "kinds": kinds}


@dataclass
class Record:
    """The outcomes so far, written after each fault."""

    head: dict[str, Any]
    rows: dict[tuple[Any, ...], dict[str, Any]]
    reasons: dict[str, str]

    @classmethod
    def begin(cls, seed: int, resume: bool, sample: Sequence[Fault]) -> Record:
        """Start a record; with `resume`, keep the rows of faults that are also in this sample."""
        commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()
        rows = json.loads(RESULT.read_text())["mutants"] if resume and RESULT.exists() else []
        drawn = {place(fault._asdict()) for fault in sample}
        known = {place(row): row for row in rows if place(row) in drawn}
        return cls({"seed": seed, "commit": commit}, known, json.loads(EQUIVALENT.read_text()))

    def has(self, fault: Fault, again: bool) -> bool:
        row = self.rows.get(place(fault._asdict()))
        return row is not None and not (again and row["result"] in ("survived", "undecided"))

    def add(self, row: dict[str, Any]) -> None:
        before = self.rows.get(place(row))
        if row["result"] == "survived":
            line = (ROOT / row["path"]).read_text().splitlines()[row["line"] - 1].strip()
            row["source"] = line
            if reason := self.reasons.get(f"{row['path']}: {line}: {row['was']} -> {row['now']}"):
                row |= {"result": "equivalent", "reason": reason}
        if before and before["result"] == "survived" and row["result"] != "equivalent":
            row["survived_first"] = True
        self.rows[place(row)] = row
        rows = sorted(self.rows.values(), key=lambda row: (row["path"], row["start"], row["now"]))
        write("mutants", {**self.head, **summary(rows), "mutants": rows}, show=False)


def place(row: dict[str, Any]) -> tuple[str, int, str]:
    return row["path"], row["start"], row["now"]


def main() -> None:
    parser = argparse.ArgumentParser(description="Plant small random faults and run the tests.")
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--only", default="", metavar="PREFIX", help="of the faults drawn, those in these files")
    parser.add_argument("--trace", type=Path, default=ROOT / "build" / "call_trace.jsonl", help="made where missing")
    parser.add_argument("--enough", type=float, default=ENOUGH_S, help="processor seconds of tests for one fault")
    parser.add_argument("--files", type=int, default=1000, help="most test files for one fault")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--resume", action="store_true", help="go on where it was stopped")
    parser.add_argument("--again", action="store_true", help="the same, and what survived is tried again")
    asked = parser.parse_args()
    trace = Trace.read(asked.trace) if asked.trace.exists() else traced(asked.trace)
    sample = list(sampled(asked.count, asked.seed))
    record = Record.begin(asked.seed, asked.resume or asked.again, sample)
    chosen = [each for each in sample if each.path.startswith(asked.only) and not record.has(each, asked.again)]
    for name in PRELOADED:
        import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        trees = [Tree.copy(Path(folder) / str(number)) for number in range(asked.jobs)]
        for row in attempts(chosen, trace, trees, asked):
            record.add(row)
            print(
                len(record.rows),
                row["result"],
                f"{row['path']}:{row['line']}",
                row["was"],
                "->",
                row["now"],
                flush=True,
            )
    print(json.dumps(summary(list(record.rows.values()))))


if __name__ == "__main__":
    main()
