"""The latency of collectives between the nodes of a cluster, as a figure of the request."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.choose.hardware import load_profile
from planner.documents.graphs import dump_graph
from planner.ir.mesh import Mesh
from tests.testing.command_line import shardplan
from tests.testing.micro_steps import two_layers
from tests.testing.small_documents import written

ASKED = ("--hardware", "h100-sxm", "--layout", "dp", "--json")


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("cli") / "step.json", dump_graph(two_layers(16), Mesh.parse("2")))


def test_a_collective_between_nodes_takes_longer_by_what_the_latency_exceeds_that_of_the_profile(
    step: Path, tmp_path: Path
) -> None:
    plan, slower_plan, more = tmp_path / "plan.json", tmp_path / "slower.json", 1e-3
    own = load_profile("h100-sxm").links["infiniband"].latency_s
    known = shardplan("plan", step, "--mesh", "dp=16", *ASKED, "-o", plan).json
    asked = ("--base-latency", own + more, "-o", slower_plan)
    slower = shardplan("plan", step, "--mesh", "dp=16", *ASKED, *asked).json
    count = sum(each["count"] for each in json.loads(plan.read_text())["cost"]["by_collective"])
    # A slower plan may have fewer collectives, at most as many.
    assert known["objective_s"] + more <= slower["objective_s"] <= known["objective_s"] + count * more * 1.001
    assert json.loads(slower_plan.read_text())["request"]["base_latency_s"] == own + more
    assert shardplan("explain", slower_plan).code == 0
    assert shardplan("check", step, "--base", slower_plan).code == 0


def test_inside_a_node_nothing_changes(step: Path) -> None:
    known, same = (
        shardplan("plan", step, "--mesh", "dp=8", *ASKED, *more).json for more in ((), ("--base-latency", 1.0))
    )
    assert known["objective_s"] == same["objective_s"]
    assert known["id"] != same["id"]


def test_stages_and_capacity_take_it_too(step: Path, tmp_path: Path) -> None:
    sizes = ("--layers", 2, "--width", 16, "--heads", 2, "--feed-forward", 32, "--vocabulary", 24, "--batch", 16)
    staged, asked = tmp_path / "gpt.json", ("--hardware", "h100-sxm", "--json")
    assert shardplan("import", "zoo", "gpt2", *sizes, "--seq", 8, "--train", "adam", "-o", staged).code == 0
    stages = ("plan", staged, "--mesh", "dp=16", "--pipeline", 2, "--microbatches", 2, *asked)
    assert shardplan(*stages).json["objective_s"] < shardplan(*stages, "--base-latency", 1e-3).json["objective_s"]
    sweep = ("capacity", step, "--devices", 16, "--axes", 1, "--layout", "dp", *asked)
    fast, slow = (shardplan(*sweep, *more).json["fastest"] for more in ((), ("--base-latency", 2e-3)))
    assert fast["step_s"] + 1e-3 <= slow["step_s"]


@pytest.mark.parametrize("given", ["-1", "nan", "2"])
def test_a_latency_that_is_none_is_refused(step: Path, given: str) -> None:
    done = shardplan("plan", step, "--mesh", "4", "--base-latency", given)
    assert done.code == 1
    assert "--base-latency (got" in done.err
