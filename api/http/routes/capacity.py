"""Capacity questions: each is a sweep of plans in the queue, followed and cancelled as one."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator, Iterator
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool

from api.http.database_access import read_database
from api.http.limits import parse_body
from api.http.openapi import describe_body
from api.http.problems import HttpProblem
from api.http.requests import pack_json
from api.http.requests_capacity import CapacityRequest, check_capacity_request
from api.http.routes.events import EVENTS_SENT, EventStream, LastEventId
from api.http.routes.plans import IS_ID
from api.http.schemas import CapacityResponse, SweepResponse
from api.http.security import Body, Planner, Reader, ServiceDep
from api.jobs.enqueue import PlanJob
from api.jobs.plan_repository import PlanRecord
from api.service import Service
from api.tracing import current_traceparent
from planner.documents.canonical_json import digest_document
from planner.documents.schemas import validate_document
from planner.documents.versions import current_versions

router = APIRouter(prefix="/v1/capacity", tags=["capacity"])

SweepPath = Annotated[str, Path(description="The id of the capacity question.")]


@router.post(
    "",
    status_code=202,
    responses={
        200: {"model": SweepResponse, "description": "The question is answered already."},
        202: {"description": "The search is queued."},
    },
    openapi_extra=describe_body(CapacityRequest),
)
async def plan_capacity(
    caller: Planner, service: ServiceDep, body: Body, *, request: Request, response: Response
) -> SweepResponse:
    """Ask for the fewest, cheapest and fastest devices for a model, and the frontier between them.

    The candidates are plans that all workers solve. Equal questions have the same id and are answered once; what was
    planned for another question, or before a failure, is not planned again.
    """
    traceparent = request.headers.get("traceparent")
    async with request.app.state.turns.take(caller.tenant, len(body)):
        record = await run_in_threadpool(_submit_sweep, service, caller.tenant, body, traceparent=traceparent)
    response.headers["Location"] = f"/v1/capacity/{record.id}"
    if record.status == "complete":
        response.status_code = 200
    return SweepResponse.of(record)


def _submit_sweep(service: Service, tenant: str, body: bytes, *, traceparent: str | None) -> PlanRecord:
    """Return the requested sweep after it is committed to the queue."""
    document = parse_body(body, service.limits)
    question = validate_document(CapacityRequest, document, "body")
    check_capacity_request(question)
    sweep = digest_document({"question": document, "versions": current_versions()})
    names = [*(graph.name for graph in question.graphs), *(model.name for model in question.models)]
    job = PlanJob(sweep, ", ".join(names), pack_json(document), current_traceparent(traceparent), kind="sweep")
    service.jobs.submit(tenant, job, service.limits.max_queued)
    return find_sweep(service, tenant, sweep)


def find_sweep(service: Service, tenant: str, sweep: str) -> PlanRecord:
    """Return a tenant's sweep. Raises HttpProblem 404, whether it does not exist or belongs to another tenant."""
    record = service.plans.find(tenant, sweep, "sweep") if IS_ID.fullmatch(sweep) else None
    if record is None:
        raise HttpProblem(404, "no-such-question", f"capacity question {sweep}")
    return record


@router.get("/{sweep}")
async def get_capacity(caller: Reader, service: ServiceDep, sweep: SweepPath) -> SweepResponse:
    """Return how far the search is: the candidates that are decided, and the frontier so far."""
    return SweepResponse.of(await read_database(service, find_sweep, service, caller.tenant, sweep))


def _follow_sweep(
    caller: Reader, service: ServiceDep, sweep: SweepPath, *, request: Request, last_event_id: LastEventId = None
) -> Iterator[EventStream]:
    record = find_sweep(service, caller.tenant, sweep)
    with EventStream.open(service, caller, record, after=last_event_id, request=request) as stream:
        yield stream


@router.get("/{sweep}/events", response_class=EventSourceResponse, responses=EVENTS_SENT)
async def stream_capacity_events(
    stream: Annotated[EventStream, Depends(_follow_sweep)],
) -> AsyncIterator[ServerSentEvent]:
    """Stream the events `queued`, `running`, `frontier` and `done`, from the first, or after the last one received.

    The stream ends where the caller's key is revoked.
    """
    async for event in stream.events():
        yield event


@router.get(
    "/{sweep}/document",
    response_class=Response,
    responses={200: {"model": CapacityResponse}},
)
def get_capacity_document(caller: Reader, service: ServiceDep, sweep: SweepPath) -> Response:
    """Return every candidate with its outcome, and the frontier with the ids of its plans."""
    record = find_sweep(service, caller.tenant, sweep)
    packed = service.plans.document(record)
    if packed is None:
        error = f": {record.error}" if record.error else ""
        raise HttpProblem(409, "no-document", f"the search is {record.status}{error}", wanted="complete, incomplete")
    return Response(gzip.decompress(packed), media_type="application/json")


@router.delete("/{sweep}")
def cancel_capacity(caller: Planner, service: ServiceDep, sweep: SweepPath) -> SweepResponse:
    """Cancel a search with the plans that were requested for it alone; one that has ended stays as it is."""
    find_sweep(service, caller.tenant, sweep)
    service.jobs.cancel(caller.tenant, sweep)
    return SweepResponse.of(find_sweep(service, caller.tenant, sweep))
