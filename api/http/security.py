"""Authentication, scopes, and the headers of every answer.

Without API keys the service serves this machine only: it listens on loopback and requires a loopback Host header, so
that no web page can reach it under another name (DNS rebinding). Once a key exists, every operation requires one.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any
from uuid import uuid4

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.http.database_access import read_database
from api.http.limits import JSON, RequestBody, read_body
from api.http.problems import HttpProblem, internal_error
from api.jobs.api_keys import ApiKey
from api.jobs.api_keys import Scope as KeyScope
from api.model_formats import IMPORTERS
from api.service import Service
from api.settings import is_loopback
from api.tracing import REQUEST, set_attribute

log = logging.getLogger("shardplan.http")

LOCAL_KEY = ApiKey("local", "local", "admin", 0.0)
"""The key of every caller where no keys are required."""
METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}

HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[a-zA-Z0-9.-]+)(?::\d{1,5})?")
"""A Host header: an address or a name, and a port. What else a URL may hold, such as a user, is none."""
bearer = HTTPBearer(auto_error=False, description="A key made by `shardplan keys create`.")


async def get_service(request: Request) -> Service:
    """Return the service. Async, so that FastAPI runs it without a thread."""
    service: Service = request.app.state.service
    return service


ServiceDep = Annotated[Service, Depends(get_service)]


def _authenticate(request: Request, service: Service) -> ApiKey:
    if not (service.settings.keys_required or service.keys.any_exist):
        host = request.headers.get("host", "")
        name = HOST.fullmatch(host)
        if name is None or not is_loopback(name[1]):
            raise HttpProblem(421, "misdirected-request", f"Host {host}", wanted="127.0.0.1 or localhost")
        return LOCAL_KEY
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    key = service.keys.authenticate(text.strip()) if scheme.lower() == "bearer" else None
    if key is None:
        raise HttpProblem(401, "unauthorized", "missing or invalid API key", headers={"WWW-Authenticate": "Bearer"})
    return key


class RequireScope:
    """A dependency that authenticates the caller, and checks the key's rate and scope."""

    def __init__(self, scope: KeyScope) -> None:
        self.scope = scope

    # `_bearer` only makes the OpenAPI description show the scheme; `_authenticate` reads the header.
    async def __call__(self, request: Request, service: ServiceDep, _bearer: Annotated[Any, Depends(bearer)]) -> ApiKey:
        key = await read_database(service, _authenticate, request, service)
        request.app.state.rate_limiter.check(key.id)
        if not key.allows(self.scope):
            raise HttpProblem(403, "forbidden", f"the key's scope is {key.scope}", wanted=self.scope)
        return key


Reader = Annotated[ApiKey, Depends(RequireScope("read"))]
Planner = Annotated[ApiKey, Depends(RequireScope("plan"))]
Admin = Annotated[ApiKey, Depends(RequireScope("admin"))]


async def is_allowed(request: Request, service: Service) -> bool:
    """Return whether the caller of a request would be let in now: keys are revoked while answers are streamed."""
    try:
        await read_database(service, _authenticate, request, service)
    except HttpProblem:
        return False
    return True


async def _read_json_body(request: Request, service: ServiceDep, key: Planner) -> AsyncIterator[bytes]:
    """Read a JSON body after authentication, because the key is a parameter. It counts until the request ends."""
    with request.app.state.bodies.open(key.tenant) as held:
        yield (await read_body(request, service.limits, held)).data


async def _read_model_body(request: Request, service: ServiceDep, key: Planner) -> AsyncIterator[RequestBody]:
    with request.app.state.bodies.open(key.tenant) as held:
        yield await read_body(request, service.limits, held, kinds=(JSON, *IMPORTERS))


Body = Annotated[bytes, Depends(_read_json_body)]
ModelBody = Annotated[RequestBody, Depends(_read_model_body)]
"""A JSON body, or a model in another tool's format."""


class RequestMiddleware:
    """Adds a request id and security headers, logs one line and counts the request."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id, started_at, has_started, status = uuid4().hex[:16], time.monotonic(), False, 500
        set_attribute(REQUEST, request_id)

        async def send_with_headers(message: Message) -> None:
            nonlocal has_started, status
            if message["type"] == "http.response.start":
                has_started, status = True, message["status"]
                present = {key.lower() for key, _ in message["headers"]}
                headers = {**SECURITY_HEADERS, "x-request-id": request_id}
                added = [(key.encode(), text.encode()) for key, text in headers.items() if key.encode() not in present]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        try:
            await self.app(scope, receive, send_with_headers)
        except Exception as error:
            if has_started:
                raise
            await internal_error(request_id, error)(scope, receive, send_with_headers)
        finally:
            method = scope["method"] if scope["method"] in METHODS else "other"
            seconds = time.monotonic() - started_at
            scope["app"].state.service.metrics.count_request(method, status, seconds)
            log.info(
                "%s %s %s %d %.1f ms",
                request_id,
                method,
                scope["path"].encode("unicode_escape").decode(),
                status,
                1000 * seconds,
            )
