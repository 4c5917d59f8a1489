"""The step with overlap on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.documents.graphs import dump_graph
from planner.ir.mesh import Mesh
from tests.testing.command_line import shardplan
from tests.testing.micro_steps import two_layers
from tests.testing.small_documents import written


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("cli") / "step.json", dump_graph(two_layers(4), Mesh.parse("2")))


def test_a_step_with_overlap_is_printed_beside_the_sum_with_a_bound_of_both(step: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    asked = ("plan", step, "--mesh", "dp=4", "--layout", "fsdp", "--hardware")
    done = shardplan(*asked, "a100-sxm", "-o", plan, "--json").json
    assert done["overlap"] == 1.0
    assert done["step_bound_s"] <= done["step_s"] <= done["objective_s"]
    shown = shardplan("show", plan).out
    assert "with overlap, of any plan not below" in shown
    assert "hidden by overlap" in shown
    assert shardplan("explain", plan).code == 0
    serial = shardplan(*asked, "a100-sxm", "--overlap", "0", "--json").json
    assert (serial["overlap"], serial["step_s"]) == (0.0, serial["objective_s"])
    unmeasured = shardplan(*asked, "h100-sxm", "--overlap", "0.5", "--json").json
    assert unmeasured["overlap"] == 0.5


def test_more_than_all_of_the_gain_is_refused(step: Path) -> None:
    done = shardplan("plan", step, "--mesh", "4", "--overlap", "1.5")
    assert done.code == 1
    assert "--overlap (got 1.5" in done.err
