"""From the body of a request to the question it asks: a graph document, or a model in another tool's form, which a
child process converts first."""

from __future__ import annotations

import hashlib
import threading
from typing import Annotated, Any

from pydantic import Field

from api.http.limits import JSON, RequestBody, check_graph_size, parse_body
from api.http.problems import HttpProblem, problem_of_task_result
from api.http.requests import PlanRequest, build_plan_inputs, compress_json, pack_json, unpack_json
from api.jobs.queue import PlanJob
from api.model_formats import conversion_task
from api.options import PlanOptions
from api.service import Service
from api.settings import Limits
from api.units import parse_sizes
from planner.documents.json_reader import gc_paused
from planner.documents.plans import dump_identity
from planner.documents.schemas import validate_document
from planner.documents.strict_model import Id, Name


class PlanQuery(PlanOptions, strict=False):
    """The request of a body that is not JSON: mesh, hardware, options, and how the model is converted to a graph."""

    mesh: Annotated[Name | None, Field(description="dp=2,tp=4, or 2x4.")] = None
    hardware: Annotated[Id | None, Field(description="A built-in profile; else the default one.")] = None
    name: Annotated[Name, Field(description="The graph's name.")] = "model"
    dim: Annotated[list[str], Field(max_length=64, description="batch=8: the size of a symbolic dim.")] = Field(
        default=[]
    )


class RecentRequests:
    """The plans that bodies asked for, so that the same body is not read again; only the last are kept."""

    MOST = 4096

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
            if len(self._plans) > self.MOST:
                del self._plans[next(iter(self._plans))]


def read_plan_job(service: Service, sent: RequestBody, beside: PlanQuery) -> PlanJob:
    """The question, checked as far as can be without solving. Raises Problem, ShardplanError."""
    if sent.kind == JSON:
        if said := sorted(beside.model_fields_set):
            raise _invalid_parameter(said[0], f"{said[0]} is said in the body where it is JSON")
        with gc_paused():
            return _build_plan_job(parse_body(sent.data, service.limits), compress_json(sent.data), service.limits)
    document = _convert_model(service, sent, beside)
    with gc_paused():
        return _build_plan_job(document, pack_json(document), service.limits)


def _build_plan_job(document: Any, ask: bytes, limits: Limits) -> PlanJob:
    asked = validate_document(PlanRequest, document, "body")
    check_graph_size(asked, limits)
    values = build_plan_inputs(asked)
    identity: str = dump_identity(values.graph, values.model, values.request)["id"]
    return PlanJob(identity, values.graph.name, ask)


def digest_request(sent: RequestBody, beside: PlanQuery) -> str:
    """Of everything that was sent."""
    told = hashlib.sha256(f"{sent.kind}\n{beside.model_dump_json(exclude_unset=True)}\n".encode())
    told.update(sent.data)
    return told.hexdigest()


def _convert_model(service: Service, sent: RequestBody, beside: PlanQuery) -> Any:
    if beside.mesh is None:
        raise _invalid_parameter("mesh", "the mesh is missing, such as ?mesh=dp=2,tp=4")
    ended = service.run_task(
        "conversion", conversion_task(sent.kind, sent.data, beside.name, dims=parse_sizes(beside.dim))
    )
    if ended.kind != "result":
        raise problem_of_task_result(ended)
    request = beside.model_dump(include=set(PlanOptions.model_fields), exclude_unset=True)
    asked = {"graph": unpack_json(ended.payload), "mesh": beside.mesh, "hardware": beside.hardware, "request": request}
    return {key: value for key, value in asked.items() if value is not None}


def _invalid_parameter(parameter: str, detail: str) -> HttpProblem:
    return HttpProblem(422, "invalid-parameter", detail, parameter=parameter)
