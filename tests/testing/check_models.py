"""A small graph, edits of it, and their plans."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from planner import pipeline
from planner.choose.hardware import load_profile
from planner.documents.graphs import load_graph
from planner.documents.plans import dump_plan, parse_plan
from planner.documents.schemas import GraphDocument, PlanDocument
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.planning.plan_types import Request
from tests.testing.plan_versions import by_an_older_version
from tests.testing.transformer import transformer

Document = dict[str, Any]
MESH = Mesh.parse("dp=2,tp=2", "h100-sxm")
SIZES: Document = {"blocks": 1, "d": 256, "ff": 1024, "heads": 4, "batch": 64, "seq": 64}


def model(**changes: Any) -> Document:
    return transformer(**{**SIZES, **changes})


def graph(document: Document) -> Graph:
    return load_graph(GraphDocument.model_validate(document), MESH)


def plan_model(document: Document, **request: Any) -> PlanDocument:
    asked = Request(**{"deterministic": True, **request})
    found = pipeline.plan(graph(document), MESH, load_profile("h100-sxm"), request=asked)
    return parse_plan(json.loads(json.dumps(dump_plan(found))), "plan")


@cache
def base() -> PlanDocument:
    return plan_model(model())


@cache
def older_base() -> PlanDocument:
    """Return the base plan as an older version would have written it."""
    return parse_plan(by_an_older_version(base().model_dump(mode="json", exclude_unset=True)), "plan")


def load_model(document: Document) -> GraphDocument:
    return GraphDocument.model_validate(document)


def node(document: Document, op: str) -> Document:
    """Return the first node with this op."""
    found: Document = next(each for each in document["nodes"] if each["op"] == op)
    return found
