"""A small graph, edits of it, and their plans."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from planner import pipeline
from planner.choose.hardware import load
from planner.documents.graphs import graph_from
from planner.documents.plans import checked_plan, plan_document
from planner.documents.schemas import GraphDocument, PlanDocument
from planner.model.graph import Graph
from planner.model.mesh import Mesh
from planner.plans import Request
from tests.testing.plan_versions import by_an_older_version
from tests.testing.transformer import transformer

Document = dict[str, Any]
MESH = Mesh.parse("dp=2,tp=2", "h100-sxm")
SIZES: Document = {"blocks": 1, "d": 256, "ff": 1024, "heads": 4, "batch": 64, "seq": 64}


def model(**changes: Any) -> Document:
    return transformer(**{**SIZES, **changes})


def graph(document: Document) -> Graph:
    return graph_from(GraphDocument.model_validate(document), MESH)


def planned(document: Document, **request: Any) -> PlanDocument:
    asked = Request(**{"deterministic": True, **request})
    found = pipeline.plan(graph(document), MESH, load("h100-sxm"), asked)
    return checked_plan(json.loads(json.dumps(plan_document(found))), "plan")


@cache
def base() -> PlanDocument:
    return planned(model())


@cache
def older_base() -> PlanDocument:
    """The base as an older version planned it."""
    return checked_plan(by_an_older_version(base().model_dump(mode="json", exclude_unset=True)), "plan")


def given(document: Document) -> GraphDocument:
    return GraphDocument.model_validate(document)


def node(document: Document, op: str) -> Document:
    """The first node of an op."""
    found: Document = next(each for each in document["nodes"] if each["op"] == op)
    return found
