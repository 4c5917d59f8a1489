"""Every command of the command line: what it prints, what it writes, how it ends."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testing.command_line import ROOT, child, shardplan
from tests.testing.small_documents import GRAPH, Document, changed, typed, written
from tests.testing.transformer import transformer

COMMANDS = ["plan", "validate", "show", "demo", "import", "hardware"]
LAYOUTS = ["fully replicated", "data parallel", "FSDP", "Megatron tensor parallel", "DPxTP"]

# Keys of one JSON object on standard output; checks outside this repository rely on them.
PLAN_KEYS = {
    *("id", "status", "objective_s", "bound_s", "gap", "collective_bytes", "peak_memory_bytes", "verdict"),
    *("least_limit_bytes", "least_limit_bound_bytes", "reason", "wall_s"),
    *("objective", "objective_bytes", "bound_bytes"),
}
VALIDATE_KEYS = {
    *("verdict", "max_relative_error", "counted_bytes", "predicted_bytes"),
    *("counted_peak_bytes", "predicted_peak_bytes", "devices", "backend"),
}
DOCUMENT_KEYS = {
    *("format", "version", "id", "graph", "mesh", "hardware", "request", "solver", "shardings", "options"),
    *("recomputed", "program", "cost", "memory", "baselines", "verdict", "digest"),
}

# A module that a user might have: torch is imported by the command, not here.
MODEL = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(16, 64)
        self.down = torch.nn.Linear(64, 16)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(x)))

def build(batch, seq):
    return Model(), (torch.zeros(batch, seq, 16),), {}
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    return written(folder / "graph.json", transformer(1, d=256, ff=1024, heads=8, batch=8, seq=64))


@pytest.fixture(scope="module")
def plan(graph: Path) -> Path:
    """Under a limit that only a split of the parameters meets, so that there are collectives to show."""
    output = graph.with_name("plan.json")
    answer = shardplan(
        "plan", graph, "--mesh", "dp=2,tp=4", "--memory-limit", "3MiB", "--gap", "0.05", "-o", output, "--validate"
    )
    assert (answer.code, answer.err) == (0, "")
    return output


def document(path: Path) -> Document:
    found: Document = json.loads(path.read_text())
    return found


def test_help_lists_every_command() -> None:
    answer = shardplan("--help")
    assert (answer.code, answer.err) == (0, "")
    for command in COMMANDS:
        assert re.search(rf"^  {command} ", answer.out, re.MULTILINE)
        assert shardplan(command, "--help").code == 0


def test_without_arguments_the_help_is_shown_and_the_command_fails() -> None:
    for arguments in ([], ["hardware"], ["import"]):
        answer = shardplan(*arguments)
        assert (answer.code, answer.out) == (1, "")
        assert answer.err.startswith("Usage: shardplan")


def test_plan_prints_one_json_object_with_its_keys(graph: Path) -> None:
    answer = shardplan("plan", graph, "--mesh", "dp=2,tp=4", "--json", "--validate")
    assert (answer.code, answer.err, answer.out.count("\n")) == (0, "", 1)
    found = answer.json
    assert found.keys() >= PLAN_KEYS
    assert (found["status"], found["verdict"]) == ("optimal", "equal")
    assert 0 < found["bound_s"] <= found["objective_s"]
    assert 0 <= found["gap"] <= 1e-3
    assert len(found["id"]) == 64


def test_a_plan_that_was_not_run_has_no_verdict(graph: Path) -> None:
    assert shardplan("plan", graph, "--mesh", "2", "--json").json["verdict"] is None


def test_plan_names_the_objective(tmp_path: Path) -> None:
    ask = ("plan", written(tmp_path / "g.json", GRAPH), "--mesh", "dp=2,tp=4", "--gap", "0.05", "--objective")
    found = shardplan(*ask, "memory", "--json").json
    assert (found["status"], found["objective"]) == ("optimal", "memory")
    assert max(found["bound_bytes"], found["peak_memory_bytes"]) <= found["objective_bytes"]
    output = tmp_path / "least.json"
    assert "optimal: receives 0 B per device, proven not below 0 B" in shardplan(*ask, "bytes", "-o", output).out
    assert "receives the fewest bytes" in shardplan("explain", output).out
    answer = shardplan(*ask, "beauty")
    assert (answer.code, answer.err.count("\n")) == (1, 1)
    assert "--objective (got \"beauty\"; wanted 'time', 'bytes' or 'memory')" in answer.err


def test_plan_writes_the_document_and_prints_the_page(graph: Path, plan: Path) -> None:
    found = document(plan)
    assert found.keys() == DOCUMENT_KEYS
    assert (found["format"], found["version"]) == ("shardplan.plan", 2)
    assert found["memory"]["peak_bytes"] <= 3 << 20 == found["request"]["memory_limit_bytes"]
    asked = ("--mesh", "dp=2,tp=4", "--memory-limit", "3MiB", "--gap", "0.05")
    answer = shardplan("plan", graph, *asked, "-o", graph.with_name("2.json"))
    assert "transformer-1x256 on dp=2, tp=4 (h100-sxm)" in answer.out
    assert document(graph.with_name("2.json"))["id"] == found["id"]


def test_show_has_all_that_a_reviewer_asks_for(plan: Path) -> None:
    answer, found = shardplan("show", plan), document(plan)
    assert (answer.code, answer.err) == (0, "")
    page = answer.out
    assert "dp=2, tp=4" in page
    assert re.search(r"optimal: step \S+ \S+, proven not below \S+ \S+ \(gap \S+ %", page)
    for part in ("compute", "communication", "step"):
        assert re.search(rf"^{part} +\S+ [mu]?s", page, re.MULTILINE)
    assert "Most expensive collectives" in page
    for entry in found["cost"]["top_collectives"][:3]:
        assert entry["collective"] in page
        assert entry["value"] in page
    assert re.search(r"^peak +\S+ [KM]iB", page, re.MULTILINE)
    assert re.search(r"^limit +3.0 MiB", page, re.MULTILINE)
    assert "h*.q.weight" in page
    for layout in ("this plan", *LAYOUTS):
        assert re.search(rf"^{layout} .*(yes|no) *$", page, re.MULTILINE)
    assert "verdict: equal to the unsharded model on 8 devices" in page


def test_show_prints_the_document_or_the_program(plan: Path) -> None:
    assert shardplan("show", plan, "--json").json == document(plan)
    program = shardplan("show", plan, "--program").out
    assert program.startswith("mesh dp=2,tp=4\nargument %")
    assert program.splitlines()[-1].startswith("return %")
    assert len(program.splitlines()) == 1 + len(document(plan)["graph"]["document"]["inputs"]) + len(
        document(plan)["program"]
    )


def test_validate_prints_one_json_object_with_its_keys(plan: Path) -> None:
    answer = shardplan("validate", plan, "--json")
    assert (answer.code, answer.err) == (0, "")
    found = answer.json
    assert found.keys() >= VALIDATE_KEYS
    assert (found["verdict"], found["devices"], found["backend"]) == ("equal", 8, "numpy")
    assert found["counted_bytes"] == found["predicted_bytes"] > 0
    assert found["counted_peak_bytes"] == found["predicted_peak_bytes"] > 0
    assert found["max_relative_error"] <= 1e-10


def test_at_full_size_the_counts_are_those_of_the_plan(plan: Path) -> None:
    verdict, found = shardplan("validate", plan, "--json", "--shrink", "none").json, document(plan)
    assert (verdict["verdict"], verdict["shrunk"]) == ("equal", False)
    assert verdict["counted_bytes"] == found["cost"]["collective_bytes"]
    assert verdict["counted_peak_bytes"] == found["memory"]["peak_bytes"]


def test_validate_prints_text_and_takes_another_precision(plan: Path) -> None:
    answer = shardplan("validate", plan, "--precision", "f32", "--seed", "7")
    assert answer.code == 0
    assert answer.out.startswith("verdict: equal to the unsharded model on 8 devices")
    assert "in f32 (numpy)" in answer.out


def test_another_seed_draws_other_inputs(plan: Path) -> None:
    errors = [shardplan("validate", plan, "--json", "--seed", seed).json["max_relative_error"] for seed in (1, 2)]
    assert errors[0] != errors[1]


def test_a_plan_of_an_op_known_by_its_rule_alone_is_not_run(tmp_path: Path) -> None:
    node = {"id": "b", "op": "mystery", "inputs": ["a"], "outputs": [typed(8, 32)], "rule": "a b -> a b; blocked b"}
    graph = written(tmp_path / "graph.json", changed(GRAPH, "nodes.1", node))
    answer = shardplan("plan", graph, "--mesh", "2", "--validate", "--json")
    assert (answer.code, answer.json["verdict"]) == (0, "structural")


def test_an_output_replaces_the_old_file_and_leaves_no_other(graph: Path, tmp_path: Path) -> None:
    output = written(tmp_path / "plan.json", "old")
    before = output.stat().st_ino
    answer = shardplan("plan", graph, "--mesh", "8", "-o", output)
    assert answer.code == 0
    assert document(output)["format"] == "shardplan.plan"
    assert output.stat().st_ino != before
    assert list(tmp_path.iterdir()) == [output]


def test_long_work_is_silent_where_there_is_no_terminal(graph: Path, plan: Path) -> None:
    for arguments in (["plan", graph, "--mesh", "2x4", "--validate"], ["validate", plan]):
        answer = child(*arguments)
        assert (answer.code, answer.err) == (0, "")
        assert "\x1b" not in answer.out
        assert "\r" not in answer.out


def test_a_closed_pipe_ends_without_a_traceback(plan: Path) -> None:
    command = f"{shlex.join([sys.executable, '-m', 'api', 'show', str(plan), '--json'])} | head -c 1"
    ran = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("{", "")


def test_hardware_is_listed_and_shown_with_sources() -> None:
    names = shardplan("hardware", "list").out.split()
    assert "h100-sxm" in names
    assert shardplan("hardware", "list", "--json").json == {"hardware": names}
    for name in names:
        assert "source" in shardplan("hardware", "show", name).out
        classes = shardplan("hardware", "show", name, "--ops").out.splitlines()
        assert all("rows; " in each and "median error" in each for each in classes)
        assert any(each.startswith("all_reduce.nccl") for each in classes)


@pytest.mark.frameworks("torch")
def test_a_model_of_the_users_own_is_imported_from_torch(tmp_path: Path) -> None:
    written(tmp_path / "mine.py", MODEL)
    sizes = ["--batch", "4", "--seq", "8"]
    answer = child("import", "torch", "--model", "mine:build", *sizes, "-o", "g.json.gz", "--json", folder=tmp_path)
    assert answer.code == 0, answer.err
    assert answer.json.keys() >= {"name", "nodes", "inputs", "digest"}
    assert answer.json["inputs"] == 5
    planned = shardplan("plan", tmp_path / "g.json.gz", "--mesh", "2x2", "--validate", "--json")
    assert planned.json["verdict"] == "equal"
