"""Plans in pipeline stages are compared and checked like plans without: figures, terms, cuts, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from api.cli.render_diff import render_diff
from planner.choose.hardware import load_profile
from planner.documents.check_report import dump_check
from planner.documents.diff import compare_documents, load_regression
from planner.documents.graphs import load_graph
from planner.documents.pipeline_sections import PipelineDocument
from planner.documents.pipelines import dump_pipeline, load_pipeline, parse_any_plan, parse_pipeline
from planner.documents.plans import dump_plan
from planner.documents.schemas import GraphDocument, PlanDocument
from planner.errors import InvalidRequest
from planner.frontends.zoo import import_zoo
from planner.ir.mesh import Mesh
from planner.judge.check.limits import parse_limits
from planner.judge.check.measures import measure_change
from planner.pipeline import plan as plan_without_stages
from planner.pipeline_stages.cuts import find_units
from planner.pipeline_stages.pipeline_plan import PlannedStage
from planner.pipeline_stages.plan_pipeline import plan_pipeline
from planner.pipeline_stages.request import PipelineRequest
from planner.pipeline_stages.stage_costs import StageCosts
from planner.planning.deadline import Deadline
from planner.planning.plan_types import Request
from planner.usecases.check import PlanOrGraph, compare_plans

MESH, HARDWARE = Mesh.parse("tp=2"), load_profile("h100-sxm")
REQUEST = Request(microbatches=4, gap=0.2, deterministic=True)
LIMITS = "time>5%,memory>5%,bytes>5%,gap>5%"


def model(feed_forward: int = 32, name: str = "llama-7b", layers: int = 2) -> GraphDocument:
    sizes: dict[str, Any] = {"width": 16, "heads": 4, "vocabulary": 24, "batch": 4, "seq": 8, "layers": layers}
    sizes |= {"feed_forward": feed_forward} if name == "llama-7b" else {}
    return GraphDocument.model_validate(import_zoo(name, train="sgd", dtype="f32", **sizes))


@cache
def staged(stages: int = 2, schedule: Any = "1f1b", **changes: Any) -> PipelineDocument:
    graph, asked = load_graph(model(**changes), MESH), PipelineRequest(stages, schedule)
    planned = plan_pipeline(graph, MESH, HARDWARE, pipeline=asked, request=REQUEST)
    return parse_pipeline(json.loads(json.dumps(dump_pipeline(planned, asked))), "plan")


@cache
def whole() -> PlanDocument:
    planned = plan_without_stages(load_graph(model(), MESH), MESH, HARDWARE, request=REQUEST)
    document = parse_any_plan(json.loads(json.dumps(dump_plan(planned))), "plan")
    assert isinstance(document, PlanDocument)
    return document


def check(base: PlanOrGraph, new: PlanOrGraph, limits: str = LIMITS) -> dict[str, Any]:
    return dump_check(compare_plans(base, new), parse_limits(limits))


@pytest.mark.parametrize("name", ["llama-7b", "gpt2"])
def test_a_plan_in_stages_has_no_difference_from_itself(name: str) -> None:
    told = compare_documents(staged(name=name), staged(name=name))
    assert (told["changes"], told["options"], told["terms"]) == ([], [], [])
    assert {total["change"] for total in told["totals"].values()} == {0}
    assert told["stages"]["base"] == told["stages"]["new"]
    assert not told["stages"]["moved_cuts"]


def test_terms_add_up_to_what_all_stages_compute_and_memory_to_the_peak() -> None:
    base, new = staged(), staged(feed_forward=64)
    told = compare_documents(base, new)
    plans = [load_pipeline(document) for document in (base, new)]
    work = [sum(stage.analysis.step_ps for stage in plan.stages) for plan in plans]
    assert sum(term["change_ps"] for term in told["terms"]) == work[1] - work[0] != 0
    steps = [plan.timeline.step_ps for plan in plans]
    assert told["totals"]["step_s"]["change"] * 1e12 == pytest.approx(steps[1] - steps[0])
    assert told["totals"]["bound_s"]["new"] == new.solver.bound_s
    assert sum(told["memory"]["change_bytes"].values()) == told["totals"]["peak_bytes"]["change"] > 0


@pytest.mark.parametrize("limit", ["time>1%", "bytes>1%", "memory>1%", "gap>1%"])
def test_figures_of_limits_are_those_of_the_plans(limit: str) -> None:
    base, new = staged(), staged(feed_forward=64)
    (entry,) = check(base, new, limit)["limits"]
    for side, plan in (("base", base), ("new", new)):
        assert plan.cost is not None
        wanted = {
            "time": plan.cost.step_s * 1e12,
            "bytes": plan.cost.collective_bytes,
            "memory": plan.cost.peak_memory_bytes,
            "gap": plan.solver.gap,
        }
        assert entry[side] == pytest.approx(wanted[entry["measure"]])


@pytest.mark.parametrize("measure", ["time", "memory"])
def test_scopes_add_up_over_all_stages(measure: str) -> None:
    found = load_regression(staged(), staged(feed_forward=64))
    assert found is not None
    scopes = sorted({op.scope.partition(".")[0] for op in found.base.graph.ops} - {""})
    parts = [measure_change(found, parse_limits(f"{measure}[{scope}]>1%")[0]).base for scope in scopes]
    assert (
        0
        < sum(parts)
        <= {
            "time": sum(part.step_ps for part in found.base.parts),
            "memory": sum(part.peak_bytes for part in found.base.parts),
        }[measure]
    )


def test_an_edited_graph_is_planned_in_the_stages_of_its_base_and_the_edit_is_named() -> None:
    told = check(staged(), model(64))
    assert told["new"] == staged(feed_forward=64).id
    (entry,) = told["exceeded"]
    assert (entry["limit"], entry["certificate"]) == ("memory>5%", None)
    assert sum(term["change"] for term in entry["terms"]) == entry["change"]
    assert "reads" in entry["causes"][0]["reason"]


def test_a_proven_rise_of_the_step_is_certified() -> None:
    told = check(staged(), staged(layers=3), "time>5%")
    (entry,) = told["exceeded"]
    assert entry["certificate"] in ("proven", "dearer")
    assert told["totals"]["bound_s"]["new"] > 0


def test_an_equal_graph_is_not_planned() -> None:
    told = check(staged(), model())
    assert told["graphs_equal"]
    assert not told["exceeded"]
    assert told["notes"] == ["the graphs are equal: nothing was planned"]


def cut_elsewhere(by: int) -> PipelineDocument:
    """Return the plan of two stages with its cut moved by so many units."""
    plan = load_pipeline(staged())
    assert plan.schedule is not None
    units, cut = find_units(plan.graph), plan.stages[1].stage.first + by
    costs = StageCosts(units, plan.model, plan.request, 4, False, 1, Deadline())
    listed = enumerate(((0, cut), (cut, units.count)))
    stages = [
        PlannedStage(costs.stage(*span), costs.plan(*span, plan.schedule.others_in_flight(stage)))
        for stage, span in listed
    ]
    moved = dump_pipeline(replace(plan, stages=tuple(stages)), PipelineRequest(2))
    return parse_pipeline(json.loads(json.dumps(moved)), "plan")


def test_a_moved_cut_is_listed_with_its_units() -> None:
    told = compare_documents(staged(), cut_elsewhere(-1))
    (cut,) = told["stages"]["moved_cuts"]
    assert (cut["stage"], cut["units"]) == (1, -1)
    assert cut["base"] is not None
    ends = [told["stages"][side][1]["units"][0] for side in ("base", "new")]
    assert ends[1] == ends[0] - 1
    assert {change["value"] for change in told["changes"]} <= {*load_pipeline(staged()).analyzed.graph.types}
    console = Console(width=140, record=True, file=StringIO())
    console.print(render_diff(told))
    page = console.export_text()
    assert "stage 1: begins at" in page
    assert "-1 units" in page
    assert "lower bound of a step" in page


def test_a_plan_in_stages_is_compared_with_one_without() -> None:
    told = compare_documents(whole(), staged())
    assert told["stages"]["base"] == []
    assert told["totals"]["sent_bytes"]["base"] == 0 < told["totals"]["sent_bytes"]["new"]
    assert told["totals"]["step_s"]["base"] == whole().solver.objective_s
    names = {term["name"] for term in told["terms"] if term["base"] is None or term["new"] is None}
    assert not names & {node.id for node in model().nodes}


@pytest.mark.parametrize(
    "other", [lambda: staged(3), lambda: staged(schedule="gpipe"), whole], ids=["3", "gpipe", "none"]
)
def test_a_check_of_other_stages_is_refused_by_name(other: Any) -> None:
    for base, new in ((staged(), other()), (other(), staged())):
        with pytest.raises(InvalidRequest, match="plans of another pipeline cannot be compared"):
            compare_plans(base, new)


def test_infeasible_stages_break_the_limit_that_there_must_be_a_plan() -> None:
    graph, asked = load_graph(model(), MESH), PipelineRequest(2)
    request = replace(REQUEST, memory_limit_bytes=64)
    planned = plan_pipeline(graph, MESH, HARDWARE, pipeline=asked, request=request)
    none = parse_pipeline(json.loads(json.dumps(dump_pipeline(planned, asked))), "plan")
    told = compare_documents(staged(), none)
    assert told["totals"]["step_s"]["new"] is None
    assert told["terms"] == []
    assert told["memory"] is None
