"""What is answered at once: validations, comparisons, reshards, capacity. The work is done in a child process."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from api.asking import pointed, unpacked
from api.children import Ended
from api.http.documents import checked_at, plan_at
from api.http.limits import parsed
from api.http.openapi import body_of
from api.http.problems import of_child
from api.http.schemas import CapacityAnswer, ComparisonAnswer, ComparisonAsked, ValidationAsked
from api.http.security import Body, Planner, ServiceDep
from api.sizing import CapacityAsked, question_from
from api.ways import ReshardAsked
from planner.documents.comparisons import comparison_document
from planner.documents.results import VerdictDocument
from planner.documents.schemas import checked
from planner.judge.gate.thresholds import thresholds

router = APIRouter(prefix="/v1", tags=["answers"])


@router.post("/validations", openapi_extra=body_of(ValidationAsked), responses={200: {"model": VerdictDocument}})
def validate(caller: Planner, service: ServiceDep, body: Body) -> JSONResponse:
    """Run a plan on logical devices beside its unsharded graph, and give the verdict."""
    document = parsed(body, service.limits)
    asked = checked(ValidationAsked, document, "body")
    plan = plan_at(service, caller.tenant, document["plan"])
    options = asked.model_dump(exclude={"plan"})
    return _answered(service.answer("validation", {**options, "plan": plan}))


@router.post("/comparisons", openapi_extra=body_of(ComparisonAsked), responses={200: {"model": ComparisonAnswer}})
def compare(caller: Planner, service: ServiceDep, body: Body) -> JSONResponse:
    """What differs between two plans: totals, and the values sharded otherwise; under `fail_on`, what rose too far."""
    document = parsed(body, service.limits)
    asked = checked(ComparisonAsked, document, "body")
    base, new = (checked_at(service, caller.tenant, document[key], f"/{key}") for key in ("base", "new"))
    if asked.fail_on is None:
        return JSONResponse(comparison_document(base, new))
    with pointed("/fail_on"):
        thresholds(asked.fail_on, "fail_on")
    plans = {key: plan.model_dump(mode="json", exclude_unset=True) for key, plan in (("base", base), ("new", new))}
    return _answered(service.answer("check", {**plans, "fail_on": asked.fail_on}))


@router.post("/reshards", openapi_extra=body_of(ReshardAsked))
def reshard(caller: Planner, service: ServiceDep, body: Body) -> JSONResponse:
    """The cheapest program between two shardings of a tensor."""
    document = parsed(body, service.limits)
    checked(ReshardAsked, document, "body")
    return _answered(service.answer("reshard", document))


@router.post("/capacity", openapi_extra=body_of(CapacityAsked), responses={200: {"model": CapacityAnswer}})
def capacity(caller: Planner, service: ServiceDep, body: Body) -> JSONResponse:
    """Which devices a model needs: the fewest, the cheapest, the fastest, and what lies between."""
    document = parsed(body, service.limits)
    question_from(checked(CapacityAsked, document, "body"))
    return _answered(service.answer("capacity", document))


def _answered(ended: Ended) -> JSONResponse:
    if ended.kind != "result":
        raise of_child(ended)
    found: Any = unpacked(ended.payload)
    return JSONResponse(found)
