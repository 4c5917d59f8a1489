"""Plan documents by id or as they were sent, and the programs in them exported."""

from __future__ import annotations

import gzip
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import AfterValidator

from api.asking import pointed, unpacked
from api.http.plans import PlanPath, found
from api.http.problems import Problem, of_child
from api.http.schemas import DONE
from api.http.security import Reader, ServiceDep
from api.records import Record
from api.service import Service
from planner.documents.plans import checked_plan
from planner.documents.schemas import PlanDocument
from planner.export.formats import FORMATS

router = APIRouter(prefix="/v1/plans", tags=["plans"])


def kept(service: Service, record: Record) -> bytes:
    """The packed document of a plan. Raises Problem 409 where it has none."""
    document = service.records.document(record) if record.status in DONE else None
    if document is None:
        cause = f": {record.cause}" if record.cause else ""
        raise Problem(409, "no-document", f"the plan is {record.status}{cause}", wanted=", ".join(DONE))
    return document


def plan_at(service: Service, tenant: str, given: Any) -> dict[str, Any]:
    """The JSON of a plan that a request holds, or names by its id."""
    if isinstance(given, str):
        document: dict[str, Any] = unpacked(kept(service, found(service, tenant, given)))
        return document
    return dict(given)


def checked_at(service: Service, tenant: str, given: Any, pointer: str) -> PlanDocument:
    """The plan document that a request holds, or names by its id. Raises InvalidDocument."""
    with pointed(pointer):
        return checked_plan(plan_at(service, tenant, given), "body")


def _known(form: str) -> str:
    if form not in FORMATS:
        raise ValueError(f"got {form[:50]}, wanted one of {', '.join(FORMATS)}")
    return form


def _schema(media: str) -> dict[str, str]:
    """Of what an export in this kind of text is."""
    return {"type": "object" if media == "application/json" else "string"}


@router.get(
    "/{plan}/document",
    response_class=Response,
    responses={
        200: {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/PlanDocument"}}}},
        304: {"description": "You have it."},
    },
)
def show_document(caller: Reader, service: ServiceDep, plan: PlanPath, request: Request) -> Response:
    """The plan document."""
    record = found(service, caller.tenant, plan)
    packed = kept(service, record)
    headers = {"ETag": f'"{record.id}.{record.run}"', "Cache-Control": "private, no-cache", "Vary": "Accept-Encoding"}
    if headers["ETag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(packed, headers={**headers, "Content-Encoding": "gzip"}, media_type="application/json")
    return Response(gzip.decompress(packed), headers=headers, media_type="application/json")


@router.get(
    "/{plan}/export",
    response_class=Response,
    responses={200: {"content": {home.media: {"schema": _schema(home.media)} for home in FORMATS.values()}}},
)
def export_plan(
    caller: Reader,
    service: ServiceDep,
    plan: PlanPath,
    form: Annotated[str, Query(alias="format", json_schema_extra={"enum": [*FORMATS]}), AfterValidator(_known)],
) -> Response:
    """The plan's program in another tool's language, as `shardplan export` writes it. Refused (422) where the language
    has no words for what the program does, or the service lacks the tool's package."""
    document = unpacked(kept(service, found(service, caller.tenant, plan)))
    ended = service.answer("export", {"plan": document, "format": form})
    if ended.kind != "result":
        raise of_child(ended)
    return Response(unpacked(ended.payload), media_type=f"{FORMATS[form].media}; charset=utf-8")
