"""Notebooks: plans, comparisons and capacity answers display themselves, and a line shows the progress of a search."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

import planner
from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.hardware import read_profile
from planner.documents.schemas import GraphDocument
from planner.errors import InvalidRequest
from planner.ir.mesh import Mesh
from planner.judge.mesh_candidates import enumerate_candidates, parse_device_counts
from planner.planning.plan_types import Plan, Request
from planner.usecases.capacity import search_meshes
from planner.usecases.capacity_question import CapacityQuestion, CapacityWorkload, HardwareOffer
from planner.usecases.capacity_search import CapacitySearch
from tests.testing.small_documents import GRAPH, Document

HARM = "<script>alert(1)</script>"
QUICK = Request(gap=0.01)


def planned(mesh: str, graph: Document = GRAPH, request: Request = QUICK, **more: Any) -> Plan:
    found = Mesh.parse(mesh)
    return planner.plan(
        load_graph(GraphDocument.model_validate(graph), found), found, load_profile("h100-sxm"), request=request, **more
    )


def question() -> CapacityQuestion:
    offers = tuple(HardwareOffer(read_profile(name), None) for name in ("h100-sxm", "a100-sxm"))
    return CapacityQuestion(
        (CapacityWorkload(GRAPH, None),),
        offers,
        enumerate_candidates(1, 2, parse_device_counts("1..4"), axes=2, template=None),
        QUICK,
    )


def text_of(page: str) -> str:
    """The text of HTML that is well-formed, and asks for nothing."""
    assert "<script" not in page
    assert "src=" not in page
    return " ".join(ElementTree.fromstring(page).itertext())


def test_a_plan_shows_its_step_its_bound_and_the_standard_layouts() -> None:
    plan = planned("dp=2,tp=2", {**GRAPH, "name": HARM})
    text = text_of(plan._repr_html_())
    for words in (HARM, "dp=2,tp=2", "h100-sxm", "optimal", "gap", "utilisation", "this plan", "data parallel"):
        assert words in text


def test_a_plan_that_does_not_fit_says_so() -> None:
    text = text_of(planned("dp=2", request=Request(1000, 0.01))._repr_html_())
    assert "infeasible" in text
    assert "No plan within" in text


def test_a_comparison_shows_what_changed_between_two_plans() -> None:
    compared = planner.compare(planned("dp=2"), planned("dp=2,tp=2"))
    text = text_of(compared._repr_html_())
    for words in ("compared with", "step", "peak memory", "Largest changes in time"):
        assert words in text
    bases = [plan.analysis.step_ps for plan in (compared.base, compared.new) if plan.analysis]
    assert sum(change.change_ps for change in compared.changes) == bases[1] - bases[0]


def test_only_plans_that_fit_are_compared() -> None:
    with pytest.raises(InvalidRequest, match="two plans that fit"):
        planner.compare(planned("dp=2"), planned("dp=2", request=Request(1000, 0.01)))


def test_a_capacity_answer_shows_its_frontier() -> None:
    found = search_meshes(question())
    text = text_of(found._repr_html_())
    for number in found.frontier():
        assert found.question.candidates[number].mesh.notation in text
    assert f"{len(found.question.candidates)} candidates" in text


def test_the_line_of_a_search_is_one_line_and_empty_at_the_end() -> None:
    told = io.StringIO()
    with planner.solving_line(told) as on_progress:
        planned("dp=2,tp=2", on_progress=on_progress)
    assert "searching: best step" in told.getvalue()
    assert "\n" not in told.getvalue()
    assert told.getvalue().endswith(" \r")


def test_the_line_of_a_capacity_search_counts_its_candidates() -> None:
    told, seen = io.StringIO(), list[CapacitySearch]()
    with planner.capacity_line(told) as on_outcome:
        seen.append(search_meshes(question(), on_outcome=on_outcome))
    assert f"of {len(seen[0].question.candidates)} candidates" in told.getvalue()


def test_no_progress_is_shown_without_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with planner.solving_line() as on_progress:
        planned("dp=2", on_progress=on_progress)
    assert capfd.readouterr() == ("", "")
