"""A plan's incumbents as they come: server-sent events, resumable from any one of them by Last-Event-ID."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from api.http.plans import PlanPath, found
from api.http.problems import Problem
from api.http.security import Reader, ServiceDep
from api.records import Record, Told
from api.service import Service

router = APIRouter(prefix="/v1/plans", tags=["plans"])

LOOK_S = 0.2
SILENCE_S = 15.0
AT_ONCE = 100
LastEventId = Annotated[str | None, Header(pattern="^[0-9]{1,18}$", description="The last event you have seen.")]


@router.get(
    "/{plan}/events",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "Server-sent events: number, kind, and JSON of status, incumbent, bound and gap.",
            "content": {"text/event-stream": {}},
        },
        204: {"description": "The plan has ended, and you have seen it."},
    },
)
def follow_plan(caller: Reader, service: ServiceDep, plan: PlanPath, last_event_id: LastEventId = None) -> Response:
    """Events `queued`, `running`, `incumbent` and `done`, from the first, or after the one you have seen last."""
    record, after = found(service, caller.tenant, plan), int(last_event_id or 0)
    if record.is_done and not service.records.events(record, after, 1):
        return Response(status_code=204)
    if service.streams[caller.tenant] >= service.limits.streams:
        raise Problem(429, "too-many-streams", f"{service.limits.streams} are open", headers={"Retry-After": "5"})
    pieces = _counted(service, caller.tenant, _stream(service, record, after))
    return StreamingResponse(pieces, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


async def _counted(service: Service, tenant: str, pieces: AsyncIterator[str]) -> AsyncIterator[str]:
    service.streams[tenant] += 1
    try:
        async for piece in pieces:
            yield piece
    finally:
        service.streams[tenant] -= 1


async def _stream(service: Service, record: Record, after: int) -> AsyncIterator[str]:
    """Ends with the plan: `done` with nothing behind it (a plan asked anew goes on)."""
    yield "retry: 1000\n\n"
    ended, said_at = False, time.monotonic()
    while not service.is_stopping:
        told = await run_in_threadpool(service.records.events, record, after, AT_ONCE)
        for each in told:
            yield _event(each)
            after, ended, said_at = each.seq, each.kind == "done", time.monotonic()
        if ended and not told:
            return
        if not told and time.monotonic() - said_at > SILENCE_S:
            said_at = time.monotonic()
            yield ": still here\n\n"
        await asyncio.sleep(0 if ended else LOOK_S)


def _event(told: Told) -> str:
    return f"id: {told.seq}\nevent: {told.kind}\ndata: {told.data}\n\n"
