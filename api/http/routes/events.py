"""A plan's events as a server-sent event stream, resumable from any event by Last-Event-ID."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from api.http.problems import HttpProblem
from api.http.routes.plans import PlanPath, find_plan
from api.http.security import Reader, ServiceDep, is_allowed
from api.jobs.api_keys import ApiKey
from api.jobs.plan_repository import PlanEvent, PlanRecord
from api.service import Service

router = APIRouter(prefix="/v1/plans", tags=["plans"])

POLL_S = 0.2
KEEP_ALIVE_S = 15.0
KEY_CHECK_S = 1.0
"""How often a stream checks that the caller's key is still valid."""
PAGE_EVENTS = 100
LastEventId = Annotated[str | None, Header(pattern="^[0-9]{1,18}$", description="The id of the last event received.")]


@router.get(
    "/{plan}/events",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "Server-sent events with an id, a kind, and JSON with status, incumbent_s, bound_s and gap.",
            "content": {"text/event-stream": {}},
        },
        204: {"description": "The plan has ended, and all of its events were received."},
    },
)
def stream_plan_events(
    caller: Reader, service: ServiceDep, plan: PlanPath, *, request: Request, last_event_id: LastEventId = None
) -> Response:
    """Stream the events `queued`, `running`, `incumbent` and `done`, from the first, or after the last one received.

    The stream ends where the caller's key is revoked.
    """
    record = find_plan(service, caller.tenant, plan)
    return stream_events(service, caller, record, request=request, last_event_id=last_event_id)


def stream_events(
    service: Service, caller: ApiKey, record: PlanRecord, *, request: Request, last_event_id: str | None
) -> Response:
    """Return the stream of a plan's or a sweep's events. Raises HttpProblem 429 where the caller has too many."""
    after = int(last_event_id or 0)
    if record.is_done and not service.plans.events(record, after, 1):
        return Response(status_code=204)
    if not service.streams.open(caller.tenant):
        raise HttpProblem(429, "too-many-streams", f"{service.limits.streams} are open", headers={"Retry-After": "5"})
    pieces = _stream_events(service, record, after, is_allowed=partial(is_allowed, request, service))
    return EventStream(pieces, partial(service.streams.close, caller.tenant))


class EventStream(StreamingResponse):
    """A stream of server-sent events; `on_end` is called once it is sent, or its client has gone."""

    def __init__(self, pieces: AsyncIterator[str], on_end: Callable[[], None]) -> None:
        super().__init__(pieces, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()


async def _stream_events(
    service: Service, record: PlanRecord, after: int, *, is_allowed: Callable[[], Awaitable[bool]]
) -> AsyncIterator[str]:
    """Yield events until `done` is the last one; a plan that is requested again after `done` continues."""
    yield "retry: 1000\n\n"
    ended, sent_at = False, time.monotonic()
    checked_at = sent_at
    while not service.is_stopping:
        if time.monotonic() - checked_at > KEY_CHECK_S:
            checked_at = time.monotonic()
            if not await is_allowed():
                return
        page = await run_in_threadpool(service.plans.events, record, after, PAGE_EVENTS)
        for event in page:
            yield _format_event(event)
            after, ended, sent_at = event.seq, event.kind == "done", time.monotonic()
        # Read once more after `done`: where the plan was queued again meanwhile, its new events follow.
        if ended and not page:
            return
        if not page and time.monotonic() - sent_at > KEEP_ALIVE_S:
            sent_at = time.monotonic()
            yield ": keep-alive\n\n"
        await asyncio.sleep(0 if ended else POLL_S)


def _format_event(event: PlanEvent) -> str:
    return f"id: {event.seq}\nevent: {event.kind}\ndata: {event.data}\n\n"
