"""Error answers as RFC 9457 problem details.

`errors` names each fault by a JSON pointer into the request's body, as a URI fragment.
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
from starlette.exceptions import HTTPException

from api.jobs.database import UNAVAILABLE
from api.jobs.idempotency import IdempotencyConflict
from api.jobs.queue_quota import QueueFull
from api.jobs.worker_process import TaskResult
from api.service import ServiceBusy
from planner.errors import ShardplanError

log = logging.getLogger("shardplan.http")

MEDIA_TYPE = "application/problem+json"


class HttpProblem(Exception):
    """An error answer. `kind` is the end of the problem's type, `pointer` the place in the body, `more` further
    members.
    """

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


def problem_of_planner_error(error: ShardplanError, status: int = 422) -> HttpProblem:
    """Return the problem of an error of the planner, with `got` and `wanted` as members."""
    parts = {"got": error.got, "wanted": error.wanted, "pointer": error.pointer}
    return _refusal(status, type(error).__name__, str(error), parts=parts)


def _refusal(status: int, error_class: str, message: str, *, parts: Mapping[str, str | None]) -> HttpProblem:
    kind = re.sub(r"(?<!^)(?=[A-Z])", "-", error_class).lower()
    more: dict[str, Any] = {key: parts[key] for key in ("got", "wanted") if parts[key] is not None}
    return HttpProblem(status, kind, message, parts["pointer"] or "", **more)


def problem_of_task_result(result: TaskResult) -> HttpProblem:
    """Return the problem of a task that gave no result. A fault has the same type in whichever process it is found."""
    head = result.head
    if result.kind == "refused":
        return _refusal(422, head["error_class"], head["message"], parts=head)
    if result.kind == "exceeded":
        return HttpProblem(422, "limits-exceeded", head["error"], wanted="a smaller model or question")
    if result.kind == "killed":
        return HttpProblem(503, "task-killed", head["error"], headers={"Retry-After": "2"})
    if result.kind == "failed":
        return HttpProblem(500, "task-failed", head["error"])
    return HttpProblem(503, "shutting-down", "the service is shutting down", headers={"Retry-After": "5"})


def install_handlers(app: FastAPI) -> None:
    """Install handlers that turn expected errors into problems; RequestMiddleware handles the others."""
    app.add_exception_handler(HttpProblem, _handle_problem)
    app.add_exception_handler(ShardplanError, _handle_planner_error)
    app.add_exception_handler(HTTPException, _handle_http_error)
    app.add_exception_handler(RequestValidationError, _handle_invalid_parameter)
    app.add_exception_handler(IdempotencyConflict, _handle_idempotency_conflict)
    app.add_exception_handler(QueueFull, _handle_queue_full)
    app.add_exception_handler(ServiceBusy, _handle_service_busy)
    for error in UNAVAILABLE:
        app.add_exception_handler(error, _handle_database_error)


def _handle_problem(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HttpProblem)
    return error.response()


def _handle_planner_error(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ShardplanError)
    return problem_of_planner_error(error).response()


def _handle_http_error(request: Request, error: Exception) -> JSONResponse:
    """Handle the framework's own errors, such as an unknown path or method."""
    assert isinstance(error, HTTPException)
    kind = re.sub(r"[^a-z]+", "-", HTTPStatus(error.status_code).phrase.lower())
    detail = f"{request.method} {request.url.path}: {error.detail}"
    return HttpProblem(error.status_code, kind, detail, headers=error.headers).response()


def _handle_invalid_parameter(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    *_, name = first["loc"]
    return HttpProblem(422, "invalid-parameter", f"{name}: {first['msg']}", parameter=str(name)).response()


def _handle_idempotency_conflict(_request: Request, _error: Exception) -> JSONResponse:
    return HttpProblem(422, "idempotency-key-reused", "this Idempotency-Key was used with another body").response()


def _handle_queue_full(_request: Request, _error: Exception) -> JSONResponse:
    return HttpProblem(429, "queue-full", "too many plans are queued", headers={"Retry-After": "10"}).response()


def _handle_service_busy(_request: Request, _error: Exception) -> JSONResponse:
    return HttpProblem(503, "busy", "too many tasks are running", headers={"Retry-After": "2"}).response()


def _handle_database_error(_request: Request, error: Exception) -> JSONResponse:
    log.warning("database: %s", error)
    return HttpProblem(
        503, "database-unavailable", "the database does not answer", headers={"Retry-After": "5"}
    ).response()


def internal_error(request_id: str, error: Exception) -> JSONResponse:
    """Log an unexpected error under the request's id, and answer without its details."""
    log.error("%s failed", request_id, exc_info=error)
    return HttpProblem(500, "internal-error", f"internal error; request id {request_id}").response()
