"""Rules of the code base: imports go one way, outside packages have one home, files and functions stay small.

Every file is parsed, none is run; an import inside a function or under TYPE_CHECKING counts like any other.
A rule returns a list of `file:line: what is wrong`; a test passes where the list is empty.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.util import resolve_name
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.testing.source_files import PACKAGES, ROOT, assert_none, parsed, python_files, relative

SCRIPTS = ("tests", "benchmarks", "examples")

MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 40
VAGUE_NAMES = {"util", "utils", "helper", "helpers", "manager", "managers", "base"}

# What a module may import of ours, by the longest listed prefix of its name. A name allows all below it.
IR = ("planner.ir", "planner.errors")
MODEL = ("planner.ops", "planner.spmd", *IR)
ON_RESHARD = ("planner.reshard", *MODEL)
ON_MODEL = ("planner.frontends", "planner.choose", "planner.rewrite", "planner.run", "planner.export")
PRICES = ("planner.choose.cost", "planner.choose.hardware", "planner.choose.options", "planner.choose.axis_units")
FORMULATION = ("formulate", "edge_matrices", "problem_builder", "communication_volume", "fold", "plain_orders")
JUDGED = ("planner.judge", *ON_MODEL, *ON_RESHARD)
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "solvers": ("solvers",),
    "planner.errors": (),
    "planner.ir": IR,
    "planner.ops": ("planner.ops", *IR),
    "planner.spmd": ("planner.spmd", *IR),
    "planner.reshard": ("planner.reshard", *PRICES, *IR),
    "planner.frontends": ("planner.frontends", *MODEL),
    "planner.export": ("planner.export", "planner.rewrite", *MODEL),
    **{package: (package, *ON_RESHARD) for package in ("planner.choose", "planner.rewrite", "planner.run")},
    **{f"planner.choose.{module}": ("planner.choose", *ON_RESHARD, "solvers") for module in FORMULATION},
    "planner.judge": JUDGED,
    **{f"planner.judge.{module}": (*JUDGED, "solvers") for module in ("explain", "what_if", "alternatives")},
    "planner": ("planner",),  # documents and what else stands beside the pipeline
    "planner.pipeline": ("planner", "solvers"),
    "planner.pipeline_stages.mixed_paths": ("planner", "solvers"),
    "planner.planning.deadline": ("planner", "solvers"),
    "planner.planning.folded_solve": ("planner", "solvers"),
    "planner.progress": ("planner", "solvers"),
    "planner.usecases.capacity": ("planner", "solvers"),
    "planner.planning.last_changes": ("planner", "solvers"),
    "planner.planning.objectives": ("planner", "solvers"),
    "planner.usecases.prove": ("planner", "solvers"),
    "planner.planning.plan_search": ("planner", "solvers"),
    "api": ("api", "planner", "solvers"),
}

# Where an outside package may be imported: a folder, a file, or the beginning of a file's path.
FOREIGN_GRAPHS = ("planner/frontends/", "planner/export/")
HOMES: dict[str, tuple[str, ...]] = {
    "numpy": ("planner/", "solvers/"),
    "ortools": ("solvers/",),
    "numba": ("solvers/",),
    "networkx": ("planner/ir/graph.py", "planner/choose/", "planner/rewrite/", "planner/judge/"),
    "pydantic": ("planner/documents", "api/"),
    "cupy": ("planner/run/",),
    "cupyx": ("planner/run/",),
    "mpi4py": ("planner/run/",),
    "torch": FOREIGN_GRAPHS,
    "transformers": FOREIGN_GRAPHS,
    "jax": FOREIGN_GRAPHS,
    "jaxlib": FOREIGN_GRAPHS,
    "onnx": FOREIGN_GRAPHS,
    "typer": ("api/",),
    "rich": ("api/",),
    "fastapi": ("api/",),
    "uvicorn": ("api/",),
    "starlette": ("api/",),
    "sqlalchemy": ("api/",),
    "alembic": ("api/",),
    "psycopg": ("api/",),
    "dbos": ("api/jobs/",),
    "opentelemetry": ("api/tracing.py",),
    "prometheus_client": ("api/metrics.py",),
}

# Traces of one machine or of a registry. One letter stands in brackets so that no pattern finds itself.
FORBIDDEN_TRACES = [
    r"\.\./[s]hared\b",
    r"(?<![\w.])/[w]ork/",
    r"/[t]mp/brief\b",
    r"/[r]oot/",
    r"/[o]pt/(pypi|wheels)\b",
    r"\b[p]ypi\.org\b",
    r"\b[p]ythonhosted\.org\b",
    r"\b[n]pmjs\.org\b",
    r"\b[d]ownload\.pytorch\.org\b",
]
NOT_OURS = {".git", "__pycache__", "build", "dist", ".hypothesis", ".idea", ".vscode", "node_modules"}


class Import(NamedTuple):
    """`importer` (a module of ours) names `target` (a module, ours or not) at `place` (file:line)."""

    importer: str
    target: str
    path: str
    line: int

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}"


def module_name(path: Path) -> str:
    return relative(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def our_modules() -> frozenset[str]:
    return frozenset(module_name(path) for path in python_files(*PACKAGES))


@cache
def every_module() -> frozenset[str]:
    return our_modules() | {module_name(path) for path in python_files(*SCRIPTS)}


def imports_of(path: Path) -> Iterator[Import]:
    importer = module_name(path)
    package = importer if path.name == "__init__.py" else importer.rpartition(".")[0]
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            source = resolve_name("." * node.level + (node.module or ""), package)
            inner = [f"{source}.{alias.name}" for alias in node.names]
            targets = [name if name in every_module() else source for name in inner]
        else:
            continue
        yield from (Import(importer, target, relative(path), node.lineno) for target in targets)


@cache
def all_imports() -> tuple[Import, ...]:
    return tuple(found for path in python_files(*PACKAGES) for found in imports_of(path))


def is_within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(f"{prefix}.")


def top(name: str) -> str:
    return name.partition(".")[0]


def allowed_for(importer: str) -> tuple[str, ...]:
    return MAY_IMPORT[max((prefix for prefix in MAY_IMPORT if is_within(importer, prefix)), key=len)]


def test_the_three_packages_exist() -> None:
    assert set(PACKAGES) <= our_modules()


def test_imports_point_one_way() -> None:
    """api -> planner -> solvers; inside planner as MAY_IMPORT says."""
    assert_none(
        [
            f"{found.place}: {found.importer} may not import {found.target}"
            f" (wanted one of: {', '.join(allowed_for(found.importer)) or 'nothing of ours'})"
            for found in all_imports()
            if top(found.target) in (*PACKAGES, *SCRIPTS)
            and not any(is_within(found.target, allowed) for allowed in allowed_for(found.importer))
        ]
    )


def circle_of_imports() -> list[str]:
    needs: dict[str, set[str]] = {module: set() for module in our_modules()}
    for found in all_imports():
        if found.target in needs:
            needs[found.importer].add(found.target)
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        modules: list[str] = error.args[1]
        return modules[::-1]  # graphlib lists the needed one first
    return []


def test_no_imports_run_in_a_circle() -> None:
    hops = set(pairwise(circle_of_imports()))
    assert_none([f"{one.place}: {one.importer} -> {one.target}" for one in all_imports() if one[:2] in hops])


def test_every_outside_package_stays_in_its_home() -> None:
    faults = []
    for found in all_imports():
        package = top(found.target)
        if package in sys.stdlib_module_names or package in (*PACKAGES, *SCRIPTS):
            continue
        if package not in HOMES:
            faults.append(f"{found.place}: {package} has no home; give it one in HOMES and a reason in pyproject.toml")
        elif not found.path.startswith(HOMES[package]):
            faults.append(f"{found.place}: {package} lives only in {', '.join(HOMES[package])}")
    assert_none(faults)


def test_no_file_or_folder_has_a_meaningless_name() -> None:
    assert_none(
        [
            f"{relative(path)}:1: name it after its noun, not {', '.join(sorted(vague))}"
            for path in python_files(*PACKAGES, *SCRIPTS)
            if (vague := VAGUE_NAMES & set(re.split(r"[/_.]", relative(path))))
        ]
    )


def test_no_file_is_longer_than_its_ceiling() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in python_files(*PACKAGES, *SCRIPTS)}
    assert_none(
        [
            f"{relative(path)}:{lines}: {lines} lines (wanted at most {MAX_FILE_LINES}): split it by noun"
            for path, lines in lengths.items()
            if lines > MAX_FILE_LINES
        ]
    )


def function_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end; the docstring does not count."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function, clean=False) is None:
        return lines
    docstring = function.body[0]
    return lines - ((docstring.end_lineno or docstring.lineno) - docstring.lineno + 1)


def test_no_function_is_longer_than_its_ceiling() -> None:
    assert_none(
        [
            f"{relative(path)}:{node.lineno}: {node.name} has {function_lines(node)} lines"
            f" (wanted at most {MAX_FUNCTION_LINES})"
            for path in python_files(*PACKAGES)
            for node in ast.walk(parsed(path))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and function_lines(node) > MAX_FUNCTION_LINES
        ]
    )


def test_tests_and_benchmarks_share_only_what_is_in_testing() -> None:
    """No module imports a `test_*` module; benchmarks import nothing else of tests."""
    assert_none(
        [
            f"{found.place}: {found.importer} imports {found.target}; move what is shared to tests/testing"
            for path in python_files(*SCRIPTS)
            for found in imports_of(path)
            if is_within(found.target, "tests")
            and (
                ".test_" in found.target or not (is_within(found.importer, "tests") or "tests.testing" in found.target)
            )
        ]
    )


def our_files(folder: Path = ROOT) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        is_an_environment = path.name.startswith(".venv")
        if is_an_environment or path.name in NOT_OURS or path.name.endswith(("_cache", ".egg-info")):
            continue
        yield from our_files(path) if path.is_dir() else [path]


def test_no_file_mentions_one_machine_or_a_registry() -> None:
    trace = re.compile("|".join(FORBIDDEN_TRACES).encode())
    assert_none(
        [
            f"{relative(path)}:{number}: mentions {found[0].decode()}"
            for path in our_files()
            for number, line in enumerate(path.read_bytes().splitlines(), start=1)
            if (found := trace.search(line))
        ]
    )
