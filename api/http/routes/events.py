"""A plan's events as a server-sent event stream, resumable from any event by Last-Event-ID."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Self

from fastapi import APIRouter, Depends, Header, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool

from api.http.problems import HttpProblem
from api.http.routes.plans import PlanPath, find_plan
from api.http.security import Reader, ServiceDep, is_allowed
from api.jobs.api_keys import ApiKey
from api.jobs.plan_repository import PlanRecord
from api.service import Service

router = APIRouter(prefix="/v1/plans", tags=["plans"])

POLL_S = 0.2
KEY_CHECK_S = 1.0
"""How often a stream checks that the caller's key is still valid."""
PAGE_EVENTS = 100
LastEventId = Annotated[str | None, Header(pattern="^[0-9]{1,18}$", description="The id of the last event received.")]


EVENTS_SENT: dict[int | str, dict[str, Any]] = {
    200: {"description": "Server-sent events with an id, a kind, and JSON with status and progress."},
    204: {"description": "The work has ended, and all of its events were received."},
}


class AllReceived(Exception):
    """There is no event that the caller has not received, and none will come: 204 tells browsers not to ask again."""


@dataclass(frozen=True, slots=True)
class EventStream:
    """The events of a plan or a sweep after one of them, for a caller."""

    service: Service
    record: PlanRecord
    after: int
    request: Request

    @classmethod
    @contextmanager
    def open(
        cls, service: Service, caller: ApiKey, record: PlanRecord, *, after: str | None, request: Request
    ) -> Iterator[Self]:
        """Count a stream of the caller until the context ends. Raises AllReceived, HttpProblem 429."""
        stream = cls(service, record, int(after or 0), request)
        if record.is_done and not service.plans.events(record, stream.after, 1):
            raise AllReceived
        if not service.streams.open(caller.tenant):
            most = service.limits.streams
            raise HttpProblem(429, "too-many-streams", f"{most} are open", headers={"Retry-After": "5"})
        try:
            yield stream
        finally:
            service.streams.close(caller.tenant)

    async def events(self) -> AsyncIterator[ServerSentEvent]:
        """Yield events until `done` is the last one; a plan that is requested again after `done` continues."""
        yield ServerSentEvent(retry=1000)
        after, ended, checked_at = self.after, False, time.monotonic()
        while not self.service.is_stopping:
            if time.monotonic() - checked_at > KEY_CHECK_S:
                checked_at = time.monotonic()
                if not await is_allowed(self.request, self.service):
                    return
            page = await run_in_threadpool(self.service.plans.events, self.record, after, PAGE_EVENTS)
            for event in page:
                yield ServerSentEvent(id=str(event.seq), event=event.kind, raw_data=event.data)
                after, ended = event.seq, event.kind == "done"
            # Read once more after `done`: where the plan was queued again meanwhile, its new events follow.
            if ended and not page:
                return
            await asyncio.sleep(0 if ended else POLL_S)


def _follow_plan(
    caller: Reader, service: ServiceDep, plan: PlanPath, *, request: Request, last_event_id: LastEventId = None
) -> Iterator[EventStream]:
    record = find_plan(service, caller.tenant, plan)
    with EventStream.open(service, caller, record, after=last_event_id, request=request) as stream:
        yield stream


@router.get("/{plan}/events", response_class=EventSourceResponse, responses=EVENTS_SENT)
async def stream_plan_events(
    stream: Annotated[EventStream, Depends(_follow_plan)],
) -> AsyncIterator[ServerSentEvent]:
    """Stream the events `queued`, `running`, `incumbent` and `done`, from the first, or after the last one received.

    The stream ends where the caller's key is revoked.
    """
    async for event in stream.events():
        yield event
