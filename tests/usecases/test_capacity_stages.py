"""Capacity with pipeline stages: bounds are below every plan, and the frontier is that of planning all candidates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from planner.documents.capacity import dump_capacity
from planner.documents.capacity_report import checked_capacity
from planner.documents.hardware import read_profile
from planner.errors import InvalidRequest
from planner.frontends.zoo import import_zoo
from planner.judge.mesh_candidates import enumerate_candidates
from planner.judge.pareto import pareto_frontier
from planner.pipeline_stages.request import PipelineRequest
from planner.planning.deadline import Deadline
from planner.planning.plan_types import Request
from planner.usecases.capacity import plan_candidate, plan_in_full, search_meshes
from planner.usecases.capacity_question import CandidateResult, CandidateTask, CapacityQuestion, HardwareOffer
from planner.usecases.capacity_search import CapacitySearch
from planner.usecases.capacity_stages import take_turns
from planner.usecases.capacity_workloads import read_workload

GAP, GLOBAL_BATCH, BATCHES = 1e-2, 8, (2, 8)
SIZES: dict[str, Any] = {"layers": 1, "heads": 4, "width": 64, "feed_forward": 128, "vocabulary": 64}


@cache
def question(pipeline: PipelineRequest, numbers: tuple[int, ...] = (2, 4)) -> CapacityQuestion:
    graphs = [read_workload(import_zoo("llama-7b", batch=batch, seq=32, train="sgd", **SIZES)) for batch in BATCHES]
    candidates = enumerate_candidates(2, 1, numbers, axes=1, stages=pipeline.list_stage_counts())
    offers = (HardwareOffer(read_profile("h100-sxm"), None),)
    request = Request(gap=GAP, global_batch=GLOBAL_BATCH)
    return CapacityQuestion(tuple(graphs), offers, candidates, request, pipeline=pipeline)


OPEN = PipelineRequest(None, "auto", None)


@pytest.mark.parametrize("pipeline", [PipelineRequest(None), PipelineRequest(None, "zb-h1"), OPEN])
def test_the_frontier_is_that_of_planning_all_and_no_plan_is_below_its_bound(pipeline: PipelineRequest) -> None:
    asked = question(pipeline)
    everything, found = CapacitySearch(asked), search_meshes(asked)
    fitting = [n for n in everything.order if everything.find_skip_reason(n) is None]
    planned = {n: plan_candidate(everything.make_task(n)) for n in fitting}
    for number, outcome in planned.items():
        assert everything.bounds.floor(number).step_s <= (outcome.step_s or 0.0)
        assert everything.bounds.floor(number).peak_bytes <= (outcome.peak_bytes or 0)
    points = {n: asked.point(asked.candidates[n], outcome.step_s or 0.0) for n, outcome in planned.items()}
    for number in pareto_frontier(points.items()):
        assert any(point.is_no_worse(points[number], 2 * GAP) for _, point in found.points())


def test_candidates_with_more_stages_than_parts_are_skipped_and_the_document_says_the_stages_of_each() -> None:
    search = search_meshes(question(PipelineRequest(None), numbers=(8,)))
    numbers = [n for n in search.order if search.question.candidates[n].stages == 8]
    assert {search.skipped[n].skip_reason for n in numbers} == {"stages"}
    document = dump_capacity(search)
    assert checked_capacity(document, "capacity") == document
    assert {one["stages"] for one in document["candidates"]} == {1, 2, 4, 8}
    assert {one["devices"] for one in document["candidates"]} == {8}


def test_a_candidate_with_stages_is_planned_in_full() -> None:
    search = search_meshes(question(PipelineRequest(2)))
    number = search.frontier()[0]
    plan = plan_in_full(search, number)
    assert plan.devices == search.question.candidates[number].devices  # type: ignore[union-attr]
    outcome = search.outcomes[number]
    assert outcome.bubble is not None
    assert outcome.low_s is not None
    assert outcome.high_s is not None
    assert outcome.low_s < plan.certificate.objective_s < outcome.high_s  # type: ignore[operator]


def test_candidates_with_and_without_stages_are_priced_without_overlap() -> None:
    asked = question(PipelineRequest(None))
    a100 = HardwareOffer(read_profile("a100-sxm"), None)
    search = CapacitySearch(replace(asked, offers=(a100,)))
    assert search.bounds.hardware[0].overlap == 0.0
    assert search.question.request.overlap == 0.0
    with pytest.raises(InvalidRequest, match="overlap of a pipeline"):
        replace(asked, request=replace(asked.request, overlap=0.5))


def test_numbers_of_devices_take_turns() -> None:
    estimates = {0: 3.0, 1: 1.0, 2: 2.0, 3: 5.0}
    assert take_turns(estimates, estimates, {0: 8, 1: 8, 2: 16, 3: 16}, planned={}) == [1, 2, 0, 3]
    assert take_turns(estimates, estimates, {0: 8, 1: 8, 2: 16, 3: 16}, planned={8: 2}) == [2, 3, 1, 0]


def price_only(task: CandidateTask) -> Callable[[], CandidateResult] | None:
    """Price a candidate in standard layouts; there is no time for a search."""
    return (lambda: plan_candidate(task)) if task.is_standard else None


def test_without_time_for_searches_the_frontier_is_that_of_all_candidates_in_standard_layouts() -> None:
    asked, deadline = question(OPEN), Deadline(3600.0)
    found, everything = search_meshes(asked, ask=price_only, deadline=deadline), CapacitySearch(asked)
    fitting = [n for n in everything.order if everything.find_skip_reason(n) is None]
    priced = {n: plan_candidate(everything.make_task(n, deadline)) for n in fitting}
    points = {n: asked.point(asked.candidates[n], outcome.step_s or 0.0) for n, outcome in priced.items()}
    for number in pareto_frontier(points.items()):
        assert any(point.is_no_worse(points[number], GAP) for _, point in found.points())
    for number, outcome in found.outcomes.items():
        assert not outcome.is_searched
        assert outcome.step_s == priced[number].step_s
        assert number not in found.skipped
    document = dump_capacity(found)
    assert checked_capacity(document, "capacity") == document
    assert not document["complete"]
    assert {point["searched"] for point in document["frontier"]} == {False}


def test_all_schedules_of_a_candidate_are_priced_and_the_fastest_is_searched() -> None:
    asked, deadline = question(OPEN), Deadline(3600.0)
    search = CapacitySearch(asked)
    number = next(n for n in search.order if asked.candidates[n].stages == 2 and asked.candidates[n].graph == 0)
    task = search.make_task(number, deadline)
    assert task.is_standard
    alone = [replace(task, pipeline=PipelineRequest(2, *one)) for one in (("1f1b",), ("interleaved", 2), ("zb-h1",))]
    priced = plan_candidate(task)
    assert priced.step_s == min(plan_candidate(each).step_s or 0.0 for each in alone)
    assert search.submit(number, priced)
    task = search.make_task(number, deadline)
    assert not task.is_standard
    assert task.pipeline == PipelineRequest(2, priced.schedule, priced.virtual_stages)  # type: ignore[arg-type]


def test_a_search_keeps_the_standard_layouts_where_it_finds_nothing_better_and_the_bound_of_all_schedules() -> None:
    asked = question(OPEN)
    search, number = CapacitySearch(asked), 0
    known = CandidateResult("feasible", 2.0, 2.0, 0.5, 0.75, 1, None, 0.0, schedule="1f1b", is_searched=False)
    assert search.submit(number, known)
    assert not search.is_complete
    assert not search.submit(number, replace(known, step_s=3.0, bound_s=1.0, is_searched=True))
    assert (search.outcomes[number].step_s, search.outcomes[number].bound_s) == (2.0, 0.5)
    assert search.outcomes[number].is_searched
    search.outcomes[number] = known
    assert not search.submit(number, replace(known, step_s=1.0, bound_s=0.9, is_searched=True))
    assert (search.outcomes[number].step_s, search.outcomes[number].gap) == (1.0, 0.5)


def test_candidates_that_are_priced_come_first_and_then_the_fastest_of_them_are_searched() -> None:
    search = CapacitySearch(question(OPEN), pricing=Deadline(3600.0))
    first, second, third = [n for n in search.order if search.question.candidates[n].devices == 2][:3]
    for number, step_s in ((first, 3.0), (second, 2.0)):
        search.submit(number, CandidateResult("feasible", step_s, step_s, 0.1, 0.9, 1, None, 0.0, is_searched=False))
    listed = [first, second, third]
    assert search.sort_candidates(listed) == [third, second, first]
    search.pricing = Deadline(0.0)
    assert search.sort_candidates(listed) == [second, first, third]
