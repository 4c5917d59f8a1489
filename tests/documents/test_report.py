"""A report's data: times that add up to the step, paths of reshards, options as in `explain`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from api.cli.plan import INFEASIBLE
from planner.documents.explain import explain_plan
from planner.documents.plans import read_plan
from planner.documents.report import dump_report
from planner.documents.schemas import PlanDocument
from planner.ir.program import OpCall, Reshard
from planner.judge.alternatives import find_alternatives
from tests.testing.command_line import shardplan
from tests.testing.small_documents import GRAPH, written

ZOO = ["gpt2", "--layers", 1, "--train", "adam", "--batch", 8, "--seq", 64]


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> PlanDocument:
    graph = tmp_path_factory.mktemp("report") / "graph.json"
    assert shardplan("import", "zoo", *ZOO, "-o", graph).code == 0
    return planned(graph)


def planned(graph: Path, *more: object) -> PlanDocument:
    output = graph.with_name("plan.json")
    answer = shardplan("plan", graph, "--mesh", "dp=2,tp=2", "--deterministic", "-o", output, *more)
    assert answer.code in (0, INFEASIBLE), answer.err
    return read_plan(output)


@pytest.fixture(scope="module")
def drawn(plan: PlanDocument) -> Any:
    return dump_report(plan)["plan"]["program"]


def test_columns_have_equal_length_and_valid_string_indices(drawn: Any) -> None:
    for name in ("values", "collectives", "ops"):
        inputs = {"kind", "name"} if name == "values" else set()
        assert len({len(column) for key, column in drawn[name].items() if key not in inputs}) == 1, name
    for name, keys in {
        "values": ("type", "sharding"),
        "collectives": ("collective", "axes"),
        "ops": ("op", "rule"),
    }.items():
        assert all(0 <= word < len(drawn["strings"]) for key in keys for word in drawn[name][key])


def test_the_times_of_ops_and_collectives_add_up_to_the_step(plan: PlanDocument, drawn: Any) -> None:
    total = sum(drawn["ops"]["time_ps"]) + sum(drawn["collectives"]["time_ps"])
    assert total * 1e-12 == pytest.approx(plan.cost.model_dump()["step_s"], rel=1e-12)
    serial = [
        end - start for start, end in zip(drawn["schedule"]["start_ps"], drawn["schedule"]["end_ps"], strict=True)
    ]
    assert sum(serial) == total


def test_every_collective_is_on_the_path_of_a_reader_and_ends_in_its_sharding(drawn: Any) -> None:
    reads = [read for each in drawn["ops"]["operands"] for read in each] + drawn["outputs"]
    assert {move for _, _, *moves in reads for move in moves} == set(range(len(drawn["collectives"]["time_ps"])))
    for value, sharding, *moves in reads:
        made = drawn["collectives"]["sharding"][moves[-1]] if moves else drawn["values"]["sharding"][value]
        assert sharding == made


def test_readers_and_producers_equal_those_of_the_program(plan: PlanDocument, drawn: Any) -> None:
    program = explain_plan(plan).program
    runs = [done for done in program.instructions if isinstance(done, OpCall)]
    values = drawn["values"]["id"]
    for run, reads, makes in zip(runs, drawn["ops"]["operands"], drawn["ops"]["results"], strict=True):
        assert tuple(values[value] for value, *_ in reads) == run.op.inputs
        assert tuple(values[value] for value in makes) == run.op.values
    numbers = drawn["schedule"]["instruction"]
    assert [number < 0 for number in numbers] == [isinstance(done, Reshard) for done in program.instructions]


def test_other_options_are_those_that_explain_finds_one_by_one(plan: PlanDocument) -> None:
    known = explain_plan(plan)
    found = find_alternatives(known.question, known.strategies, 3)
    for op in [*list(found)[::7], "embedding"]:
        asked = known.explain_decision(op)
        chosen = next(each for each in asked.option_costs if each.strategy == asked.chosen)
        others = [each.time_ps for each in asked.option_costs if each is not chosen and each.time_ps is not None]
        assert chosen.time_ps is not None
        assert [each.change_ps for each in found[op]] == [time - chosen.time_ps for time in others[:3]]


def test_an_infeasible_plan_is_shown_with_the_tensors_that_block_it(tmp_path: Path) -> None:
    graph = written(tmp_path / "graph.json", GRAPH)
    sheet = dump_report(planned(graph, "--memory-limit", "1KB"))["plan"]
    assert sheet["program"] is None
    assert sheet["blocked"]["limit_bytes"] == sheet["solver"]["least_limit_bytes"]
    assert sheet["blocked"]["at"]
    assert sheet["blocked"]["largest"]


def test_a_report_contains_nothing_about_the_machine_that_wrote_it(plan: PlanDocument) -> None:
    assert not re.search(r"/(home|tmp|root|work)/", str(dump_report(plan)))
