"""`--time-limit` counts from the start of the command, and bounds the run of a plan too."""

from __future__ import annotations

import json
import time
from pathlib import Path

from api.cli.command_start import command_start
from planner.frontends.zoo import import_zoo
from tests.testing.command_line import shardplan


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
