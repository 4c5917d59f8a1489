"""`shardplan solve` on the command line: its figures, the solution that it writes, and what it refuses."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from planner.documents.graphs import dump_graph
from planner.ir.mesh import Mesh
from tests.testing.command_line import refused, shardplan
from tests.testing.micro_steps import two_layers
from tests.testing.small_documents import written

# Cheapest without the limit: (0, 0) at 1; it uses 4 at moment 1, so within 3 the best is (1, 0) at 7.
PROBLEM: dict[str, Any] = {
    "problem": {
        "nodes": {"intervals": [[0, 2], [1, 3]], "costs": [[1, 2], [0, 9]], "usages": [[3, 1], [1, 1]]},
        "edges": {"nodes": [[0, 1]], "costs": [[0, 0, 5, 10**18]]},
        "usage_limit": 3,
    }
}

OPTIONS: list[tuple[list[str], str]] = [
    (["--time-limit", "-1"], "--time-limit (got -1.0"),
    (["--time-limit", "nan"], "--time-limit (got NaN"),
    (["--gap", "1"], "--gap (got 1.0"),
    (["--gap", "nan"], "--gap (got NaN"),
    (["--seed", "-1"], "--seed"),
    (["--output", "no/such/folder/choice.json"], "no/such/folder"),
]

FILES: list[tuple[bytes, str]] = [
    (b"", "JSON"),
    (b"[]", "document"),
    (b"\x1f\x8bno gzip", "damaged gzip"),
    (b'{"problem": {"nodes": {}}}', "edges"),
    (json.dumps(PROBLEM).replace("[1, 2]", "[1, -2]").encode(), "nodes.costs[0][1]"),
]


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(PROBLEM))
    return path


def test_the_figures_are_those_of_the_proven_optimum(problem: Path) -> None:
    figures = shardplan("solve", problem, "--json").json
    wanted = {"status": "optimal", "cost": 7, "bound": 7, "gap": 0.0, "reason": "gap proven"}
    assert {**wanted, "choice": [1, 0], "reproducible": True}.items() <= figures.items()


def test_two_deterministic_runs_give_the_same_answer_on_one_process_or_two(problem: Path) -> None:
    one, two = (shardplan("solve", problem, "--deterministic", "--processes", n, "--json").json for n in (1, 2))
    assert one == two
    assert one["reproducible"]


def test_the_log_says_which_operator_moved_cost_and_bound(tmp_path: Path) -> None:
    nodes = range(8)
    costs = [[(7 * i + 3 * x) % 11 for x in range(3)] for i in nodes]
    edges = [[i, j] for i in nodes for j in nodes if i < j]
    wanted: dict[str, Any] = {
        "nodes": {"intervals": [[0, 1]] * 8, "costs": costs, "usages": [[10 - c for c in own] for own in costs]},
        "edges": {"nodes": edges, "costs": [[(5 * i + j * x) % 7 for x in range(9)] for i, j in edges]},
        "usage_limit": 30,
    }
    (tmp_path / "problem.json").write_text(json.dumps({"problem": wanted}))
    answers = [
        shardplan("solve", tmp_path / "problem.json", "--deterministic", "--json", "--log", tmp_path / name)
        for name in ("one.json", "two.json")
    ]
    assert (tmp_path / "one.json").read_text() == (tmp_path / "two.json").read_text()
    written = json.loads((tmp_path / "one.json").read_text())
    assert {"began_s", "operator", "seconds", "lower", "upper", "size"} == written["log"][0].keys()
    assert {"root", "tree search", "messages", "probing"} <= {line["operator"] for line in written["log"]}
    last = written["trajectory"][-1]
    assert (last["cost"], last["bound"]) == (answers[0].json["cost"], answers[0].json["bound"])
    assert [point["bound"] for point in written["trajectory"]] == sorted(p["bound"] for p in written["trajectory"])


def test_the_log_of_a_plan_has_the_cost_and_bound_of_the_plan(tmp_path: Path) -> None:
    graph = written(tmp_path / "step.json", dump_graph(two_layers(4), Mesh.parse("2")))
    done = shardplan("plan", graph, "--mesh", "2x2", "--deterministic", "--json", "--log", tmp_path / "log.json")
    assert done.code == 0, done.err
    last = json.loads((tmp_path / "log.json").read_text())["trajectory"][-1]
    assert (last["cost"] * 1e-12, last["bound"] * 1e-12) == pytest.approx(
        (done.json["objective_s"], done.json["bound_s"]), rel=1e-9
    )


def test_the_solution_is_written_to_the_output(problem: Path, tmp_path: Path) -> None:
    output = tmp_path / "choice.json"
    answer = shardplan("solve", problem, "-o", output)
    assert answer.code == 0, answer.err
    written = json.loads(output.read_text())
    assert (written["choice"], written["cost"]) == ([1, 0], 7)
    assert "cost" in answer.out


def test_a_packed_file_gives_the_same_answer(problem: Path, tmp_path: Path) -> None:
    packed = tmp_path / "problem.json.gz"
    packed.write_bytes(gzip.compress(problem.read_bytes()))
    plain, other = (shardplan("solve", path, "--json").json for path in (problem, packed))
    assert {**plain, "wall_s": 0} == {**other, "wall_s": 0}


def test_an_infeasible_problem_brackets_the_least_limit(tmp_path: Path) -> None:
    document = copy.deepcopy(PROBLEM)
    document["problem"]["usage_limit"] = 1
    path, output = tmp_path / "tight.json", tmp_path / "choice.json"
    path.write_text(json.dumps(document))
    figures = shardplan("solve", path, "--json", "-o", output).json
    assert (figures["status"], figures["cost"]) == ("infeasible", None)
    assert figures["least_limit_bound"] <= 2 <= figures["least_limit"]
    assert json.loads(output.read_text())["choice"] is None


@pytest.mark.parametrize(("options", "words"), OPTIONS, ids=[" ".join(options) for options, _ in OPTIONS])
def test_an_invalid_solver_option_is_refused(options: list[str], words: str, problem: Path) -> None:
    refused(shardplan("solve", problem, *options), words)


@pytest.mark.parametrize(("raw", "words"), FILES, ids=[words for _, words in FILES])
def test_a_file_that_is_not_a_problem_is_refused_by_its_path(raw: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.json"
    path.write_bytes(raw)
    refused(shardplan("solve", path), words)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    refused(shardplan("solve", tmp_path / "none.json"), "none.json")
