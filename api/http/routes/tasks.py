"""Tasks that the caller waits for: validations, comparisons, reshards. Child processes do the work."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from api.http.limits import parse_body
from api.http.openapi import describe_body
from api.http.problems import problem_of_task_result
from api.http.requests import at_pointer, unpack_json
from api.http.requests_reshard import ReshardRequest
from api.http.routes.documents import resolve_plan, resolve_plan_document
from api.http.schemas import ComparisonRequest, ComparisonResponse, ValidationRequest
from api.http.security import Body, Planner, ServiceDep
from api.jobs.worker_process import TaskResult
from planner.documents.diff import compare_documents
from planner.documents.plan_sections import VerdictDocument
from planner.documents.schemas import validate_document
from planner.judge.check.limits import parse_limits

router = APIRouter(prefix="/v1", tags=["tasks"])


@router.post(
    "/validations", openapi_extra=describe_body(ValidationRequest), responses={200: {"model": VerdictDocument}}
)
def validate_plan(caller: Planner, service: ServiceDep, body: Body) -> JSONResponse:
    """Run a plan on logical devices, compare it with its unsharded graph, and return the verdict."""
    document = parse_body(body, service.limits)
    request = validate_document(ValidationRequest, document, "body")
    plan = resolve_plan(service, caller.tenant, document["plan"])
    options = request.model_dump(exclude={"plan"})
    return _result_response(service.run_task(caller.tenant, "validation", {**options, "plan": plan}))


@router.post(
    "/comparisons", openapi_extra=describe_body(ComparisonRequest), responses={200: {"model": ComparisonResponse}}
)
def compare_plans(caller: Planner, service: ServiceDep, body: Body) -> JSONResponse:
    """Return the differences between two plans; with `fail_on`, also the limits that are exceeded."""
    document = parse_body(body, service.limits)
    request = validate_document(ComparisonRequest, document, "body")
    base, new = (
        resolve_plan_document(service, caller.tenant, document[key], pointer=f"/{key}") for key in ("base", "new")
    )
    if request.fail_on is None:
        return JSONResponse(compare_documents(base, new))
    with at_pointer("/fail_on"):
        parse_limits(request.fail_on, "fail_on")
    plans = {key: plan.model_dump(mode="json", exclude_unset=True) for key, plan in (("base", base), ("new", new))}
    return _result_response(service.run_task(caller.tenant, "check", {**plans, "fail_on": request.fail_on}))


@router.post("/reshards", openapi_extra=describe_body(ReshardRequest))
def find_reshard(caller: Planner, service: ServiceDep, body: Body) -> JSONResponse:
    """Return the cheapest program between two shardings of a tensor."""
    document = parse_body(body, service.limits)
    validate_document(ReshardRequest, document, "body")
    return _result_response(service.run_task(caller.tenant, "reshard", document))


def _result_response(result: TaskResult) -> JSONResponse:
    if result.kind != "result":
        raise problem_of_task_result(result)
    content: Any = unpack_json(result.payload)
    return JSONResponse(content)
