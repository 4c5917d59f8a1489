"""Of many meshes few are planned: the answer equals that of planning all, and an interrupted search can be resumed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from planner.choose.hardware import parse_hardware
from planner.documents.capacity import dump_capacity, dump_journal_line, load_journal
from planner.documents.graphs import load_graph
from planner.documents.hardware import read_profile
from planner.documents.schemas import GraphDocument
from planner.errors import InvalidDocument, InvalidRequest
from planner.ir.mesh import Mesh
from planner.judge.mesh_candidates import enumerate_candidates
from planner.judge.pareto import pareto_frontier
from planner.pipeline import plan
from planner.pipeline_stages.request import PipelineRequest
from planner.planning.deadline import Deadline
from planner.planning.plan_types import Request
from planner.progress import describe_search
from planner.usecases.capacity import UNFINISHED, plan_candidate, plan_in_full, search_meshes
from planner.usecases.capacity_question import (
    CapacityBudget,
    CapacityQuestion,
    CapacityWorkload,
    HardwareOffer,
)
from planner.usecases.capacity_search import CapacitySearch
from planner.usecases.capacity_workloads import read_workload
from tests.testing.capacity_questions import plan_all, small_model

Document = Mapping[str, Any]
GAP = 1e-3
BATCHES = (8, 16)
OFFERS = (("h100-sxm", 2.5), ("a100-sxm", 1.4))


def question(numbers: tuple[int, ...] = (2, 4), axes: int = 2, **asked: object) -> CapacityQuestion:
    request = Request(gap=GAP, time_limit_s=60.0, **asked)  # type: ignore[arg-type]
    offers = tuple(HardwareOffer(read_profile(name), hour) for name, hour in OFFERS)
    return CapacityQuestion(
        tuple(map(small_model, BATCHES)), offers, enumerate_candidates(2, 2, numbers, axes=axes), request
    )


@cache
def found() -> CapacitySearch:
    return search_meshes(question())


def test_a_planned_step_lies_within_its_interval() -> None:
    planned = [outcome for outcome in found().outcomes.values() if outcome.objective_s is not None]
    assert planned
    for outcome in planned:
        assert outcome.low_s is not None
        assert outcome.high_s is not None
        assert 0 < outcome.low_s < (outcome.step_s or 0) < outcome.high_s


def test_the_tokens_of_a_step_are_the_elements_of_its_first_whole_numbers() -> None:
    assert small_model(8).tokens == 8 * 64
    assert read_workload({"inputs": [{"kind": "input", "dtype": "f32", "shape": [2, 3]}]}).tokens is None


def test_few_meshes_are_planned_and_the_frontier_is_that_of_all_within_the_gap() -> None:
    asked = question()
    points = {n: asked.point(asked.candidates[n], o.step_s or 0.0) for n, o in plan_all(asked).items()}
    wanted, known = pareto_frontier(points.items()), dict(found().points())
    assert found().planned_count < 0.5 * len(asked.candidates)
    for number in wanted:
        assert any(point.is_no_worse(points[number], 2 * GAP) for point in known.values()), asked.candidates[number]
    for number in found().frontier():
        close = [points[other] for other in wanted if points[other].devices == points[number].devices]
        assert any(abs(known[number].time_s / point.time_s - 1) < 2 * GAP for point in close)


@pytest.mark.slow
def test_two_processes_find_the_same_answer_as_one() -> None:
    asked = question((2, 4), 1)
    alone, together = search_meshes(asked), search_meshes(asked, processes=2)
    assert [alone.question.candidates[n] for n in alone.frontier()] == [
        together.question.candidates[n] for n in together.frontier()
    ]


def test_where_nothing_fits_no_mesh_is_planned_that_cannot_fit() -> None:
    nothing = search_meshes(question(memory_limit_bytes=1000))
    assert not nothing.outcomes
    assert {passed.skip_reason for passed in nothing.skipped.values()} == {"memory"}
    document = dump_capacity(nothing)
    assert document["frontier"] == []
    assert document["smallest_feasible"] is None


@pytest.mark.slow
def test_a_mesh_is_not_planned_where_one_that_can_do_more_is_infeasible() -> None:
    asked = question((4,), 2, memory_limit_bytes=1_450_000)
    tight = search_meshes(asked)
    infeasible = [passed for passed in tight.skipped.values() if passed.skip_reason == "infeasible"]
    assert all(tight.outcomes[passed.dominated_by or 0].status == "infeasible" for passed in infeasible)
    fits = {n: o.status for n, o in plan_all(asked).items()}
    assert {n for n, p in tight.skipped.items() if p.skip_reason == "infeasible"} <= {
        n for n in fits if fits[n] == "infeasible"
    }


def test_a_mesh_that_cannot_have_the_layout_is_not_planned() -> None:
    asked = question((2, 4), 2, layout="hsdp")
    kept = search_meshes(replace(asked, graphs=asked.graphs[:1], candidates=enumerate_candidates(1, 1, (2, 4), axes=2)))
    shapes = {n: kept.question.candidates[n].mesh.shape for n in kept.order}
    assert {shapes[n] for n, passed in kept.skipped.items() if passed.skip_reason == "layout"} == {(2,), (4,)}
    assert {shapes[n] for n in kept.outcomes} == {(2, 2)}
    assert kept.frontier()


def _pinned(document: Document) -> Document:
    pin = {"value": document["inputs"][0]["id"], "sharding": {"split_axes": [["0"]]}}
    return {**document, "annotations": [pin]}


def _with_an_option(document: Document) -> Document:
    first, *others = document["nodes"]
    return {**document, "nodes": [{**first, "option": {}}, *others]}


@pytest.mark.parametrize("asking", [_pinned, _with_an_option])
def test_graphs_with_annotations_of_mesh_axes_share_no_bounds(asking: Callable[[Document], Document]) -> None:
    one = small_model(8)
    pinned = CapacityWorkload(asking(one.document), one.tokens)
    asked = question((4,), 2)
    alone = search_meshes(
        replace(asked, graphs=(pinned,), candidates=enumerate_candidates(1, 1, (4,), axes=2), offers=asked.offers[:1])
    )
    assert all(passed.skip_reason != "bound" or passed.dominated_by is not None for passed in alone.skipped.values())
    assert [other for other, _ in alone._refining_outcomes(0)] == [0]


def test_a_template_gives_the_candidates_of_its_unknown_sizes() -> None:
    listed = enumerate_candidates(1, 1, (2, 4), axes=3, template=Mesh.parse("dp=?,tp=2"))
    answer = search_meshes(
        replace(
            question(), graphs=(small_model(8),), candidates=listed, offers=(HardwareOffer(read_profile("cpu"), None),)
        )
    )
    document = dump_capacity(answer)
    assert document["cost_unit"] == "device_s"
    assert {one["mesh"] for one in document["candidates"]} == {"dp=1,tp=2", "dp=2,tp=2"}


def test_an_interrupted_search_resumes_where_it_was() -> None:
    asked, whole = found().question, found()
    kept = dict(list(whole.outcomes.items())[:3])
    text = "".join(dump_journal_line(asked, number, outcome) for number, outcome in kept.items()) + '{"cut'
    known = load_journal(asked, text, "journal")
    assert known == {number: replace(outcome, choice=None) for number, outcome in kept.items()}
    planned_again: list[int] = []
    again = search_meshes(asked, known=known, on_outcome=lambda _, number: planned_again.append(number))
    assert not set(planned_again) & set(kept)
    assert again.frontier() == whole.frontier()


def test_a_journal_of_another_question_or_no_journal_is_refused() -> None:
    line = dump_journal_line(found().question, 0, next(iter(found().outcomes.values())))
    with pytest.raises(InvalidDocument, match="journal of another question"):
        load_journal(question((2,)), line, "journal")
    with pytest.raises(InvalidDocument, match="journal:2: not a journal line"):
        load_journal(found().question, f"{line}[]\n", "journal")


def test_a_search_that_runs_out_of_time_says_so_and_keeps_what_it_found() -> None:
    hurried = search_meshes(question(), deadline=Deadline(1e-9))
    document = dump_capacity(hurried)
    assert not document["complete"]
    (number,) = hurried.outcomes
    first = hurried.question.candidates[number]
    assert (first.mesh.devices, len(first.mesh.axes)) == (4, 1), "the one that is planned soonest"
    skipped = [one for one in document["candidates"] if one["skip_reason"] is not None]
    assert len(skipped) == len(hurried.order) - 1
    assert {one["skip_reason"] for one in skipped} == {"time"}
    assert [point["status"] for point in document["frontier"]] == ["feasible"]


def test_with_little_time_the_first_candidate_is_one_that_is_planned_soon() -> None:
    started: list[int] = []
    asked = question((2, 4))
    search_meshes(asked, deadline=Deadline(3600), on_start=lambda _, number: started.append(number))
    first = asked.candidates[started[0]]
    assert (first.mesh.devices, len(first.mesh.axes), first.graph) == (4, 1, 0)


def test_a_candidate_for_which_no_time_is_left_is_planned_as_a_plan_in_no_time_is() -> None:
    task = replace(CapacitySearch(question()).make_task(0), deadline=Deadline(1e-9))
    found, graph = plan_candidate(task), load_graph(GraphDocument.model_validate(task.graph), task.mesh)
    asked, hardware = replace(task.request, time_limit_s=1.0), parse_hardware(task.profile)
    layout = plan(graph, task.mesh, hardware, request=asked, deadline=Deadline(0.0))
    assert (found.status, found.choice) == ("feasible", layout.choice)
    assert found.objective_s == layout.certificate.objective_s
    assert found.bound_s == layout.certificate.bound_s
    assert found.peak_bytes == (layout.analysis and layout.analysis.peak_bytes)


def test_a_candidate_of_which_nothing_is_known_when_the_time_is_up_has_no_outcome() -> None:
    hurried = search_meshes(question(), ask=lambda task: lambda: UNFINISHED)
    assert hurried.outcomes == {}
    assert {passed.skip_reason for passed in hurried.skipped.values()} == {"time"}


@pytest.mark.parametrize("processes", [1, 2])
def test_an_interrupted_search_gives_what_it_has(processes: int) -> None:
    planned: list[int] = []

    def interrupt(search: CapacitySearch, number: int) -> None:
        planned.append(number)
        raise KeyboardInterrupt

    cut = search_meshes(question(), processes=processes, on_outcome=interrupt)
    document = dump_capacity(cut)
    assert cut.is_cancelled
    assert list(cut.outcomes) == planned
    assert not document["complete"]
    assert len(document["frontier"]) == 1
    others = {one["skip_reason"] for one in document["candidates"] if one["status"] == "skipped"}
    assert others == {"cancelled"}


def test_progress_says_what_is_planned_what_is_best_and_what_is_excluded() -> None:
    lines: list[str] = []
    search_meshes(question((2, 4)), on_start=lambda search, _: lines.append(describe_search(search)))
    assert "0 of 12 candidates" in lines[0]
    assert "planning 2 h100-sxm as 0=2, batch 8" in lines[0]
    assert "fastest so far" in lines[-1]
    assert "as no better" in lines[-1]


def test_the_plans_of_the_frontier_are_no_worse_than_reported() -> None:
    for number in found().frontier()[:2]:
        plan, outcome = plan_in_full(found(), number), found().outcomes[number]
        assert plan.certificate.objective_s is not None
        assert plan.certificate.objective_s <= (outcome.objective_s or 0.0)


def test_a_budget_keeps_the_points_within_it_and_one_that_no_point_meets_is_refused() -> None:
    every = dump_capacity(found())["frontier"]
    fastest = min(point["objective_s"] for point in every)
    within = dump_capacity(found(), CapacityBudget(step_s=fastest))["frontier"]
    assert [point["objective_s"] for point in within] == [fastest]
    with pytest.raises(InvalidRequest, match="no plan meets the budget"):
        dump_capacity(found(), CapacityBudget(cost=1e-15))


BAD = [
    ({"candidates": ()}, "no candidate mesh"),
    ({"candidates": (), "pipeline": PipelineRequest(99)}, "no candidate mesh.*that 99 stages and the mesh's"),
    (
        {"offers": (HardwareOffer({"name": "a"}, 1.0), HardwareOffer({"name": "b"}, None))},
        "a price for some hardware only",
    ),
    ({"offers": (HardwareOffer({"name": "a"}, -1.0),)}, "price of a device-hour"),
    ({"graphs": (CapacityWorkload({}, None), CapacityWorkload({}, 5))}, "compared per token"),
]


@pytest.mark.parametrize(("changes", "message"), BAD)
def test_invalid_questions_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        replace(question((2,)), **changes)  # type: ignore[arg-type]


def test_points_are_per_token_where_the_number_of_tokens_is_known() -> None:
    asked = question((2,))
    point = asked.point(asked.candidates[0], 3.6)
    assert point.devices == 2
    assert [point.cost, point.time_s] == pytest.approx([2 * 3.6 / 512 * 2.5 / 3600, 3.6 / 512])
