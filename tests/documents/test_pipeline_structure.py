"""A pipeline's document whose parts do not fit each other is refused, whatever its digest says."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from planner.choose.hardware import load_profile
from planner.documents.canonical_json import digest_document
from planner.documents.graphs import load_graph
from planner.documents.pipelines import dump_pipeline, load_pipeline, parse_pipeline, run_document
from planner.documents.schemas import GraphDocument
from planner.errors import ShardplanError
from planner.frontends.zoo import import_zoo
from planner.ir.mesh import Mesh
from planner.pipeline_stages.plan_pipeline import plan_pipeline
from planner.pipeline_stages.request import PipelineRequest
from planner.planning.plan_types import Request

Document = dict[str, Any]
SIZES: dict[str, Any] = {"layers": 1, "width": 16, "heads": 4, "feed_forward": 32, "vocabulary": 24}

# What is changed, and what the message says.
EDITS: list[tuple[Callable[[Document], object], str]] = [
    (lambda plan: plan["timeline"][0].pop(), "tasks of the ranks"),
    (lambda plan: plan["timeline"].clear(), "tasks of the ranks"),
    (lambda plan: plan["timeline"][0][0].update(stage=9), "tasks of the ranks"),
    (lambda plan: plan["timeline"][0][0].update(microbatch=9), "tasks of the ranks"),
    (lambda plan: plan["schedule"].update(microbatches=1 << 40), "tasks of the ranks"),
    (lambda plan: plan["schedule"].update(ranks=3), "number of stages"),
    (lambda plan: plan["schedule"].update(virtual_stages=2), "virtual stages"),
    (lambda plan: plan["stages"].clear(), "number of stages"),
    (lambda plan: plan["stages"].reverse(), "first unit of a stage"),
    (lambda plan: plan["stages"][0].update(rank=1), "first unit of a stage"),
    (lambda plan: plan["stages"][1]["units"].__setitem__(1, 4), "last unit of all stages"),
    (lambda plan: plan["stages"][0].update(plan=plan["stages"][1]["plan"]), "the plan of a stage"),
    (lambda plan: plan.update(tied=["nobody"]), "a tied parameter"),
    (lambda plan: plan.update(cost=None), "schedule and cost"),
    (lambda plan: plan.update(cost=None, schedule=None), "stages without a schedule"),
]


@pytest.fixture(scope="module")
def document() -> Document:
    mesh, pipeline = Mesh.parse("2"), PipelineRequest(2)
    graph = load_graph(GraphDocument.model_validate(import_zoo("llama-7b", train="sgd", batch=4, seq=8, **SIZES)), mesh)
    request = Request(microbatches=2, gap=0.9)
    planned = plan_pipeline(graph, mesh, load_profile("h100-sxm"), pipeline=pipeline, request=request)
    read: Document = json.loads(json.dumps(dump_pipeline(planned, pipeline)))
    return read


@pytest.mark.parametrize(("edit", "said"), EDITS)
def test_parts_that_do_not_fit_are_refused(document: Document, edit: Callable[[Document], object], said: str) -> None:
    edited = copy.deepcopy(document)
    edit(edited)
    edited["digest"] = digest_document({key: part for key, part in edited.items() if key != "digest"})
    with pytest.raises(ShardplanError, match=said):
        load_pipeline(parse_pipeline(edited, "plan"))


def test_a_document_is_run_in_the_order_of_its_schedule(document: Document) -> None:
    assert run_document(parse_pipeline(document, "plan")).verdict == "equal"
