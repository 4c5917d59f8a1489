"""Plan documents by id or as sent, and exports of their programs."""

from __future__ import annotations

import gzip
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import AfterValidator

from api.http.problems import HttpProblem, problem_of_task_result
from api.http.requests import at_pointer, unpack_json
from api.http.routes.plans import PlanPath, find_plan
from api.http.schemas import SOLVED
from api.http.security import Reader, ServiceDep
from api.jobs.plan_repository import PlanRecord
from api.service import Service
from planner.documents.pipeline_sections import AnyPlanDocument
from planner.documents.pipelines import parse_any_plan
from planner.export.formats import FORMATS

DOCUMENT_KINDS = [{"$ref": f"#/components/schemas/{kind}"} for kind in ("PlanDocument", "PipelineDocument")]
router = APIRouter(prefix="/v1/plans", tags=["plans"])


def read_packed_document(service: Service, record: PlanRecord) -> bytes:
    """Return a plan's document, compressed. Raises HttpProblem 409 where the plan has none."""
    document = service.plans.document(record) if record.status in SOLVED else None
    if document is None:
        error = f": {record.error}" if record.error else ""
        raise HttpProblem(409, "no-document", f"the plan is {record.status}{error}", wanted=", ".join(SOLVED))
    return document


def resolve_plan(service: Service, tenant: str, reference: Any) -> dict[str, Any]:
    """Return the plan document in a request, or the one whose id the request holds."""
    if isinstance(reference, str):
        document: dict[str, Any] = unpack_json(read_packed_document(service, find_plan(service, tenant, reference)))
        return document
    return dict(reference)


def resolve_plan_document(service: Service, tenant: str, reference: Any, *, pointer: str) -> AnyPlanDocument:
    """Return the checked plan document in a request, or the one whose id it holds. Raises InvalidDocument."""
    with at_pointer(pointer):
        return parse_any_plan(resolve_plan(service, tenant, reference), "body")


def _check_format(form: str) -> str:
    if form not in FORMATS:
        raise ValueError(f"got {form[:50]}, wanted one of {', '.join(FORMATS)}")
    return form


def _export_schema(media: str) -> dict[str, str]:
    """Return the JSON Schema of an export with this media type."""
    return {"type": "object" if media == "application/json" else "string"}


@router.get(
    "/{plan}/document",
    response_class=Response,
    responses={
        200: {"content": {"application/json": {"schema": {"oneOf": DOCUMENT_KINDS}}}},
        304: {"description": "Not modified."},
    },
)
def get_plan_document(caller: Reader, service: ServiceDep, plan: PlanPath, *, request: Request) -> Response:
    """Return the plan document."""
    record = find_plan(service, caller.tenant, plan)
    packed = read_packed_document(service, record)
    headers = {
        "ETag": f'"{record.id}.{record.generation}"',
        "Cache-Control": "private, no-cache",
        "Vary": "Accept-Encoding",
    }
    if headers["ETag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(packed, headers={**headers, "Content-Encoding": "gzip"}, media_type="application/json")
    return Response(gzip.decompress(packed), headers=headers, media_type="application/json")


@router.get(
    "/{plan}/export",
    response_class=Response,
    responses={200: {"content": {entry.media: {"schema": _export_schema(entry.media)} for entry in FORMATS.values()}}},
)
def export_plan(
    caller: Reader,
    service: ServiceDep,
    plan: PlanPath,
    *,
    form: Annotated[
        str,
        Query(alias="format", json_schema_extra={"enum": [*FORMATS]}, description="The language of the export."),
        AfterValidator(_check_format),
    ],
) -> Response:
    """Return the plan's program in another tool's language, as `shardplan export` writes it.

    Returns 422 where the language cannot express the program, or the service lacks the tool's package.
    """
    document = unpack_json(read_packed_document(service, find_plan(service, caller.tenant, plan)))
    result = service.run_task(caller.tenant, "export", {"plan": document, "format": form})
    if result.kind != "result":
        raise problem_of_task_result(result)
    return Response(unpack_json(result.payload), media_type=f"{FORMATS[form].media}; charset=utf-8")
