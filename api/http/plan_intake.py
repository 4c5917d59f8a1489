"""Turns the body of a request into a job: a graph document, or a model in another tool's format that a child process
converts first.
"""

from __future__ import annotations

import hashlib
import threading
from typing import Annotated, Any

from pydantic import Field

from api.http.limits import JSON, RequestBody, check_graph_size, parse_body
from api.http.problems import HttpProblem, problem_of_task_result
from api.http.requests import PlanRequest, build_plan_inputs, compress_json, pack_json, unpack_json
from api.jobs.enqueue import PlanJob
from api.model_formats import conversion_task
from api.options import StagedPlanOptions
from api.service import Service
from api.settings import Limits
from api.units import parse_sizes
from planner.documents.json_reader import gc_paused
from planner.documents.schemas import validate_document
from planner.documents.strict_model import Id, Name


class PlanQuery(StagedPlanOptions, strict=False):
    """The request of a body that is not JSON: mesh, hardware, options, and how the model is converted to a graph."""

    mesh: Annotated[Name | None, Field(description="dp=2,tp=4, or 2x4.")] = None
    hardware: Annotated[Id | None, Field(description="A built-in profile; else the default one.")] = None
    name: Annotated[Name, Field(description="The graph's name.")] = "model"
    dim: Annotated[list[str], Field(max_length=64, description="batch=8: the size of a symbolic dim.")] = Field(
        default=[]
    )


class RecentRequests:
    """The plans of recent request bodies, so that a repeated body is not parsed again."""

    MAX_BODIES = 4096

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._plans: dict[str, str] = {}

    def find_plan(self, digest: str) -> str | None:
        with self._lock:
            return self._plans.get(digest)

    def remember(self, digest: str, plan: str) -> None:
        with self._lock:
            self._plans.pop(digest, None)
            self._plans[digest] = plan
            if len(self._plans) > self.MAX_BODIES:
                del self._plans[next(iter(self._plans))]


def read_plan_job(service: Service, tenant: str, body: RequestBody, *, query: PlanQuery) -> PlanJob:
    """Return the job of a request, checked as far as possible without solving. Raises HttpProblem, ShardplanError."""
    if body.kind == JSON:
        if misplaced := sorted(query.model_fields_set):
            raise _invalid_parameter(misplaced[0], f"{misplaced[0]} belongs into the body where the body is JSON")
        with gc_paused():
            return _build_plan_job(parse_body(body.data, service.limits), compress_json(body.data), service.limits)
    document = _convert_model(service, tenant, body, query=query)
    with gc_paused():
        return _build_plan_job(document, pack_json(document), service.limits)


def _build_plan_job(document: Any, packed: bytes, limits: Limits) -> PlanJob:
    request = validate_document(PlanRequest, document, "body")
    check_graph_size(request, limits)
    inputs = build_plan_inputs(request)
    return PlanJob(inputs.plan_id, inputs.graph.name, packed)


def digest_request(body: RequestBody, query: PlanQuery) -> str:
    """Return a digest of everything that was sent."""
    digest = hashlib.sha256(f"{body.kind}\n{query.model_dump_json(exclude_unset=True)}\n".encode())
    digest.update(body.data)
    return digest.hexdigest()


def _convert_model(service: Service, tenant: str, body: RequestBody, *, query: PlanQuery) -> Any:
    if query.mesh is None:
        raise _invalid_parameter("mesh", "the mesh is missing, such as ?mesh=dp=2,tp=4")
    result = service.run_task(
        tenant, "conversion", conversion_task(body.kind, body.data, query.name, dims=parse_sizes(query.dim))
    )
    if result.kind != "result":
        raise problem_of_task_result(result)
    options = query.model_dump(include=set(StagedPlanOptions.model_fields), exclude_unset=True)
    request = {"graph": unpack_json(result.payload), "mesh": query.mesh, "hardware": query.hardware, "request": options}
    return {key: value for key, value in request.items() if value is not None}


def _invalid_parameter(parameter: str, detail: str) -> HttpProblem:
    return HttpProblem(422, "invalid-parameter", detail, parameter=parameter)
