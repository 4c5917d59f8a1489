"""Errors as problem details (RFC 9457): every answer that is an error, whoever noticed it.

`errors` names each fault with a JSON pointer into the request's body, as a URI fragment, as the RFC's own example does.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException

from api.children import Ended
from api.jobs import KeyReused, LineFull
from api.service import Busy
from planner.errors import ShardplanError

log = logging.getLogger("shardplan.http")

MEDIA_TYPE = "application/problem+json"


class Problem(Exception):
    """An error to answer with. `kind` ends the problem's type; faults are (pointer, what is wrong there)."""

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        pointer: str | None = None,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status, self.kind, self.detail, self.pointer = status, kind, detail, pointer
        self.headers, self.more = headers, more

    def response(self) -> JSONResponse:
        content: dict[str, Any] = {
            "type": f"urn:shardplan:problem:{self.kind}",
            "title": self.kind.replace("-", " ").capitalize(),
            "status": self.status,
            "detail": self.detail,
            **self.more,
        }
        if self.pointer is not None:
            content["errors"] = [{"pointer": "#" + quote(self.pointer, safe="/~!$&'()*+,;=:@?"), "detail": self.detail}]
        return JSONResponse(content, self.status, self.headers, MEDIA_TYPE)


def of_planner(error: ShardplanError, status: int = 422) -> Problem:
    """What the planner refuses: `got` and `wanted` beside the words."""
    parts: dict[str, Any] = {"got": error.got, "wanted": error.wanted}
    kind = re.sub(r"(?<!^)(?=[A-Z])", "-", type(error).__name__).lower()
    return Problem(status, kind, str(error), error.pointer or "", **{k: v for k, v in parts.items() if v is not None})


def of_child(ended: Ended) -> Problem:
    """Work that a caller waited for, and that gave no result."""
    if ended.kind == "refused":
        told = ended.head
        parts = {key: told[key] for key in ("got", "wanted") if told[key] is not None}
        return Problem(422, "refused", told["message"], told["pointer"] or "", **parts)
    if ended.kind in ("failed", "killed"):
        return Problem(500, "work-failed", ended.head["cause"])
    return Problem(503, "shutting-down", "the service is being stopped", headers={"Retry-After": "5"})


def install(app: FastAPI) -> None:
    """All errors that are foreseen as problems; the frame takes the others."""
    app.add_exception_handler(Problem, _problem)
    app.add_exception_handler(ShardplanError, _planner)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _parameters)
    app.add_exception_handler(KeyReused, _reused)
    app.add_exception_handler(LineFull, _full)
    app.add_exception_handler(Busy, _busy)
    app.add_exception_handler(OperationalError, _database)


def _problem(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Problem)
    return error.response()


def _planner(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ShardplanError)
    return of_planner(error).response()


def _http(request: Request, error: Exception) -> JSONResponse:
    """The framework's own: no such path, no such method."""
    assert isinstance(error, HTTPException)
    kind = re.sub(r"[^a-z]+", "-", HTTPStatus(error.status_code).phrase.lower())
    detail = f"{request.method} {request.url.path}: {error.detail}"
    return Problem(error.status_code, kind, detail, headers=error.headers).response()


def _parameters(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    *_, name = first["loc"]
    return Problem(422, "invalid-parameter", f"{name}: {first['msg']}", parameter=str(name)).response()


def _reused(_request: Request, _error: Exception) -> JSONResponse:
    return Problem(422, "idempotency-key-reused", "this Idempotency-Key came with another body before").response()


def _full(_request: Request, _error: Exception) -> JSONResponse:
    return Problem(429, "line-full", "too many plans are waiting", headers={"Retry-After": "10"}).response()


def _busy(_request: Request, _error: Exception) -> JSONResponse:
    return Problem(503, "busy", "too much is being answered at once", headers={"Retry-After": "2"}).response()


def _database(_request: Request, error: Exception) -> JSONResponse:
    log.warning("database: %s", error)
    return Problem(503, "database-unavailable", "the database does not answer", headers={"Retry-After": "5"}).response()


def unforeseen(name: str, error: Exception) -> JSONResponse:
    """Of what should not happen: told to the log under the request's id, and not to the caller."""
    log.error("%s failed", name, exc_info=error)
    return Problem(500, "internal-error", "a fault of the service; it is in its log").response()
