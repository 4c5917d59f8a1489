"""Steps of several micro-batches on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.documents.graphs import dump_graph
from planner.ir.mesh import Mesh
from tests.testing.command_line import shardplan
from tests.testing.micro_steps import two_layers
from tests.testing.small_documents import GRAPH, written

# Options, and words of the message.
WRONG = [
    (["--microbatches", "0"], "microbatches"),
    (["--microbatches", "2", "--global-batch", "8"], "one of the two"),
    (["--global-batch", "6"], "a multiple of the first dim"),
    (["--global-batch", "2"], "a multiple of the first dim"),
]


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("cli") / "step.json", dump_graph(two_layers(4), Mesh.parse("2")))


@pytest.fixture(scope="module")
def plan(step: Path) -> Path:
    path = step.with_name("plan.json")
    done = shardplan(
        "plan", step, "--mesh", "dp=2,tp=2", "--microbatches", 3, "--deterministic", "--validate", "-o", path, "--json"
    )
    assert done.code == 0, done.err
    assert done.json["verdict"] == "equal"
    return path


def test_a_global_batch_is_so_many_micro_batches(step: Path, plan: Path) -> None:
    found = shardplan("plan", step, "--mesh", "dp=2,tp=2", "--global-batch", 12, "--deterministic", "--json").json
    kept = shardplan("show", plan, "--json").json
    assert found["objective_s"] == kept["solver"]["objective_s"]
    assert kept["cost"]["microbatches"] == 3
    assert 0 < kept["cost"]["update_s"] < kept["cost"]["step_s"]


def test_a_plan_of_micro_batches_is_shown_run_explained_and_compared(step: Path, plan: Path, tmp_path: Path) -> None:
    assert "3 micro-batches" in shardplan("show", plan).out
    assert "accumulate" in shardplan("show", plan, "--program").out
    run = shardplan("validate", plan, "--shrink", "none", "--json")
    assert run.json["verdict"] == "equal", run.err
    assert run.json["counted_bytes"] == run.json["predicted_bytes"]
    assert run.json["counted_peak_bytes"] == run.json["predicted_peak_bytes"]
    for command in (["explain", plan], ["explain", plan, "n4"], ["report", plan, "-o", tmp_path / "report.html"]):
        done = shardplan(*command)
        assert done.code == 0, done.err
    once = tmp_path / "once.json"
    assert shardplan("plan", step, "--mesh", "dp=2,tp=2", "--deterministic", "-o", once).code == 0
    compared = shardplan("diff", once, plan, "--json")
    assert compared.code == 0, compared.err


@pytest.mark.parametrize(("options", "words"), WRONG)
def test_wrong_numbers_of_micro_batches_are_refused(step: Path, options: list[str], words: str) -> None:
    refused = shardplan("plan", step, "--mesh", "2", *options)
    assert refused.code == 1
    assert words in " ".join(refused.err.split())


def test_a_graph_without_an_update_is_refused(tmp_path: Path) -> None:
    forward = written(tmp_path / "forward.json", GRAPH)
    refused = shardplan("plan", forward, "--mesh", "2", "--microbatches", 2)
    assert refused.code == 1
    assert "a graph without an update" in " ".join(refused.err.split())


def test_an_export_of_a_program_is_refused(plan: Path) -> None:
    refused = shardplan("export", plan, "--format", "shard")
    assert refused.code == 1
    assert "the format has no loop" in " ".join(refused.err.split())
