"""Plans: asked for, looked at, listed, cancelled."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from api.http.database_access import read_database
from api.http.limits import RequestBody
from api.http.openapi import describe_body
from api.http.plan_intake import PlanQuery, digest_request, read_plan_job
from api.http.problems import HttpProblem
from api.http.requests import PlanRequest
from api.http.schemas import SOLVED, PlanPage, PlanResponse
from api.http.security import ModelBody, Planner, Reader, ServiceDep
from api.jobs.plan_repository import PlanRecord
from api.jobs.queue import RETRYABLE
from api.model_formats import IMPORTERS
from api.service import Service
from api.tracing import PLAN, set_attribute

_PLAN_ID = re.compile("[0-9a-f]{64}")
router = APIRouter(prefix="/v1/plans", tags=["plans"])

MAX_PAGE = 200

PlanPath = Annotated[str, Path(description="The plan's id.")]
IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=255,
        pattern="^[!-~]+$",
        description="A name for this request: sent again with the same body, it gets the same plan.",
    ),
]


@router.post(
    "",
    status_code=202,
    responses={200: {"model": PlanResponse, "description": "Planned already."}, 202: {"description": "In line."}},
    openapi_extra=describe_body(PlanRequest, *IMPORTERS),
)
async def create_plan(
    caller: Planner,
    service: ServiceDep,
    sent: ModelBody,
    *,
    beside: Annotated[PlanQuery, Query()],
    request: Request,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> PlanResponse:
    """Ask for a plan. The same question has the same id, and is planned once. Beside a body that is no JSON, the query
    says the mesh and what else is asked."""
    digest, repeats = digest_request(sent, beside), request.app.state.recent_requests
    plan = None if idempotency_key else repeats.find_plan(digest)
    record = await read_database(service, service.plans.find, caller.tenant, plan) if plan else None
    if record is None or record.status in RETRYABLE:
        asked = caller.tenant, sent, beside, idempotency_key, digest
        record = await run_in_threadpool(_submit_plan, service, *asked)
        repeats.remember(digest, record.id)
    set_attribute(PLAN, record.id)
    response.headers["Location"] = f"/v1/plans/{record.id}"
    if record.status in SOLVED:
        service.metrics.count_repeat()
        response.status_code = 200
    return PlanResponse.of(record)


def _submit_plan(
    service: Service, tenant: str, sent: RequestBody, beside: PlanQuery, key: str | None, digest: str
) -> PlanRecord:
    """The plan that was asked for, committed."""
    question = read_plan_job(service, sent, beside)
    plan = service.jobs.submit(tenant, question, service.limits.max_queued, key=key, body=digest)
    service.wake()
    return find_plan(service, tenant, plan)


def find_plan(service: Service, tenant: str, plan: str) -> PlanRecord:
    """A tenant's plan. Raises Problem 404, the same whether no one has it or another has."""
    record = service.plans.find(tenant, plan) if _PLAN_ID.fullmatch(plan) else None
    if record is None:
        raise HttpProblem(404, "no-such-plan", f"plan {plan}")
    return record


@router.get("")
def list_plans(
    caller: Reader,
    service: ServiceDep,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="Plans on the page.")] = 50,
    *,
    after: Annotated[int | None, Query(ge=0, le=1 << 62, description="As in the `next` of the previous page.")] = None,
) -> PlanPage:
    """Your plans, the newest first."""
    page = service.plans.page(caller.tenant, after, limit + 1)
    shown = page[:limit]
    following = f"/v1/plans?limit={limit}&after={shown[-1].number}" if len(page) > limit else None
    return PlanPage(plans=[PlanResponse.of(record) for record in shown], next=following)


@router.get("/{plan}")
async def get_plan(caller: Reader, service: ServiceDep, plan: PlanPath) -> PlanResponse:
    """How a plan stands."""
    return PlanResponse.of(await read_database(service, find_plan, service, caller.tenant, plan))


@router.delete("/{plan}")
def cancel_plan(caller: Planner, service: ServiceDep, plan: PlanPath) -> PlanResponse:
    """Cancel a plan; one that has ended stays as it is."""
    find_plan(service, caller.tenant, plan)
    service.jobs.cancel(caller.tenant, plan)
    return PlanResponse.of(find_plan(service, caller.tenant, plan))
