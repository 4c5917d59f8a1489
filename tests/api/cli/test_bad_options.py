"""Invalid meshes, limits, hardware, pins, plans and words on the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.cli.plan import INFEASIBLE
from planner.documents.plans import parse_plan
from planner.errors import ShardplanError
from tests.testing.command_line import child, refused, shardplan
from tests.testing.small_documents import GRAPH, LEFT_OUT, MESH, Document, changed, pin, pins, written

MESHES = [
    ("", "mesh does not parse"),
    ("x", "mesh does not parse (got x; wanted dp=2,tp=4 or 2x4)"),
    ("2x", "mesh does not parse"),
    ("2,4", "mesh does not parse"),
    ("dp=2,", "mesh does not parse"),
    ("dp=two", "mesh does not parse"),
    ("dp=-2", "mesh does not parse"),
    ("dp=2.5", "mesh does not parse"),
    ("=2", "mesh axis name"),
    ("d p=2", "mesh axis name"),
    ("\x1b[2J", "mesh does not parse (got \\x1b[2J"),
    ("2x0", "axis '1': mesh axis size out of range (got 0"),
    ("dp=0", "axis 'dp': mesh axis size out of range (got 0"),
    ("dp=2,dp=4", "mesh axis name repeated"),
    ("2x?", "mesh axis size is unknown"),
    ("2097152", "mesh axis size out of range"),
    ("1024x1024x1024", "too many devices"),
    ("x".join("2" * 9), "mesh rank (got 9"),
    ("9" * 30, "mesh does not parse"),
]

MESH_CHANGES: list[tuple[str, object, str]] = [
    ("axes", [], "axes: value does not fit"),
    ("axes.0.size", 0, "axes[0].size: value does not fit (got 0"),
    ("axes.0.size", True, "axes[0].size: value does not fit (got true"),
    ("axes.0.size", "8", 'axes[0].size: value does not fit (got "8"'),
    ("axes.0.size", "?", "mesh axis size is unknown"),
    ("axes.0.size", LEFT_OUT, "axes[0].size: missing key"),
    ("axes.0.name", "tp", "mesh axis name repeated"),
    ("axes.0.link", "string", "mesh axis 'dp' on 'h100-sxm': unknown link (got string"),
    ("device", "abacus", "unknown hardware (got abacus"),
    ("format", "shardplan.graph", "format: value does not fit"),
    ("version", 99, "version: value does not fit (got 99; wanted 1)"),
]

LIMITS = ["", "x", "0", "-1", "0.5", "1e9", "80gib", "80GiBs", "nan", "inf", "80XB", "0x10", "80,5GiB", "9" * 40]

OPTIONS: list[tuple[list[str], str]] = [
    (["--hardware", "abacus"], "unknown hardware (got abacus; wanted one of"),
    (["--hardware", "../h100-sxm"], "unknown hardware"),
    (["--gap", "-1"], "--gap (got -1.0"),
    (["--gap", "nan"], "--gap (got NaN"),
    (["--gap", "wide"], "--gap"),
    (["--time-limit", "0"], "--time-limit (got 0.0"),
    (["--time-limit", "inf"], "--time-limit (got Infinity"),
    (["--seed", "-1"], "--seed"),
    (["--seed", "9" * 30], "--seed"),
    (["--validate", "--backend", "abacus"], "--backend (got \"abacus\"; wanted 'numpy', 'cupy', 'mpi' or 'nccl')"),
    (["--validate", "--shrink", "much"], "--shrink (got \"much\"; wanted 'auto' or 'none')"),
    (["--colour"], "No such option: --colour"),
    (["extra"], "extra"),
    (["--output"], "requires an argument"),
]

USAGE = [
    (["plan"], "Missing argument"),
    (["plan", "graph.json"], "Missing option '--mesh'"),
    (["paln"], "No such command 'paln'"),
    (["hardware", "show"], "Missing argument"),
    (["hardware", "show", "abacus"], "unknown hardware (got abacus"),
    (["import", "zoo-of-horrors"], "No such command"),
    (["import", "torch", "--model", "m:f", "--batch", "0", "--seq", "1", "-o", "g.json"], "--batch"),
]

PINS: list[tuple[Document, str]] = [
    (pin("x", [["pp"]]), "annotation of 'x': unknown mesh axis (got pp; wanted one of dp, tp)"),
    (pin("x", [[2]]), "annotation of 'x': unknown mesh axis (got 2"),
    (pin("x", [[-1]]), "annotation of 'x': unknown mesh axis (got -1"),
    (pin("x", [[True]]), "annotations[0].sharding.split_axes[0][0]: value does not fit (got true"),
    (pin("x", ["dp"]), 'split_axes[0]: value does not fit (got "dp"; wanted a valid list)'),
    (pin("x", [["dp", "dp"]]), "mesh axis duplicated"),
    (pin("x", [["dp"], [0]]), "mesh axis duplicated"),
    (pin("x", [["dp"]], partial={"axes": ["dp"]}), "mesh axis duplicated"),
    (pin("x", [["dp"]], partial={"axes": ["tp"], "reduction": "median"}), "wanted 'sum', 'max'"),
    (pin("x", [[], [], ["dp"]]), "annotation of 'x': more lists than dims (got 3"),
    (pin("nowhere", []), "use of an undefined value (got nowhere"),
    (pin("x", [], user="b"), "annotation of 'x' for 'b': user does not read the value"),
    (pin("x", [], user="nobody"), "user does not read the value (got nobody"),
    (pin("x", [], required=1), "annotations[0].required: value does not fit (got 1"),
    (pin("x", [["dp"]], partial={"axes": ["tp"]}), "no option gives the required sharding"),
    (pin("b", [], partial={"axes": ["tp"]}), "no option gives the required sharding"),
    (pin("x", [], colour="red"), "annotations[0].colour: unknown key"),
]

PLAN_CHANGES: list[tuple[str, object, str]] = [
    ("version", 99, "version: value does not fit (got 99; wanted 2)"),
    ("format", "shardplan.graph", "wanted 'shardplan.plan'"),
    ("graph.document.name", "another", "digest mismatch"),
    ("graph.document.inputs.0.shape", [8, 17], "digest mismatch"),
    ("graph.digest", "00", "digest mismatch"),
    ("solver", {}, "solver.status: missing key"),
    ("solver.status", "splendid", "solver.status: value does not fit"),
    ("cost", {}, "cost: missing numbers"),
    ("cost.step_s", "fast", "cost.step_s: value does not fit"),
    ("verdict", {}, "verdict.verdict: missing key"),
    ("shardings.x", LEFT_OUT, "missing sharding (wanted x)"),
]

PROGRAM_CHANGES: list[tuple[str, object]] = [
    *((f"program.0.{key}", value) for key in ("op", "inputs", "outputs", "option") for value in (LEFT_OUT, None, 1)),
    ("program", []),
    ("program.0", {}),
    ("program.0", {"collective": "all_gather", "axes": ["0"], "input": "x", "output": "y"}),
    ("program.0", {"collective": "all_gather", "axes": ["0"], "dim": -1, "input": "x", "output": "y"}),
    ("program.0", {"collective": "teleport", "axes": ["0"], "dim": 0, "input": "x", "output": "y"}),
    ("program.0.op", "nowhere"),
    ("program.0.inputs", ["x"]),
    ("program.0.inputs", ["w", "x"]),
    ("program.0.option", []),
    ("program.0.option", [["0", "0"], [], [], [], []]),
    ("program.0.option.0", ["pp"]),
    ("program.0.outputs", ["x"]),
    ("program.1.inputs", ["nowhere"]),
    ("program.2.return", ["x"]),
    ("program.2.return", ["b", "b"]),
    ("program.2.return", ["nowhere"]),
    ("program.2", LEFT_OUT),
    ("shardings.x", {"split_axes": [["0", "1"], []]}),
    ("shardings.x", {"split_axes": [[], [], ["0"]]}),
    ("shardings.b", {"split_axes": [["0"], ["1"]]}),
    ("options.a", [["0"], ["1"], [], [], []]),
    ("mesh.axes.0.size", "?"),
    ("mesh.axes.0.name", "tp"),
]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("small") / "graph.json", GRAPH)


@pytest.fixture(scope="module")
def planned(small: Path) -> Document:
    output = small.with_name("plan.json")
    answer = shardplan("plan", small, "--mesh", "2x4", "-o", output, "--validate")
    assert (answer.code, answer.err) == (0, "")
    found: Document = json.loads(output.read_text())
    return found


@pytest.fixture(scope="module")
def without_digest(planned: Document) -> Document:
    """The plan as who means harm would change it: what is wrong with it has to be found."""
    return changed(planned, "digest", LEFT_OUT)


@pytest.mark.parametrize(("mesh", "words"), MESHES)
def test_an_invalid_mesh_is_refused(small: Path, mesh: str, words: str) -> None:
    refused(shardplan("plan", small, "--mesh", mesh), words)


@pytest.mark.parametrize(("path", "value", "words"), MESH_CHANGES)
def test_an_invalid_mesh_document_is_refused(tmp_path: Path, small: Path, path: str, value: object, words: str) -> None:
    mesh = written(tmp_path / "mesh.json", changed(MESH, path, value))
    refused(shardplan("plan", small, "--mesh", mesh), words)


@pytest.mark.parametrize("limit", LIMITS)
def test_a_memory_limit_that_is_not_a_size_is_refused(small: Path, limit: str) -> None:
    refused(shardplan("plan", small, "--mesh", "2x4", "--memory-limit", limit), "memory")


@pytest.mark.parametrize(("options", "words"), OPTIONS, ids=[" ".join(words) for words, _ in OPTIONS])
def test_an_invalid_option_is_refused(small: Path, options: list[str], words: str) -> None:
    refused(shardplan("plan", small, "--mesh", "2x4", *options), words)


@pytest.mark.parametrize(("arguments", "words"), USAGE, ids=[" ".join(words)[:40] for words, _ in USAGE])
def test_wrong_usage_is_refused(arguments: list[str], words: str) -> None:
    refused(shardplan(*arguments), words)


@pytest.mark.parametrize(("annotation", "words"), PINS, ids=[words for _, words in PINS])
def test_an_invalid_pin_is_refused(tmp_path: Path, small: Path, annotation: Document, words: str) -> None:
    given = written(tmp_path / "pins.json", pins(annotation))
    refused(shardplan("plan", small, "--mesh", "dp=2,tp=4", "--pin", given), words)


def test_pins_that_contradict_each_other_are_refused(tmp_path: Path, small: Path) -> None:
    given = written(tmp_path / "pins.json", pins(pin("x", [["dp"]]), pin("x", [["tp"]])))
    answer = shardplan("plan", small, "--mesh", "dp=2,tp=4", "--pin", given)
    refused(answer, "annotation of 'x': contradicts another annotation (got [[1]]; wanted [[0]])")


def test_a_document_of_another_kind_is_named(small: Path) -> None:
    for arguments in (["show", small], ["validate", small], ["plan", small, "--mesh", small]):
        refused(shardplan(*arguments), 'format: value does not fit (got "shardplan.graph"')


@pytest.mark.parametrize(("path", "value", "words"), PLAN_CHANGES)
def test_a_plan_that_was_tampered_with_is_refused(
    tmp_path: Path, without_digest: Document, path: str, value: object, words: str
) -> None:
    damaged = written(tmp_path / "plan.json", changed(without_digest, path, value))
    for command in ("show", "validate"):
        refused(shardplan(command, damaged), words)


@pytest.mark.parametrize(("path", "value"), PROGRAM_CHANGES)
def test_a_program_that_was_tampered_with_is_never_run(
    tmp_path: Path, without_digest: Document, path: str, value: Any
) -> None:
    damaged = written(tmp_path / "plan.json", changed(without_digest, path, value))
    refused(shardplan("validate", damaged), "")
    refused(shardplan("show", damaged, "--program"), "")


def test_every_key_of_a_plan_is_needed(tmp_path: Path, without_digest: Document) -> None:
    for key in without_digest:
        damaged = written(tmp_path / "plan.json", changed(without_digest, key, LEFT_OUT))
        refused(shardplan("show", damaged), f"{key}: missing key")


def leaves(document: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Everything in a document that holds nothing else, by its path."""
    inside = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in inside:
        if isinstance(value, (dict, list)):
            yield from leaves(value, f"{path}{key}.")
        elif "." not in str(key):
            yield f"{path}{key}", value


