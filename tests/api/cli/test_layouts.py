"""Standard layouts on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.documents.graphs import dump_graph
from planner.ir.mesh import Mesh
from tests.testing.command_line import shardplan
from tests.testing.micro_steps import two_layers
from tests.testing.small_documents import written

# Options, and words of the message.
WRONG = [
    (["--mesh", "dp=2,tp=2", "--layout", "zero7"], "'hsdp', 'tp', 'dp+tp' or 'fsdp+tp'"),
    (["--mesh", "4", "--layout", "hsdp"], "layout (got hsdp; wanted a mesh with 2 axes"),
    (["--mesh", "3", "--layout", "dp"], "a batch that 3 divides"),
]


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("cli") / "step.json", dump_graph(two_layers(4), Mesh.parse("2")))


@pytest.mark.parametrize(("options", "words"), WRONG)
def test_a_layout_that_cannot_be_is_refused_with_what_can(step: Path, options: list[str], words: str) -> None:
    done = shardplan("plan", step, *options)
    assert done.code == 1
    assert words in done.err


def test_a_plan_of_a_layout_is_shown_run_explained_proven_and_compared(step: Path, tmp_path: Path) -> None:
    plan, proof, free = (tmp_path / name for name in ("plan.json", "proof.json", "free.json"))
    asked = ("plan", step, "--mesh", "dp=2,tp=2", "--deterministic")
    done = shardplan(
        *asked, "--layout", "fsdp", "--microbatches", 2, "-o", plan, "--proof", proof, "--validate", "--json"
    )
    assert done.code == 0, done.err
    assert done.json["verdict"] == "equal"
    assert "layout fsdp" in shardplan("show", plan).out
    assert shardplan("verify", plan, proof).code == 0
    for command in (["explain", plan], ["explain", plan, "n4"], ["report", plan, "-o", tmp_path / "report.html"]):
        assert shardplan(*command).code == 0
    assert shardplan(*asked, "-o", free).code == 0
    refused = shardplan("check", plan, "--base", free)
    assert refused.code == 1
    assert "plans of another layout" in refused.err
