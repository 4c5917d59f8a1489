"""Who asks, what they may, and the headers of every answer.

Without keys the service is for this machine alone: it listens on loopback, and answers only where the Host header names
loopback, so that no web page can reach it under a name of its own. From the first key on, every operation wants one.
"""

from __future__ import annotations

import logging
import time
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
"""Who asks where no keys are wanted."""
METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}

bearer = HTTPBearer(auto_error=False, description="A key that `shardplan keys create` has made.")


async def get_service(request: Request) -> Service:
    """Without a thread of its own: nothing waits here."""
    found: Service = request.app.state.service
    return found


ServiceDep = Annotated[Service, Depends(get_service)]


def _authenticate(request: Request, service: Service) -> ApiKey:
    if not (service.settings.keys_required or service.keys.any_exist):
        host = request.url.hostname or ""
        if not is_loopback(host):
            raise HttpProblem(421, "misdirected-request", f"Host {host}", wanted="127.0.0.1 or localhost")
        return LOCAL_KEY
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    found = service.keys.authenticate(text.strip()) if scheme.lower() == "bearer" else None
    if found is None:
        raise HttpProblem(401, "unauthorized", "a valid API key is wanted", headers={"WWW-Authenticate": "Bearer"})
    return found


class RequireScope:
    """The dependency that finds the key, and refuses one that may not do this, or asks too often."""

    def __init__(self, scope: KeyScope) -> None:
        self.scope = scope

    async def __call__(self, request: Request, service: ServiceDep, _shown: Annotated[Any, Depends(bearer)]) -> ApiKey:
        key = await read_database(service, _authenticate, request, service)
        request.app.state.rate_limiter.check(key.id)
        if not key.allows(self.scope):
            raise HttpProblem(403, "forbidden", f"the key's scope is {key.scope}", wanted=self.scope)
        return key


Reader = Annotated[ApiKey, Depends(RequireScope("read"))]
Planner = Annotated[ApiKey, Depends(RequireScope("plan"))]
Admin = Annotated[ApiKey, Depends(RequireScope("admin"))]


async def _read_json_body(request: Request, service: ServiceDep, _key: Planner) -> bytes:
    """Nobody's body is read before the key is known."""
    return (await read_body(request, service.limits)).data


async def _read_model_body(request: Request, service: ServiceDep, _key: Planner) -> RequestBody:
    return await read_body(request, service.limits, (JSON, *IMPORTERS))


Body = Annotated[bytes, Depends(_read_json_body)]
ModelBody = Annotated[RequestBody, Depends(_read_model_body)]
"""JSON, or a model in another tool's form."""


class RequestMiddleware:
    """Around everything: a request's id, the headers, one line in the log, one count."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        name, began, begun, status = uuid4().hex[:16], time.monotonic(), False, 500
        set_attribute(REQUEST, name)

        async def framed(message: Message) -> None:
            nonlocal begun, status
            if message["type"] == "http.response.start":
                begun, status = True, message["status"]
                held = {key.lower() for key, _ in message["headers"]}
                more = {**SECURITY_HEADERS, "x-request-id": name}
                added = [(key.encode(), text.encode()) for key, text in more.items() if key.encode() not in held]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        try:
            await self.app(scope, receive, framed)
        except Exception as error:
            if begun:
                raise
            await internal_error(name, error)(scope, receive, framed)
        finally:
            method = scope["method"] if scope["method"] in METHODS else "other"
            scope["app"].state.service.metrics.count_request(method, status)
            took = 1000 * (time.monotonic() - began)
            log.info("%s %s %s %d %.1f ms", name, method, scope["path"].encode("unicode_escape").decode(), status, took)
