"""`explain`: the same numbers as the plan's, as text and as JSON; bad input ends in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from api.cli.plan import INFEASIBLE
from planner.choose.cost import PICO
from tests.testing.command_line import refused, shardplan
from tests.testing.small_documents import GRAPH, Document, typed, written

DEEP: Document = {
    **GRAPH,
    "inputs": [
        {"id": "x", "kind": "input", "name": "x", **typed(4096, 2048)},
        {"id": "w", "kind": "parameter", "name": "w", **typed(8192, 2048)},
    ],
    "nodes": [
        {"id": "a", "op": "linear", "inputs": ["x", "w"], "outputs": [typed(4096, 8192)]},
        {"id": "b", "op": "relu", "inputs": ["a"], "outputs": [typed(4096, 8192)]},
    ],
}


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    return planned(tmp_path)


def planned(folder: Path, *more: object) -> Path:
    output = folder / "plan.json"
    graph = written(folder / "g.json", DEEP)
    answer = shardplan("plan", graph, "--mesh", "2x8", "--deterministic", "-o", output, *more)
    assert answer.code in (0, INFEASIBLE), answer.err
    return output


def test_an_overview_adds_up_to_the_plan(plan: Path) -> None:
    found = shardplan("explain", plan, "--json").json
    shown = shardplan("show", plan, "--json").json
    assert found["plan"] == shown["id"]
    assert found["step_ps"] * PICO == pytest.approx(shown["cost"]["step_s"], rel=1e-12)
    assert sum(group["time_ps"] for group in found["ops"] + found["collectives"]) == found["step_ps"]
    assert found["memory"]["peak_bytes"] == shown["memory"]["peak_bytes"]
    assert {turn["link"] for turn in found["sensitivity"]} <= {"nvlink", "infiniband"}
    text = shardplan("explain", plan)
    assert text.code == 0, text.err
    assert "Slowest ops" in text.out


@pytest.mark.parametrize(
    ("name", "hardware", "source"),
    [
        ("a", "v100-pcie", "linear.f32 fitted on v100-pcie"),
        ("a", "h100-sxm", "linear.f32 of other devices, a100-pcie-40 the nearest"),
        ("b", "v100-pcie", "relu.f32 fitted on v100-pcie"),
        ("x", "v100-pcie", None),
    ],
)
def test_an_explanation_says_what_priced_the_op(tmp_path: Path, name: str, hardware: str, source: str | None) -> None:
    file = planned(tmp_path, "--hardware", hardware)
    assert shardplan("explain", file, name, "--alternatives", "0", "--json").json["priced_by"] == source
    assert (
        f"priced by: {source}" in " ".join(shardplan("explain", file, name, "--alternatives", "0").out.split())
    ) == (source is not None)


@pytest.mark.parametrize("name", ["a", "b", "x"])
def test_a_decision_is_explained_with_what_forcing_the_others_costs(plan: Path, name: str) -> None:
    answer = shardplan("explain", plan, name, "--json", "--time-limit", "20")
    assert answer.code in (0, INFEASIBLE), answer.err
    found = answer.json
    (chosen,) = [option for option in found["options"] if option["chosen"]]
    assert chosen["time_ps"] == chosen["compute_ps"] + sum(each["time_ps"] for each in chosen["reshards"])
    forced = [option for option in found["options"] if option["forced"]]
    assert 0 < len(forced) <= 8
    for option in forced:
        answer = option["forced"]
        assert answer["bound_ps"] >= found["bound_ps"]
        assert answer["infeasible"] or answer["cost_ps"] is None or answer["cost_ps"] >= found["bound_ps"]
        if option["time_ps"] is not None and option["fits"]:
            kept = found["step_ps"] + option["time_ps"] - chosen["time_ps"]
            assert answer["cost_ps"] <= kept
    shown = shardplan("explain", plan, name)
    assert shown.code == 0, shown.err
    assert "> " in shown.out


def test_an_explanation_is_the_same_every_time(plan: Path) -> None:
    one, two = (shardplan("explain", plan, "a", "--json", "--time-limit", "20").out for _ in range(2))
    assert one == two


def test_an_infeasible_plan_names_the_least_limit_the_moment_and_the_tensors(tmp_path: Path) -> None:
    plan = planned(tmp_path, "--memory-limit", "64")
    found = shardplan("explain", plan, "--json").json
    assert found["least_limit_bound_bytes"] <= found["least_limit_bytes"]
    assert found["memory"]["peak_bytes"] <= found["least_limit_bytes"]
    assert found["memory"]["at"] in ("a", "b", "return")
    assert sum(tensor["bytes"] for tensor in found["memory"]["largest"]) == found["memory"]["peak_bytes"]
    assert "is sufficient" in shardplan("explain", plan).out
    refused(shardplan("explain", plan, "a"), "the plan has no program")


def test_bad_names_end_in_one_line(plan: Path, tmp_path: Path) -> None:
    refused(shardplan("explain", plan, "nobody"), "no such op or input")
    refused(shardplan("explain", tmp_path / "none.json"), "cannot be read")
    refused(shardplan("explain", written(tmp_path / "graph.json", GRAPH)), "shardplan.plan")
