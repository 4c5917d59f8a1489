"""`--time-limit` counts from the start of the command, and bounds all that it does."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from api.cli.command_start import command_start
from planner.documents.plans import read_plan
from planner.documents.report import dump_report
from planner.frontends.zoo import import_zoo
from planner.planning.deadline import Deadline, ProgressReporter
from tests.testing.command_line import refused, shardplan


def test_the_time_counts_from_the_start_of_the_command() -> None:
    before_s = time.monotonic()
    assert shardplan("hardware", "list").code == 0
    assert before_s <= command_start() < time.monotonic()
    assert command_start() == command_start()


def test_a_plan_is_not_run_where_the_time_is_up(tmp_path: Path) -> None:
    graph = tmp_path / "graph.json"
    graph.write_text(json.dumps(import_zoo("gpt2", batch=4, seq=8, layers=1, width=8, heads=2, train="sgd")))
    answer = shardplan("plan", graph, "--mesh", "2", "--time-limit", "0.001", "--validate", "--json")
    assert answer.code == 0
    assert answer.json["status"] == "feasible"
    assert answer.json["verdict"] is None


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a graph, its plan and the proof of the plan."""
    folder = tmp_path_factory.mktemp("planned")
    for name, width in (("graph", 8), ("wider", 16)):
        document = import_zoo("gpt2", batch=4, seq=8, layers=1, width=width, heads=2, train="sgd")
        (folder / f"{name}.json").write_text(json.dumps(document))
    written = ["-o", folder / "plan.json", "--proof", folder / "proof.json"]
    assert shardplan("plan", folder / "graph.json", "--mesh", "2", *written).code == 0
    return folder


IN_NO_TIME = ("--time-limit", "0.001")


def test_what_there_was_no_time_for_is_left_out_of_an_explanation(planned: Path) -> None:
    hurried, whole = (shardplan("explain", planned / "plan.json", "--json", *limit) for limit in (IN_NO_TIME, ()))
    assert hurried.code == whole.code == 0
    assert whole.json["sensitivity"] is not None
    assert hurried.json == whole.json | {"sensitivity": None}
    assert "the time limit was up before" in shardplan("explain", planned / "plan.json", *IN_NO_TIME).out


def test_what_there_was_no_time_for_is_left_out_of_a_report(planned: Path, tmp_path: Path) -> None:
    assert shardplan("report", planned / "plan.json", "-o", tmp_path / "page.html", *IN_NO_TIME).code == 0
    plan = read_plan(planned / "plan.json")
    ops = [
        dump_report(plan, None, ProgressReporter(deadline, None))["plan"]["program"]["ops"]
        for deadline in (Deadline(0.0), Deadline())
    ]
    assert not any(ops[0]["alternatives"])
    assert any(ops[1]["alternatives"])
    assert ops[0]["id"] == ops[1]["id"]


@pytest.mark.parametrize("words", [("explain", "plan.json", "n1"), ("validate", "plan.json")], ids=" ".join)
def test_a_command_without_a_partial_answer_says_that_the_time_was_up(planned: Path, words: tuple[str, ...]) -> None:
    command, file, *more = words
    refused(shardplan(command, planned / file, *more, *IN_NO_TIME), "the time limit was up before there was an answer")


def test_a_proof_is_not_verified_where_the_time_is_up(planned: Path) -> None:
    files = planned / "plan.json", planned / "proof.json"
    answer = shardplan("verify", *files, *IN_NO_TIME, "--json")
    assert (answer.code, answer.json) == (1, {"verified": False, "reason": "time limit"})
    assert shardplan("verify", *files).code == 0


def test_no_proof_is_written_where_the_time_is_up(planned: Path, tmp_path: Path) -> None:
    proof = tmp_path / "proof.json"
    answer = shardplan("plan", planned / "graph.json", "--mesh", "2", "--proof", proof, "--time-limit", "0.001")
    assert answer.code == 0
    assert "no proof is written, as the time limit was up" in answer.err
    assert not proof.exists()


def test_a_check_in_no_time_compares_standard_layouts_and_says_so(planned: Path) -> None:
    answer = shardplan("check", planned / "wider.json", "--base", planned / "plan.json", *IN_NO_TIME, "--json")
    assert answer.code in (0, 3), answer.err
    assert "planned within 0.001 s: part of a change may be due to the time limit" in answer.json["notes"]