def test_no_number_of_a_plan_can_be_changed_unnoticed(planned: Document) -> None:
    numbers = [(path, value) for path, value in leaves(planned) if type(value) in (int, float)]
    assert {path.partition(".")[0] for path, _ in numbers} >= {"solver", "cost", "memory", "baselines", "verdict"}
    for path, value in numbers:
        with pytest.raises(ShardplanError):
            parse_plan(changed(planned, path, 2 * value + 1), "plan")


def test_a_truncated_plan_is_refused(tmp_path: Path, planned: Document) -> None:
    for length in (0, 1, 500, len(json.dumps(planned)) - 1):
        refused(shardplan("show", written(tmp_path / "plan.json", json.dumps(planned)[:length])), "not JSON")


def test_options_of_validate_are_checked(tmp_path: Path, planned: Document) -> None:
    plan = written(tmp_path / "plan.json", planned)
    for option in ("--backend", "--precision", "--shrink"):
        refused(shardplan("validate", plan, option, "abacus"), f'{option} (got "abacus"; wanted \'')


def test_cupy_without_a_gpu_says_what_is_missing(tmp_path: Path, planned: Document) -> None:
    answer = shardplan("validate", written(tmp_path / "plan.json", planned), "--backend", "cupy")
    if answer.code:
        refused(answer, "wanted")


