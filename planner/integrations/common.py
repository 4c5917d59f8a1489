"""Planning of a framework's graph document, shared by `planner.torch` and `planner.jax`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner import pipeline
from planner.choose.formulate import Choice
from planner.documents.canonical_json import digest_document
from planner.documents.graphs import dump_graph, load_graph
from planner.documents.hardware import read_hardware
from planner.documents.programs import load_program
from planner.documents.schemas import GraphDocument, PlanDocument, validate_document
from planner.errors import InvalidRequest
from planner.ir.graph import Graph
from planner.ir.mesh import Mesh
from planner.ir.program import Program
from planner.planning.infeasible import describe_infeasible
from planner.planning.plan_types import Plan, Request
from planner.progress import solving_line


@dataclass(frozen=True, slots=True, eq=False)
class ChosenShardings:
    """A feasible plan, its graph, and the shardings that it chose."""

    graph: Graph
    choice: Choice
    plan: Plan


def plan_document(
    document: Mapping[str, Any], name: str, mesh: Mesh, *, device: str, request: Request | None
) -> ChosenShardings:
    """Plan a document on a mesh of the hardware profile `device`; show progress in a notebook or on a terminal.

    Raises InvalidRequest if no plan fits the memory or the time was up before one was found, and the errors of an
    invalid document or profile.
    """
    graph = read_graph(document, name, mesh)
    with solving_line() as on_progress:
        plan = pipeline.plan(graph, mesh, read_hardware(device), request=request, on_progress=on_progress)
    if plan.certificate.status == "unknown":
        raise InvalidRequest("no plan found", where=name, got=plan.certificate.reason, wanted="a longer time limit")
    if plan.choice is None:
        known = plan.certificate
        limits = plan.limit_bytes, known.least_limit_bytes, known.least_limit_bound_bytes
        what = describe_infeasible(*limits, known.reason)
        raise InvalidRequest(what, where=name, wanted="a higher memory limit, or more devices")
    return ChosenShardings(graph, plan.choice, plan)


def refuse_microbatches(request: Request | None, name: str, wanted: str) -> None:
    """Raise InvalidRequest for several micro-batches of what runs as it is; `wanted` is what to call instead."""
    if request and (request.microbatches > 1 or request.global_batch is not None):
        got = f"microbatches={request.microbatches}, global_batch={request.global_batch}"
        raise InvalidRequest("micro-batches", where=name, got=got, wanted=wanted)


def read_graph(document: Mapping[str, Any], name: str, mesh: Mesh) -> Graph:
    """Return the graph of a framework's document."""
    return load_graph(validate_document(GraphDocument, document, name), mesh)


def load_planned_program(plan: PlanDocument, document: Mapping[str, Any], name: str) -> Program:
    """Return the program of a plan for the graph that a framework makes now.

    Raises InvalidRequest, naming what differs first, where it is not the graph that was planned.
    """
    program = load_program(plan)
    now = dump_graph(read_graph(document, name, program.mesh), program.mesh)
    planned = dump_graph(load_graph(plan.graph.document, program.mesh), program.mesh)
    if digest_document(now) == digest_document(planned):
        return program
    if now["producer"] != planned["producer"]:
        got, wanted = (" ".join(each["producer"].values()) for each in (now, planned))
        raise InvalidRequest("a plan for another version of the framework", where=name, got=got, wanted=wanted)
    for key in ("inputs", "nodes", "outputs"):
        for place in range(max(len(now[key]), len(planned[key]))):
            got, wanted = (dict(enumerate(each[key])).get(place, "nothing") for each in (now, planned))
            if got != wanted:
                where = f"{name}: {key}/{place}"
                raise InvalidRequest("the module is not the one that was planned", where=where, got=got, wanted=wanted)
    raise InvalidRequest("the module is not the one that was planned", where=name, wanted="that of the plan")
