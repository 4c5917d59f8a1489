"""Plans: asked for, looked at, listed, cancelled."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Response

from api.asking import PlanAsked
from api.foreign import FORMS
from api.http.asks import Beside, digest_of, question_of
from api.http.openapi import body_of
from api.http.problems import Problem
from api.http.schemas import DONE, PlanAnswer, PlansAnswer
from api.http.security import ModelBody, Planner, Reader, ServiceDep
from api.records import Record
from api.service import Service
from api.tracing import PLAN, mark

_ID = re.compile("[0-9a-f]{64}")
router = APIRouter(prefix="/v1/plans", tags=["plans"])

PAGE = 200

PlanPath = Annotated[str, Path(description="The plan's id.")]
IdempotencyKey = Annotated[str | None, Header(min_length=1, max_length=255, pattern="^[!-~]+$")]


@router.post(
    "",
    status_code=202,
    responses={200: {"model": PlanAnswer, "description": "Planned already."}, 202: {"description": "In line."}},
    openapi_extra=body_of(PlanAsked, *FORMS),
)
def ask_plan(
    caller: Planner,
    service: ServiceDep,
    sent: ModelBody,
    beside: Annotated[Beside, Query()],
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> PlanAnswer:
    """Ask for a plan. The same question has the same id, and is planned once. Beside a body that is no JSON, the query
    says the mesh and what else is asked."""
    question = question_of(service, sent, beside)
    digest = digest_of(sent, beside)
    plan = service.jobs.submit(caller.tenant, question, service.limits.queued, idempotency_key, digest)
    service.wake()
    mark(PLAN, plan)
    record = found(service, caller.tenant, plan)
    response.headers["Location"] = f"/v1/plans/{plan}"
    if record.status in DONE:
        service.metrics.repeated()
        response.status_code = 200
    return PlanAnswer.of(record)


def found(service: Service, tenant: str, plan: str) -> Record:
    """A tenant's plan. Raises Problem 404, the same whether no one has it or another has."""
    record = service.records.find(tenant, plan) if _ID.fullmatch(plan) else None
    if record is None:
        raise Problem(404, "no-such-plan", f"plan {plan}")
    return record


@router.get("")
def list_plans(
    caller: Reader,
    service: ServiceDep,
    limit: Annotated[int, Query(ge=1, le=PAGE)] = 50,
    after: Annotated[int | None, Query(ge=0, le=1 << 62, description="From the `next` of the page before.")] = None,
) -> PlansAnswer:
    """Your plans, the newest first."""
    page = service.records.page(caller.tenant, after, limit + 1)
    shown = page[:limit]
    following = f"/v1/plans?limit={limit}&after={shown[-1].number}" if len(page) > limit else None
    return PlansAnswer(plans=[PlanAnswer.of(record) for record in shown], next=following)


@router.get("/{plan}")
def show_plan(caller: Reader, service: ServiceDep, plan: PlanPath) -> PlanAnswer:
    """How a plan stands."""
    return PlanAnswer.of(found(service, caller.tenant, plan))


@router.delete("/{plan}")
def cancel_plan(caller: Planner, service: ServiceDep, plan: PlanPath) -> PlanAnswer:
    """Cancel a plan; one that has ended stays as it is."""
    found(service, caller.tenant, plan)
    service.jobs.cancel(caller.tenant, plan)
    return PlanAnswer.of(found(service, caller.tenant, plan))