def test_a_limit_that_nothing_can_meet_is_an_answer(tmp_path: Path, small: Path) -> None:
    found = shardplan("plan", small, "--mesh", "2x4", "--memory-limit", "64", "--json")
    assert (found.code, found.json["status"], found.json["objective_s"]) == (INFEASIBLE, "infeasible", None)
    least, bound = found.json["least_limit_bytes"], found.json["least_limit_bound_bytes"]
    assert 64 < bound <= least
    enough = shardplan("plan", small, "--mesh", "2x4", "--memory-limit", least, "--json")
    assert enough.json["status"] in ("optimal", "feasible")
    assert enough.json["peak_memory_bytes"] <= least
    less = shardplan("plan", small, "--mesh", "2x4", "--memory-limit", bound - 1, "--json")
    assert less.json["status"] == "infeasible"


def test_an_infeasible_plan_can_be_written_and_shown_but_not_run(tmp_path: Path, small: Path) -> None:
    output = tmp_path / "plan.json"
    shardplan("plan", small, "--mesh", "2x4", "--memory-limit", "64", "-o", output)
    assert "infeasible" in shardplan("show", output).out
    refused(shardplan("validate", output), "the plan has no program (got infeasible)")


@pytest.mark.slow
def test_bad_input_ends_the_same_way_in_a_process_of_its_own(tmp_path: Path, small: Path) -> None:
    bad = written(tmp_path / "bad.json", changed(GRAPH, "nodes.0.inputs", ["b", "w"]))
    for arguments in (["plan", bad, "--mesh", "2x4"], ["plan", small, "--mesh", "x"], ["show", bad], ["paln"]):
        refused(child(*arguments), "")
