"""`report`: a file with the plan's numbers; bad input ends in one line and writes no file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testing.command_line import refused, shardplan
from tests.testing.small_documents import GRAPH, changed, written


def planned(folder: Path, graph: object = GRAPH, name: str = "plan") -> Path:
    output = folder / f"{name}.json"
    answer = shardplan(
        "plan", written(folder / f"{name}.g.json", graph), "--mesh", "2x4", "--deterministic", "-o", output
    )
    assert answer.code == 0, answer.err
    return output


def test_a_report_is_the_same_bytes_for_the_same_plan(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    first, second = tmp_path / "a.html", tmp_path / "b.html"
    told = shardplan("report", plan, "-o", first, "--json")
    assert told.json == {"file": str(first), "bytes": first.stat().st_size}
    assert shardplan("report", plan, "-o", second).out == ""
    assert first.read_bytes() == second.read_bytes()


def test_a_plan_that_was_run_is_reported_with_its_verdict(tmp_path: Path) -> None:
    plan, page = tmp_path / "plan.json", tmp_path / "page.html"
    graph = written(tmp_path / "g.json", GRAPH)
    assert shardplan("plan", graph, "--mesh", "2x4", "--validate", "-o", plan).code == 0
    assert shardplan("report", plan, "-o", page).code == 0
    assert '"verdict":{"verdict":"equal"' in page.read_text()


def test_plans_of_models_with_nothing_in_common_are_refused(tmp_path: Path) -> None:
    inputs = changed(GRAPH, "inputs", [{**GRAPH["inputs"][0], "shape": [4, 4]}])
    node = {"id": "e", "op": "exp", "inputs": ["x"], "outputs": [{"shape": [4, 4], "dtype": "f32"}]}
    other = planned(tmp_path, {**inputs, "nodes": [node], "outputs": ["e"]}, "other")
    page = tmp_path / "page.html"
    refused(shardplan("report", planned(tmp_path), "--compare-to", other, "-o", page), "nothing in common")
    assert not page.exists()


@pytest.mark.parametrize(
    ("content", "words"), [("{", "plan.json"), ('{"format": 3}', "does not fit"), ("", "plan.json")]
)
def test_a_plan_that_cannot_be_read_is_refused(tmp_path: Path, content: str, words: str) -> None:
    page = tmp_path / "page.html"
    refused(shardplan("report", written(tmp_path / "plan.json", content), "-o", page), words)
    assert not page.exists()


def test_a_missing_folder_is_reported_before_any_work(tmp_path: Path) -> None:
    refused(shardplan("report", tmp_path / "no plan", "-o", tmp_path / "none" / "page.html"), "cannot be written")
