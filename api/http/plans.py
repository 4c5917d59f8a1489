"""Plans: asked for, looked at, listed, cancelled."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from api.asking import PlanAsked
from api.foreign import FORMS
from api.http.asks import Beside, digest_of, question_of
from api.http.limits import Sent
from api.http.openapi import body_of
from api.http.problems import Problem
from api.http.reading import read
from api.http.schemas import DONE, PlanAnswer, PlansAnswer
from api.http.security import ModelBody, Planner, Reader, ServiceDep
from api.jobs import AGAIN
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
async def ask_plan(
    caller: Planner,
    service: ServiceDep,
    sent: ModelBody,
    beside: Annotated[Beside, Query()],
    request: Request,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> PlanAnswer:
    """Ask for a plan. The same question has the same id, and is planned once. Beside a body that is no JSON, the query
    says the mesh and what else is asked."""
    digest, repeats = digest_of(sent, beside), request.app.state.repeats
    plan = None if idempotency_key else repeats.plan_of(digest)
    record = await read(service, service.records.find, caller.tenant, plan) if plan else None
    if record is None or record.status in AGAIN:
        asked = caller.tenant, sent, beside, idempotency_key, digest
        record = await run_in_threadpool(_entered, service, *asked)
        repeats.keep(digest, record.id)
    mark(PLAN, record.id)
    response.headers["Location"] = f"/v1/plans/{record.id}"
    if record.status in DONE:
        service.metrics.repeated()
        response.status_code = 200
    return PlanAnswer.of(record)


def _entered(service: Service, tenant: str, sent: Sent, beside: Beside, key: str | None, digest: str) -> Record:
    """The plan that was asked for, committed."""
    question = question_of(service, sent, beside)
    plan = service.jobs.submit(tenant, question, service.limits.queued, key, digest)
    service.wake()
    return found(service, tenant, plan)


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
async def show_plan(caller: Reader, service: ServiceDep, plan: PlanPath) -> PlanAnswer:
    """How a plan stands."""
    return PlanAnswer.of(await read(service, found, service, caller.tenant, plan))


@router.delete("/{plan}")
def cancel_plan(caller: Planner, service: ServiceDep, plan: PlanPath) -> PlanAnswer:
    """Cancel a plan; one that has ended stays as it is."""
    found(service, caller.tenant, plan)
    service.jobs.cancel(caller.tenant, plan)
    return PlanAnswer.of(found(service, caller.tenant, plan))
