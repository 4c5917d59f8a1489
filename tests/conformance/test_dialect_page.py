"""The page on the mesh dialect answers the questions of the dialect's documents; its code and commands are run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from planner.ir.mesh import Mesh
from planner.rewrite.propagation.propagate import propagate
from tests.testing.annotated_notation import lines, materialized, moves
from tests.testing.command_line import shardplan
from tests.testing.documented_mlps import BY_OPTIONS_2D, BY_VALUES_2D, OPTIONS_2D

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "mesh-dialect.md").read_text()
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
COMMANDS = [
    line.split("#")[0].split()
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
]
# a heading, what its answer speaks of
QUESTIONS = [
    # conformance 89
    (
        "Which carrier should a sharding have?",
        ["type", "annotation", "option of an op", "most precise", "not for end users"],
    ),
    # conformance 90
    ("Why not the tiling interface?", ["slices", "logical", "partial"]),
    # conformance 91
    ("How are experts sharded (MoE)?", ["tensor dim", "fewer experts than devices", "factored"]),
    # conformance 92
    (
        "How does it differ from GSPMD?",
        ["Two methods per op", "No strategy in propagation", "Options of ops", "Explicit communication"],
    ),
    ("What did we decide where the documents contradict themselves?", ["DOC", "DIA", "SLD", "RFC"]),
]


@pytest.mark.parametrize(("heading", "points"), QUESTIONS)
def test_the_page_answers_the_question(heading: str, points: list[str]) -> None:
    assert [point for point in points if point not in SECTIONS[heading]] == []


# conformance 89
def test_options_of_ops_and_annotations_of_values_agree() -> None:
    mesh = Mesh.parse("2x2x2")
    assert lines(propagate(BY_VALUES_2D, mesh)) == lines(propagate(BY_OPTIONS_2D, mesh, OPTIONS_2D))
    assert lines(propagate(BY_OPTIONS_2D, mesh)) != lines(propagate(BY_OPTIONS_2D, mesh, OPTIONS_2D))


# conformance 90
def test_slices_and_sizes_appear_only_in_partition() -> None:
    completed = propagate(BY_VALUES_2D, Mesh.parse("?x?x?"))
    assert completed.graph is BY_VALUES_2D
    assert lines(completed) == lines(propagate(BY_VALUES_2D, Mesh.parse("2x2x2")))


# conformance 92
def test_communication_is_explicit_and_an_op_declares_only_loops_and_maps() -> None:
    mesh = Mesh.parse("2x2x2")
    program = materialized(BY_VALUES_2D, mesh, propagate(BY_VALUES_2D, mesh))
    assert [kind.value for kind in moves(program)] == ["all_gather", "all_reduce", "all_slice", "reduce_scatter"]
    rule = BY_VALUES_2D.ops[0].rule
    assert [loop.kind.value for loop in rule.loops[:4]] == ["parallel", "parallel", "reduction", "parallel"]
    assert [" ".join(map(str, term)) for term in (*rule.operands, *rule.results)] == ["_0 m k", "k n", "_0 m n"]


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
def test_the_python_runs_and_prints_what_the_page_says(
    code: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    exec(code, {"__name__": "__main__"})
    assert capsys.readouterr().out.splitlines() == re.findall(r"^print\(.*\) +# (.*)$", code, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_runs(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert command[0] == "shardplan"
    monkeypatch.chdir(ROOT)
    answer = shardplan(*command[1:])
    assert answer.code == 0, answer.err
    assert answer.out


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:planner|tests|examples)/[\w/.]+)`", PAGE))))
def test_every_path_named_exists(path: str) -> None:
    assert (ROOT / path).exists()
