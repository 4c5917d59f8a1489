"""`plan --pipeline` plans stages and prints their figures; `show` prints the schedule; bad input is one message."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from planner.frontends.zoo import import_zoo
from tests.testing.command_line import refused, shardplan
from tests.testing.small_documents import written

TINY = {"width": 16, "heads": 4, "feed_forward": 32, "vocabulary": 24, "batch": 4, "seq": 8, "layers": 1}

IN_NO_TIME = ("--time-limit", "0.001")

# Options, and words of the message.
WRONG = [
    (["--pipeline", "9"], "more stages than parts"),
    (["--pipeline", "none"], "pipeline stages"),
    (["--pipeline", "2", "--virtual-stages", "2"], "interleaved"),
    (["--pipeline", "2", "--schedule", "late"], "schedule"),
    (["--schedule", "gpipe"], "no pipeline"),
    (["--pipeline", "٣"], "pipeline stages"),
    (["--pipeline", "3", "--pipeline-meshes", "2/2"], "wanted 3, one mesh for each rank"),
    (["--pipeline", "auto", "--pipeline-meshes", "2/2"], "one mesh for each rank"),
    (["--pipeline-meshes", "4/2"], "wanted 0=4, that of the first rank"),
    (["--pipeline-meshes", "2/"], "mesh does not parse"),
    (["--pipeline-meshes", "2/tp=2", "--layout", "tp"], "pins or a layout of a pipeline"),
    (["--pipeline", "2", "--proof", "proof.json"], "--proof"),
    (["--pipeline", "2", "--log", "log.json"], "--log"),
    (["--pipeline", "2", "--validate", "--shrink", "none", "--backend", "mpi"], "how a pipeline is run"),
    (["--pipeline", "auto", "--schedule", "interleaved", "--virtual-stages", "999"], "more stages than parts"),
]


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    document = import_zoo("llama-7b", train="sgd", dtype="f32", **TINY)  # type: ignore[arg-type]
    return written(tmp_path_factory.mktemp("cli") / "step.json", document)


def explain(path: Path, step_s: float) -> None:
    """Check what `explain` says of a plan of two stages."""
    found = shardplan("explain", path, "--json").json
    assert found["step_ps"] * 1e-12 == pytest.approx(step_s)
    assert found["slowest_ps"] + found["fill_ps"] + found["sends_ps"] == found["step_ps"]
    (cut,) = found["cuts"]
    assert [move["units"] for move in cut["moves"]] == [-1, 1]
    assert all(move["reason"] or move["bound_ps"] <= move["step_ps"] for move in cut["moves"])
    hurried = shardplan("explain", path, "--json", *IN_NO_TIME).json
    assert {move["step_ps"] for move in hurried["cuts"][0]["moves"]} == {None}
    shown = shardplan("explain", path, *IN_NO_TIME)
    assert shown.code == 0, shown.err
    assert "one unit later" in shown.out
    assert "at least" in shown.out
    assert "no such op or input in any stage" in shardplan("explain", path, "nobody").err
    op = next(node["op"] for node in json.loads(path.read_text())["stages"][1]["plan"]["program"])
    decision = shardplan("explain", path, op, "--alternatives", 0, "--json")
    assert decision.json["name"] == op


def compare(step: Path, path: Path) -> None:
    """Check what `diff` and `check` say of a plan of two stages."""
    found = shardplan("diff", path, path, "--json").json
    assert found["stages"]["base"] == found["stages"]["new"]
    assert "the plans are equal" in shardplan("diff", path, path).out
    pages = {form: path.with_name(f"page.{form}") for form in ("markdown", "junit", "sarif")}
    reports = [word for form, page in pages.items() for word in (f"--{form}", page)]
    answer = shardplan("check", path, "--base", path, *reports)
    assert answer.code == 0, answer.err
    assert "bytes between stages" in pages["markdown"].read_text()
    assert shardplan("check", step, "--base", path, "--json").json["graphs_equal"]
    plain = path.with_name("plain.json")
    assert shardplan("plan", step, "--mesh", "2", "--microbatches", 4, "--gap", 0.2, "-o", plain).code == 0
    assert shardplan("diff", plain, path, "--json").json["totals"]["sent_bytes"]["base"] == 0
    refused(shardplan("check", plain, "--base", path), "plans of another pipeline cannot be compared")


def test_stages_are_planned_and_shown(step: Path) -> None:
    path = step.with_name("plan.json")
    options = ("--mesh", "2", "--pipeline", 2, "--microbatches", 4, "--gap", 0.2, "--validate")
    done = shardplan("plan", step, *options, "-o", path, "--json")
    assert done.code == 0, done.err
    figures = done.json
    assert len(figures["stages"]) == 2
    assert {"layers", "step_s", "peak_memory_bytes"} <= figures["stages"][0].keys()
    assert 0 < figures["bubble"] < 1
    assert 0 < figures["mfu"] < 1
    assert figures["bound_s"] <= figures["objective_s"]
    assert figures["devices"] == 4
    assert figures["verdict"] == "equal"
    assert figures["peak_memory_bytes"] == max(stage["peak_memory_bytes"] for stage in figures["stages"])
    shown = shardplan("show", path)
    assert shown.code == 0, shown.err
    assert "1f1b: bubble" in shown.out
    assert "FFF" in shown.out
    assert "stage 1" in shardplan("show", path, "--program").out
    assert shardplan("show", path, "--json").json["schedule"]["name"] == "1f1b"
    assert shardplan("validate", path, "--json").json["verdict"] == "equal"
    assert "equal to the unsharded model on 4 devices" in shardplan("validate", path).out
    page = step.with_name("page.html")
    assert shardplan("report", path, "-o", page).code == 0
    (held,) = re.findall(r'id="report">(.*?)</script>', page.read_text())
    document = json.loads(held)
    assert document["timeline"][0][0]["kind"] == "forward"
    assert [stage["peak_memory_bytes"] for stage in document["stages"]] == [
        stage["peak_memory_bytes"] for stage in figures["stages"]
    ]
    explain(path, figures["objective_s"])
    compare(step, path)
    refused(shardplan("validate", path, *IN_NO_TIME), "the time limit was up before there was an answer")
    refused(shardplan("report", path, "--compare-to", path, "-o", page), "--compare-to with a plan in stages")


def test_each_rank_may_have_a_mesh_of_its_own(step: Path) -> None:
    path = step.with_name("unequal.json")
    options = ("--mesh", "2", "--pipeline-meshes", "2/dp=1,tp=3", "--microbatches", 4, "--gap", 0.2)
    done = shardplan("plan", step, *options, "-o", path, "--json")
    assert done.code == 0, done.err
    assert done.json["devices"] == 5
    assert "in stages of 0=2 / dp=1,tp=3" in shardplan("show", path).out
    explain(path, done.json["objective_s"])
    answer = shardplan("check", step, "--base", path, "--json")
    assert answer.json["graphs_equal"]
    even = step.with_name("even.json")
    assert shardplan("plan", step, "--mesh", "2", "--pipeline", 2, "--microbatches", 4, "-o", even).code == 0
    refused(shardplan("check", even, "--base", path), "plans of another mesh cannot be compared")


def test_stages_are_not_run_where_the_time_is_up(step: Path) -> None:
    options = ("--mesh", "2", "--pipeline", 2, "--microbatches", 4, "--validate", *IN_NO_TIME)
    done = shardplan("plan", step, *options, "--json")
    assert done.code == 0, done.err
    assert (done.json["status"], done.json["verdict"]) == ("feasible", None)


def test_a_plan_is_kept_where_it_cannot_be_run(step: Path) -> None:
    path = step.with_name("large.json")
    options = ("--mesh", 1000, "--pipeline", 2, "--validate", "--time-limit", 1)
    refused(shardplan("plan", step, *options, "-o", path), "too many logical devices to run")
    assert len(shardplan("show", path, "--json").json["stages"]) == 2


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_what_cannot_be_is_refused_in_one_message(step: Path, options: list[str], message: str) -> None:
    done = shardplan("plan", step, "--mesh", "2", "--microbatches", 4, *options)
    assert done.code == 1
    assert message in done.err
    assert "Traceback" not in done.err


def test_a_graph_without_phases_is_refused(step: Path) -> None:
    forward = written(step.with_name("forward.json"), import_zoo("llama-7b", dtype="f32", **TINY))  # type: ignore[arg-type]
    done = shardplan("plan", forward, "--mesh", "2", "--pipeline", 2, "--microbatches", 4)
    assert done.code == 1
    assert "without phases" in done.err
