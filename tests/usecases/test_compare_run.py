"""A run of a plan document in PyTorch is traced and compared with its plan; what does not fit it is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")

from planner.documents.plans import dump_plan, read_plan
from planner.documents.profiler_trace import read_profiler_trace
from planner.documents.programs import load_program
from planner.documents.run_trace import read_run_trace
from planner.errors import InvalidDocument, InvalidRequest
from planner.export.torch_program import print_torch
from planner.ir.accounting import count_received_bytes
from planner.usecases.compare_run import compare_run
from tests.testing.command_line import shardplan
from tests.testing.gloo_modules import run_module
from tests.testing.op_cases import CASES
from tests.testing.sample_programs import alone, question_of, random_program
from tests.testing.torch_traced_run import plan_loop, plan_stack

pytestmark = pytest.mark.frameworks("torch")
MESH = "dp=2"
PADDING = 4
"""A DTensor of 3 elements over two processes has room for 2 on each."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[Any, ...]]]:
    """The folder of a run of two processes, and what they said."""
    folder = tmp_path_factory.mktemp("run")
    document = dump_plan(plan_stack(MESH).plan)
    Path(folder, "plan.json").write_text(json.dumps(document))
    exported = random_program(question_of(alone(next(case for case in CASES if case.op == "linear")), MESH), 1)
    Path(folder, "program.py").write_text(print_torch(exported))
    Path(folder, "other.json").write_text(json.dumps({**document, "id": "0"}))
    loop = plan_loop(MESH, "Loop", "fsdp")
    assert loop.analysis is not None
    Path(folder, "loop.json").write_text(json.dumps(dump_plan(loop)))
    Path(folder, "repeated.json").write_text(json.dumps(dump_plan(plan_loop(MESH, "Repeated", "zero1"))))
    Path(folder, "loop.py").write_text(print_torch(loop.analysis.program))
    return folder, run_module("tests.testing.torch_traced_run", folder, MESH)


def test_bytes_of_every_collective_and_memory_between_ops_are_those_of_the_plan(run: Any) -> None:
    """ZeRO-1: forward begins with the collectives that follow the update in the plan."""
    folder, ranks = run
    assert all(error < 1e-6 for error, *_ in ranks)
    document = compare_run(read_plan(folder / "plan.json"), read_run_trace(folder / "trace", "Stack"))
    assert document["verdict"] == "equal"
    assert document["counted_bytes"] == document["predicted_bytes"] > 0
    assert any(row["collective"] == "all_gather" for row in document["collectives"])
    assert len(document["memory"]) == 2
    for row in document["memory"]:
        assert 0 < row["held_bytes"] <= row["predicted_bytes"] <= 2 * row["held_bytes"]
        assert row["peak_bytes"] >= row["held_bytes"]


@pytest.mark.parametrize(("name", "is_in_loop"), [("Loop", True), ("Repeated", False)])
def test_a_step_of_several_micro_batches_receives_bytes_as_often_as_planned(
    run: Any, name: str, is_in_loop: bool
) -> None:
    """Exported, and as a module's forward and backward passes, whose gradients are reduced once."""
    folder, _ = run
    plan, traces = read_plan(folder / f"{name.lower()}.json"), read_run_trace(folder / "trace", name)
    document = compare_run(plan, traces)
    assert document["verdict"] == "equal"
    assert document["counted_bytes"] == document["predicted_bytes"] > 0
    program = load_program(plan)
    once = count_received_bytes(replace(program, graph=replace(program.graph, microbatches=1))).sum()
    assert document["counted_bytes"] > once if is_in_loop else document["counted_bytes"] == once
    assert all(0 < row["held_bytes"] <= row["predicted_bytes"] + PADDING for row in document["memory"])


def test_an_exported_module_is_traced_too(run: Any) -> None:
    folder, ranks = run
    text = Path(folder, "program.py").read_text()
    name = text.partition("GRAPH = '")[2].partition("'")[0]
    assert [each.functions["program"].calls for each in read_run_trace(folder / "trace", name)] == [1] * len(ranks)


def test_what_torch_compile_makes_runs_uncompiled_and_is_traced(run: Any) -> None:
    """Profiled, compiled, two batches whose gradients are added up, and one with a NaN, which has no backward pass."""
    folder, _ = run
    for trace in read_run_trace(folder / "trace", "Stack"):
        assert {name: each.calls for name, each in trace.functions.items()} == {"forward": 5, "backward": 4}


def test_a_profile_gives_measured_beside_predicted_times_by_class_and_scope(run: Any) -> None:
    folder, _ = run
    rows = read_profiler_trace(folder / "profile.json")
    document = compare_run(read_plan(folder / "plan.json"), read_run_trace(folder / "trace", "Stack"), rows)
    classes = {row["name"]: row for row in document["times"]["by_class"]}
    assert {"all_gather", "relu"} <= classes.keys()
    assert all(row["measured_s"] > 0 for row in classes.values())
    assert any("layers.0" in row["name"] for row in document["times"]["by_scope"])


def test_the_command_shows_where_bytes_differ_and_ends_with_1(run: Any, tmp_path: Path) -> None:
    folder, _ = run
    plan, profile = folder / "plan.json", folder / "profile.json"
    same = shardplan("compare-run", str(plan), str(folder / "trace"), "--profile", str(profile))
    assert same.code == 0, same.err
    assert same.out.startswith("equal: ")
    for path in (folder / "trace").glob("Stack-*"):
        trace = json.loads(path.read_text())
        name = next(iter(trace["functions"]["forward"]["received_bytes"]))
        trace["functions"]["forward"]["received_bytes"][name] += 4
        (tmp_path / path.name).write_text(json.dumps(trace))
    other = shardplan("compare-run", str(plan), str(tmp_path))
    assert other.code == 1
    assert "1 with other bytes than planned" in other.out
    (tmp_path / "Stack-rank-1.json").unlink()
    with pytest.raises(InvalidDocument, match=r"got ranks \[0\]; wanted \[0, 1\]"):
        read_run_trace(tmp_path, "Stack")


def test_traces_of_another_plan_are_refused(run: Any) -> None:
    folder, _ = run
    traces = [each.model_copy(update={"ranks": 4}) for each in read_run_trace(folder / "trace", "Stack")]
    with pytest.raises(InvalidRequest, match="run of another plan"):
        compare_run(read_plan(folder / "plan.json"), traces)


ERRORS = (
    "got 2 processes; wanted 4: one for each device of ",
    ": that of the plan)",
    "the module is not the one that was planned (got ",
    "digest mismatch",
    "got (4, 8); wanted a tensor of shape (2, 4, 8), as planned: 2 micro-batches",
    "the forward program made a NaN (got NaN on rank 0, 1",
)


def test_every_process_has_the_same_error_for_what_is_not_the_plan_and_for_a_nan(run: Any) -> None:
    _, ((_, *first), (_, *second)) = run
    assert first == second
    for message, wanted in zip(first, ERRORS, strict=True):
        assert wanted in message, message
