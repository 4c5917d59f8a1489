"""The versions behind a plan: part of every id, read in plans of any age, and found without heavy imports."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from planner.choose import cost
from planner.documents.plans import parse_plan, read_plan
from planner.documents.programs import load_program
from planner.documents.versions import ABSENT, current_versions, versions_text
from planner.errors import InvalidDocument
from planner.run.validate import validate
from planner.version import VERSION
from tests.testing.command_line import ROOT, shardplan
from tests.testing.plan_versions import signed_again
from tests.testing.small_documents import GRAPH, Document, changed, written

OLD = Path(__file__).parent / "plan_of_solver_1.json"
"""As it was written when ids held `solver` 1 for every version of it."""

# key, another version
OTHERS = [("shardplan", "0.0.9"), ("cost_model", cost.VERSION + 1), ("ortools", "9.15.1"), ("ortools", ABSENT)]

RUN = """
import sys
from pathlib import Path
from planner.documents.plans import read_plan
from planner.documents.programs import load_program
from planner.documents.versions import current_versions
from planner.run.validate import validate
plan = read_plan(Path(sys.argv[1]))
print(validate(load_program(plan)).verdict, plan.solver.versions["ortools"], current_versions()["ortools"])
"""
SOLVERS = ("ortools", "numba", "llvmlite", "shardplan", "_editable")
"""What begins so is left away from the packages of a machine that only runs plans."""


def planned(folder: Path) -> Document:
    output = folder / "plan.json"
    answer = shardplan("plan", written(folder / "g.json", GRAPH), "--mesh", "2x4", "--deterministic", "-o", output)
    assert answer.code == 0, answer.err
    found: Document = json.loads(output.read_text())
    return found


def test_a_plan_names_the_versions_that_made_it(tmp_path: Path) -> None:
    document = planned(tmp_path)
    assert document["solver"]["versions"] == current_versions()
    assert current_versions() == {"cost_model": cost.VERSION, "ortools": version("ortools"), "shardplan": VERSION}
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|(a|b|rc)\d+)?", VERSION)


@pytest.mark.parametrize(("name", "other"), OTHERS)
def test_another_version_has_another_id(tmp_path: Path, name: str, other: object) -> None:
    document = planned(tmp_path)
    moved = signed_again(document, {**document["solver"]["versions"], name: other})
    assert moved["id"] != document["id"]
    assert parse_plan(moved, "plan").solver.versions[name] == other
    claimed = changed(document, f"solver.versions.{name}", other)
    with pytest.raises(InvalidDocument, match="versions are not those that were planned for"):
        parse_plan(claimed, "plan")


def test_a_plan_of_an_earlier_version_is_read_checked_and_run() -> None:
    plan = read_plan(OLD)
    assert plan.solver.versions == {"cost_model": 5, "solver": 1}
    assert validate(load_program(plan)).verdict == "equal"
    raw = json.loads(OLD.read_text())
    with pytest.raises(InvalidDocument, match="digest mismatch"):
        parse_plan(changed(raw, "solver.versions.solver", 2), "plan")


def test_versions_are_listed_in_the_order_of_their_names() -> None:
    assert versions_text({"shardplan": "1.0", "cost_model": 5}) == "cost_model 5, shardplan 1.0"


def test_a_plan_is_read_and_run_where_no_solver_is_installed(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    for entry in Path(np.__file__).parents[1].iterdir():
        if not entry.name.startswith(SOLVERS):
            (packages / entry.name).symlink_to(entry)
    file = written(tmp_path / "plan.json", planned(tmp_path))
    environment = {**os.environ, "PYTHONPATH": f"{packages}{os.pathsep}{ROOT}"}
    words = [sys.executable, "-S", "-c", RUN, str(file)]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["equal", version("ortools"), ABSENT]
