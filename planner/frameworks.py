"""The middle of the one-liners (`planner.torch`, `planner.jax`): a framework's graph document, planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner import pipeline
from planner.choose.formulate import Choice
from planner.documents.graphs import graph_from
from planner.documents.hardware import read_hardware
from planner.documents.schemas import GraphDocument, checked
from planner.errors import InvalidRequest
from planner.model.graph import Graph
from planner.model.mesh import Mesh
from planner.plans import Plan, Request
from planner.progress import solving_line


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """A plan that fits, and the shardings it chose for its graph."""

    graph: Graph
    choice: Choice
    plan: Plan


def chosen(document: Mapping[str, Any], name: str, mesh: Mesh, device: str, request: Request | None) -> Chosen:
    """The best plan of a document on a mesh of the hardware profile `device`, with its progress in a notebook or on a
    terminal.

    Raises InvalidRequest where nothing fits the memory, and what a document or a profile that is wrong raises.
    """
    graph = graph_from(checked(GraphDocument, document, name), mesh)
    with solving_line() as on_progress:
        made = pipeline.plan(graph, mesh, read_hardware(device), request, on_progress)
    if made.choice is None:
        raise InvalidRequest("no plan fits", where=name, got=made.certificate.reason, wanted="more memory or devices")
    return Chosen(graph, made.choice, made)
