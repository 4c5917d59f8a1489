"""Plans: created, read, listed, cancelled."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from api.http.database_access import read_database
from api.http.limits import JSON, RequestBody
from api.http.openapi import describe_body
from api.http.plan_intake import PlanQuery, digest_request, read_plan_job
from api.http.problems import HttpProblem
from api.http.requests import PlanRequest
from api.http.schemas import SOLVED, PlanPage, PlanResponse
from api.http.security import ModelBody, Planner, Reader, ServiceDep
from api.jobs.enqueue import RETRYABLE
from api.jobs.plan_repository import PlanRecord
from api.model_formats import IMPORTERS
from api.service import Service
from api.tracing import PLAN, current_traceparent, set_attribute

IS_ID = re.compile("[0-9a-f]{64}")
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
    responses={
        200: {"model": PlanResponse, "description": "The plan is solved already."},
        202: {"description": "The plan is queued."},
    },
    openapi_extra=describe_body(PlanRequest, *IMPORTERS),
)
async def create_plan(
    caller: Planner,
    service: ServiceDep,
    body: ModelBody,
    *,
    query: Annotated[PlanQuery, Query()],
    request: Request,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> PlanResponse:
    """Request a plan. Equal requests have the same id and are planned once.

    For a body that is not JSON, query parameters give the mesh and the options.
    """
    digest, recent_requests = digest_request(body, query), request.app.state.recent_requests
    plan = None if idempotency_key else recent_requests.find_plan(digest)
    record = await read_database(service, service.plans.find, caller.tenant, plan) if plan else None
    if record is None or record.status in RETRYABLE:
        traceparent = request.headers.get("traceparent")
        submission = caller.tenant, body, query, idempotency_key, digest, traceparent
        parsed_bytes = len(body.data) if body.kind == JSON else 0  # models are parsed in children
        async with request.app.state.turns.take(caller.tenant, parsed_bytes):
            record = await run_in_threadpool(_submit_plan, service, *submission)
        recent_requests.remember(digest, record.id)
    set_attribute(PLAN, record.id)
    response.headers["Location"] = f"/v1/plans/{record.id}"
    if record.status in SOLVED:
        service.metrics.count_repeat()
        response.status_code = 200
    return PlanResponse.of(record)


def _submit_plan(
    service: Service,
    tenant: str,
    body: RequestBody,
    query: PlanQuery,
    key: str | None,
    digest: str,
    traceparent: str | None,
) -> PlanRecord:
    """Return the requested plan after it is committed to the queue."""
    job = replace(read_plan_job(service, tenant, body, query=query), traceparent=current_traceparent(traceparent))
    plan = service.jobs.submit(tenant, job, service.limits.max_queued, key=key, body=digest)
    return find_plan(service, tenant, plan)


def find_plan(service: Service, tenant: str, plan: str) -> PlanRecord:
    """Return a tenant's plan. Raises HttpProblem 404, whether it does not exist or belongs to another tenant."""
    record = service.plans.find(tenant, plan) if IS_ID.fullmatch(plan) else None
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
    """List your plans, newest first."""
    page = service.plans.page(caller.tenant, after, limit + 1)  # one more tells whether a next page exists
    records = page[:limit]
    next_path = f"/v1/plans?limit={limit}&after={records[-1].number}" if len(page) > limit else None
    return PlanPage(plans=[PlanResponse.of(record) for record in records], next=next_path)


@router.get("/{plan}")
async def get_plan(caller: Reader, service: ServiceDep, plan: PlanPath) -> PlanResponse:
    """Return the state of a plan."""
    return PlanResponse.of(await read_database(service, find_plan, service, caller.tenant, plan))


@router.delete("/{plan}")
def cancel_plan(caller: Planner, service: ServiceDep, plan: PlanPath) -> PlanResponse:
    """Cancel a plan; a plan that has ended stays as it is."""
    find_plan(service, caller.tenant, plan)
    service.jobs.cancel(caller.tenant, plan)
    return PlanResponse.of(find_plan(service, caller.tenant, plan))
