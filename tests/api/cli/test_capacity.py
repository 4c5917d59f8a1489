"""`shardplan capacity`: its table, its document, its plans, and how bad input ends."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from planner.frontends.zoo import MODELS
from tests.testing.command_line import shardplan
from tests.testing.small_documents import GRAPH, written

KEYS = {"candidates", "frontier", "smallest_feasible", "cheapest", "fastest", "complete", "planned", "unit"}

# Words after `capacity GRAPH`, and what the one message says.
BAD = [
    (["--devices", "4", "--hardware", "cpu", "--pipeline", "4"], "pipeline stages of a graph without phases"),
    (["--devices", "4", "--hardware", "cpu", "--pipeline", "0"], "pipeline stages (got 0"),
    (["--devices", "4", "--hardware", "cpu", "--pipeline", "4", "--overlap", "1"], "overlap of a pipeline"),
    (["--devices", "4", "--hardware", "cpu", "--pipeline-meshes", "2/2"], "wanted stages on meshes of one shape"),
    (["--devices", "4", "--hardware", "cpu", "--stages", "4"], "--pipeline says how many stages"),
    (["--devices", "4", "--hardware", "cpu", "--microbatches", "4"], "--global-batch asks for updates"),
    (["--devices", "8..4", "--hardware", "cpu"], "numbers of devices (got 8..4"),
    (["--devices", "4", "--hardware", "h101"], "unknown hardware (got h101"),
    (["--devices", "4", "--hardware", "cpu=dear"], "price of a device-hour (got dear"),
    (["--devices", "4", "--hardware", "cpu=1,h100-sxm"], "a price for some hardware only"),
    (["--devices", "4", "--hardware", "cpu", "--mesh", "dp=?,tp=3"], "no candidate mesh"),
    (["--devices", "1..16384", "--hardware", ",".join(["cpu"] * 200), "--axes", "3"], "too many meshes"),
    (["--devices", "2", "--hardware", "cpu", "--max-step", "1e-9"], "no plan meets the budget"),
    (["--devices", "2", "--hardware", "cpu", "--tokens", "1e12"], "tokens of a run"),
    (["--devices", "2", "--hardware", "cpu", "--global-batch", "8"], "global batch"),
    (["--devices", "2", "--hardware", "cpu", "-o", "/nowhere/answer.json"], "no such folder"),
]


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    return written(tmp_path / "graph.json", GRAPH)


def test_the_answer_has_the_keys_that_checks_rely_on_and_its_plans_are_run(graph: Path, tmp_path: Path) -> None:
    where, folder = tmp_path / "answer.json", tmp_path / "plans"
    folder.mkdir()
    words = ["--devices", "2..4", "--hardware", "cpu", "--plans", folder, "--validate", "-o", where, "--jobs", 1]
    answer = shardplan("capacity", graph, *words, "--json")
    assert answer.code == 0, answer.err
    assert answer.json.keys() >= KEYS
    assert where.exists()
    for point in answer.json["frontier"]:
        assert point["plan"]["verdict"] == "equal"
        shown = shardplan("show", folder / f"{point['plan']['id']}.json.gz", "--json")
        assert shown.json["solver"]["objective_s"] <= point["objective_s"]


def test_the_page_names_the_smallest_the_cheapest_and_the_fastest(graph: Path) -> None:
    answer = shardplan("capacity", graph, "--devices", "2..4", "--hardware", "cpu=0.5", "--jobs", 1)
    assert answer.code == 0, answer.err
    for word in ("Frontier: no other plan is better", "smallest", "cheapest", "fastest", "planned"):
        assert word in answer.out


def test_where_overlap_counts_the_page_says_so_and_overlap_0_is_the_sum() -> None:
    words = ["gpt2", "--layers", 1, "--batch", 8, "--seq", 64, "--train", "sgd", "--devices", 2, "--jobs", 1]
    words += ["--hardware", "v100-sxm", "--dtype", "f32"]
    answer = shardplan("capacity", *words)
    assert answer.code == 0, answer.err
    assert "steps count collectives that run beside ops" in answer.out
    without = shardplan("capacity", *words, "--overlap", 0, "--json").json["fastest"]
    assert (without["step_s"], without["step_gap"]) == (without["objective_s"], pytest.approx(without["gap"]))
    beside = shardplan("capacity", *words, "--json").json["fastest"]
    assert beside["step_bound_s"] <= beside["step_s"] < beside["objective_s"]
    assert beside["low_s"] < beside["step_s"] < beside["high_s"]


def test_a_model_that_is_not_known_is_answered_with_those_that_are() -> None:
    answer = shardplan("capacity", "llama-9b", "--devices", "2", "--hardware", "cpu")
    assert answer.code == 1
    assert "neither a file nor a model (got llama-9b; wanted one of gpt2, " in answer.err
    assert "deepseek-v3" in answer.err


def test_a_journal_lets_a_second_run_plan_nothing(graph: Path, tmp_path: Path) -> None:
    words = ["capacity", graph, "--devices", "2..4", "--hardware", "cpu", "--jobs", 1, "--json"]
    words += ["--journal", tmp_path / "journal.jsonl"]
    first = shardplan(*words)
    lines = (tmp_path / "journal.jsonl").read_text()
    second = shardplan(*words)
    assert (tmp_path / "journal.jsonl").read_text() == lines
    assert second.json["frontier"] == first.json["frontier"]


def test_a_named_model_is_asked_for_every_batch_and_sequence() -> None:
    words = ["--layers", 1, "--batch", "2,4", "--seq", "64", "--devices", 2, "--hardware", "cpu", "--jobs", 1]
    answer = shardplan("capacity", "gpt2", *words, "--json")
    assert answer.code == 0, answer.err
    assert [one["tokens"] for one in answer.json["graphs"]] == [128, 256]
    assert answer.json["unit"] == "token"


def test_every_option_of_a_zoo_model_can_be_given_to_capacity() -> None:
    options = {
        command: set(re.findall(r"--[a-z-]+", shardplan(*words, "--help").out))
        for command, words in (("zoo", ["import", "zoo"]), ("capacity", ["capacity"]))
    }
    assert len(options["zoo"]) > 12
    assert options["zoo"] <= options["capacity"]


def test_a_named_model_has_the_sizes_that_import_zoo_gives_it(tmp_path: Path) -> None:
    sizes = ["--layers", 1, "--width", 64, "--heads", 4, "--feed-forward", 96, "--vocabulary", 50, "--seq", 16]
    sizes += ["--experts", 4, "--capacity", 1.25, "--dtype", "f32", "--train", "sgd", "--batch", 4]
    shardplan("import", "zoo", "mixtral-8x7b", *sizes, "-o", tmp_path / "model.json")
    where = ["--devices", 2, "--hardware", "cpu", "--jobs", 1, "--json"]
    named = shardplan("capacity", "mixtral-8x7b", *sizes, *where)
    written_out = shardplan("capacity", tmp_path / "model.json", *where)
    assert named.code == 0, named.err
    assert named.json["id"] == written_out.json["id"]


def test_a_document_keeps_its_own_name(tmp_path: Path) -> None:
    mine = written(tmp_path / "gpt2.json", {**GRAPH, "name": "the model of my team"})
    answer = shardplan("capacity", mine, "--devices", 2, "--hardware", "cpu", "--jobs", 1, "--json")
    assert [graph["name"] for graph in answer.json["graphs"]] == ["the model of my team"]


def test_a_global_batch_is_asked_for_in_micro_batches_that_divide_it() -> None:
    sizes = ["--layers", 1, "--width", 64, "--heads", 4, "--feed-forward", 96, "--vocabulary", 50, "--seq", 16]
    words = ["gpt2", *sizes, "--train", "sgd", "--devices", 2, "--hardware", "cpu", "--jobs", 1]
    answer = shardplan("capacity", *words, "--global-batch", 24, "--json")
    assert answer.code == 0, answer.err
    assert [graph["batch"] for graph in answer.json["graphs"]] == [24, 12, 6, 3]
    assert [graph["microbatches"] for graph in answer.json["graphs"]] == [1, 2, 4, 8]
    point = answer.json["frontier"][0]
    best = answer.json["graphs"][point["graph"]]
    assert point["tokens_per_s"] == pytest.approx(best["tokens"] * best["microbatches"] / point["objective_s"])
    several = shardplan("capacity", *words, "--global-batch", 24, "--batch", 3)
    assert "3 x 8" in several.out
    assert "multiple of the sequences" in shardplan("capacity", *words, "--global-batch", 24, "--batch", 5).err


def test_a_run_of_so_many_tokens_has_days_cost_and_energy() -> None:
    words = ["--layers", 1, "--batch", 2, "--seq", 64, "--devices", 2, "--hardware", "h100-sxm=2", "--jobs", 1]
    answer = shardplan("capacity", "gpt2", *words, "--tokens", "15e12")
    for word in ("A run of 1.5e+13 tokens", "days", "device-hours", "energy, MWh", "tokens/s/dev", "cost/Mtoken"):
        assert word in answer.out


@pytest.mark.parametrize(("words", "message"), BAD)
def test_bad_input_ends_in_one_message(graph: Path, words: list[str], message: str) -> None:
    answer = shardplan("capacity", graph, *words, "--jobs", "1")
    assert (answer.code, answer.out) == (1, "")
    assert message in answer.err
    assert "Traceback" not in answer.err


def test_a_step_of_a_global_batch_is_the_plan_s_own(tmp_path: Path) -> None:
    sizes = ["--layers", 1, "--width", 64, "--heads", 4, "--feed-forward", 96, "--vocabulary", 50, "--seq", 16]
    model = ["gpt2", *sizes, "--train", "sgd", "--batch", 4]
    answer = shardplan(
        "capacity", *model, "--devices", 2, "--axes", 1, "--hardware", "cpu", "--jobs", 1, "--global-batch", 12,
        "--json",
    )  # fmt: skip
    graph, plan = tmp_path / "graph.json", tmp_path / "plan.json"
    assert shardplan("import", "zoo", *model, "-o", graph).code == 0
    assert shardplan("plan", graph, "--mesh", "2", "--hardware", "cpu", "--microbatches", 3, "-o", plan).code == 0
    step_s = json.loads(plan.read_text())["solver"]["objective_s"]
    assert answer.json["frontier"][0]["objective_s"] == pytest.approx(step_s, rel=0.011)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_that_can_be_imported_can_be_asked_for_its_capacity(name: str) -> None:
    sizes = ["--layers", 1, "--batch", 2, "--seq", 8, "--train", "adam"]
    asked = ["--devices", 2, "--mesh", "dp=?", "--hardware", "h100-sxm", "--memory-limit", "1TB", "--time-limit", 3]
    answer = shardplan("capacity", name, *sizes, *asked, "--jobs", 1, "--json")
    assert answer.code == 0, answer.err
    (only,) = answer.json["frontier"]
    assert only["mesh"] == "dp=2"
    assert [one["name"] for one in answer.json["graphs"]] == [name]
