"""The hand-written reference pages are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import planner
import solvers
from planner import errors

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
CONSTANTS = {"CUT_OFF", "IMPOSSIBLE"}
PUBLIC = [f"{package.__name__}.{name}" for package in (planner, solvers) for name in package.__all__]
KINDS = {
    kind
    for path in (Path(__file__).parents[1] / "api" / "http").rglob("*.py")
    for kind in re.findall(r"\bHttpProblem\(\s*\d+,\s*\"([a-z-]+)\"", path.read_text())
}
ERRORS = [
    name for name, value in vars(errors).items() if isinstance(value, type) and value.__module__ == errors.__name__
]


@pytest.mark.parametrize("name", [name for name in PUBLIC if name.rpartition(".")[2] not in CONSTANTS])
def test_every_public_name_is_in_the_reference(name: str) -> None:
    assert f"\n::: {name}\n" in (REFERENCE / "python.md").read_text()


@pytest.mark.parametrize("name", [name for name in ERRORS if name != "ShardplanError"])
def test_every_error_says_what_to_do(name: str) -> None:
    (row,) = re.findall(rf"^\| `{name}` \|(.*)\|$", (REFERENCE / "errors.md").read_text(), re.MULTILINE)
    assert all(cell.strip() for cell in row.split("|"))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_problem_says_what_to_do(kind: str) -> None:
    assert f"`{kind}`" in (REFERENCE / "errors.md").read_text()
