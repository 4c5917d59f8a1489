"""What `planner.torch` and `planner.jax` share: a framework's graph document is planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner import pipeline
from planner.choose.formulate import Choice
from planner.documents.graphs import load_graph
from planner.documents.hardware import read_hardware
from planner.documents.schemas import GraphDocument, validate_document
from planner.errors import InvalidRequest
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.planning.plan_types import Plan, Request
from planner.progress import solving_line


@dataclass(frozen=True, slots=True, eq=False)
class ChosenShardings:
    """A plan that fits, and the shardings it chose for its graph."""

    graph: Graph
    choice: Choice
    plan: Plan


def plan_document(
    document: Mapping[str, Any], name: str, mesh: Mesh, *, device: str, request: Request | None
) -> ChosenShardings:
    """The best plan of a document on a mesh of the hardware profile `device`, with its progress in a notebook or on a
    terminal.

    Raises InvalidRequest where nothing fits the memory, and what a document or a profile that is wrong raises.
    """
    graph = load_graph(validate_document(GraphDocument, document, name), mesh)
    with solving_line() as on_progress:
        made = pipeline.plan(graph, mesh, read_hardware(device), request=request, on_progress=on_progress)
    if made.choice is None:
        raise InvalidRequest("no plan fits", where=name, got=made.certificate.reason, wanted="more memory or devices")
    return ChosenShardings(graph, made.choice, made)
