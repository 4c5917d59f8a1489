"""A plan's report, and the web page at `/`.

The page's files contain no user data, so they need no key; the page reads data through the API like any client.
"""

from __future__ import annotations

import gzip
import hashlib
from importlib.resources import files
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from api.http.problems import HttpProblem, problem_of_task_result
from api.http.requests import unpack_json
from api.http.routes.documents import read_packed_document
from api.http.routes.plans import PlanPath, find_plan
from api.http.schemas import PlanId
from api.http.security import Reader, ServiceDep
from planner.export.report import content_security_policy

router = APIRouter(tags=["reports"])

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
}
PAGE_FILES = {part.name: part for part in (files("api") / "web").iterdir()}
"""The page's files by name; script and style sheet are built from web/ (`make pages`)."""


@router.get(
    "/v1/plans/{plan}/report",
    tags=["plans"],
    response_class=Response,
    responses={200: {"content": {"text/html": {"schema": {"type": "string"}}, "application/json": {}}}},
)
def get_plan_report(
    caller: Reader,
    service: ServiceDep,
    plan: PlanPath,
    *,
    request: Request,
    compare_to: Annotated[
        PlanId | None, Query(description="The id of another plan of the model, to compare with.")
    ] = None,
) -> Response:
    """Return the plan as one HTML file that opens offline, or its data as JSON where the caller accepts JSON."""
    is_json = "application/json" in request.headers.get("accept", "")
    documents = [
        unpack_json(read_packed_document(service, find_plan(service, caller.tenant, plan_id)))
        for plan_id in (plan, compare_to)
        if plan_id is not None
    ]
    result = service.run_task(caller.tenant, "report", {"plans": documents, "form": "json" if is_json else "html"})
    if result.kind != "result":
        raise problem_of_task_result(result)
    if not is_json:
        headers = {"Content-Security-Policy": f"{content_security_policy()}; frame-ancestors 'none'", "Vary": "Accept"}
        return Response(unpack_json(result.payload), headers=headers, media_type="text/html; charset=utf-8")
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers = {"Content-Encoding": "gzip", "Vary": "Accept, Accept-Encoding"}
        return Response(result.payload, headers=headers, media_type="application/json")
    return Response(gzip.decompress(result.payload), headers={"Vary": "Accept"}, media_type="application/json")


@router.get("/", include_in_schema=False)
def show_page(request: Request) -> Response:
    """Return the web page."""
    return show_part(request, "index.html")


@router.get("/web/{name}", include_in_schema=False)
def show_part(request: Request, name: str) -> Response:
    """Return a file of the web page."""
    part = PAGE_FILES.get(name)
    if part is None:
        raise HttpProblem(404, "no-such-file", f"the page has no {name}")
    content = part.read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"Content-Security-Policy": CONTENT_SECURITY_POLICY, "Cache-Control": "no-cache", "ETag": tag}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=MEDIA_TYPES[name[name.rindex(".") :]])
