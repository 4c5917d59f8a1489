"""Capacity on devices on which collectives overlap with ops: candidates are compared by that step, and bounded."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from planner.documents.capacity import dump_capacity
from planner.documents.capacity_report import checked_capacity
from planner.documents.hardware import read_profile
from planner.documents.plans import dump_plan
from planner.judge.mesh_candidates import enumerate_candidates
from planner.judge.pareto import pareto_frontier
from planner.planning.plan_types import Plan, Request
from planner.usecases.capacity import plan_candidate, plan_in_full, search_meshes
from planner.usecases.capacity_question import CapacityQuestion, HardwareOffer
from planner.usecases.capacity_search import BOUNDED, CapacitySearch
from tests.testing.capacity_questions import plan_all, small_model

GAP = 1e-3


@cache
def overlapped() -> CapacitySearch:
    """A search on devices on which collectives overlap with ops by default, with every candidate planned."""
    v100 = HardwareOffer(read_profile("v100-sxm"), None)
    request = Request(gap=GAP, time_limit_s=60.0)
    asked = CapacityQuestion((small_model(8),), (v100,), enumerate_candidates(1, 1, (2, 4), axes=2), request)
    return CapacitySearch(asked, plan_all(asked))


def test_where_overlap_counts_candidates_are_compared_by_the_step_with_overlap() -> None:
    asked, outcomes = overlapped().question, overlapped().outcomes
    assert all(0 < (o.step_s or 0.0) < (o.objective_s or 0.0) for o in outcomes.values())
    assert all((o.low_s or 0.0) < (o.step_s or 0.0) < (o.high_s or 0.0) for o in outcomes.values())
    points = {n: asked.point(asked.candidates[n], o.step_s or 0.0) for n, o in outcomes.items()}
    assert overlapped().frontier() == pareto_frontier(points.items())
    numbers = {candidate.mesh: number for number, candidate in enumerate(asked.candidates)}
    few = search_meshes(asked, ask=lambda task: lambda: outcomes[numbers[task.mesh]])
    for number in overlapped().frontier():
        assert any(point.is_no_worse(points[number], GAP) for _, point in few.points())


def test_the_document_counts_tokens_of_the_step_with_overlap_and_bounds_it() -> None:
    document = dump_capacity(overlapped())
    assert checked_capacity(document, "capacity") == document
    for point in document["frontier"]:
        assert point["tokens_per_s"] == pytest.approx(8 * 64 / point["step_s"])
        assert point["step_bound_s"] <= point["step_s"] < point["objective_s"]
        assert point["low_s"] < point["step_s"] < point["high_s"]


def test_no_plan_of_a_candidate_has_a_shorter_step_with_overlap_than_is_proven() -> None:
    for number, outcome in overlapped().outcomes.items():
        bounds, known = overlapped().bounds, list(overlapped()._refining_outcomes(number))
        proven = [bounds.bound_step_s(number, each.bound_s) for _, each in known]
        assert bounds.floor(number).step_s <= max(proven) <= (outcome.step_s or 0.0) * (1 + 1e-9)


def test_a_candidate_that_is_cut_off_has_no_step_with_overlap_below_the_known_one() -> None:
    number, outcome = next(iter(overlapped().outcomes.items()))
    wanted_s = overlapped().bounds.bound_step_s(number, outcome.bound_s) * (1 - 2 * GAP)
    serial_s = overlapped().bounds.find_serial_cutoff_s(number, wanted_s)
    cut = plan_candidate(replace(overlapped().make_task(number), cutoff_s=serial_s))
    assert cut.status == BOUNDED
    assert overlapped().bounds.bound_step_s(number, cut.bound_s) >= wanted_s


def test_overlap_of_the_request_comes_before_that_of_the_hardware() -> None:
    asked = overlapped().question
    task = CapacitySearch(replace(asked, request=replace(asked.request, overlap=0.0))).make_task(0)
    outcome = plan_candidate(task)
    assert outcome.step_s == outcome.objective_s


def test_the_plan_of_a_candidate_has_no_longer_step_with_overlap_than_reported() -> None:
    number = overlapped().frontier()[0]
    plan = plan_in_full(overlapped(), number)
    assert isinstance(plan, Plan)
    step_s = dump_plan(plan)["cost"]["overlap"]["step_s"]
    assert step_s <= (overlapped().outcomes[number].step_s or 0.0) * (1 + 1e-9)
