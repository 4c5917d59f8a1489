"""The house itself: its hardware profiles, its limits, and how it is."""

from __future__ import annotations

import json
from dataclasses import asdict

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from api.http.plans import PAGE
from api.http.schemas import HardwareAnswer, HealthAnswer
from api.http.security import Admin, Reader, ServiceDep
from planner.choose import hardware
from planner.documents.reading import MAX_VALUES
from planner.export.formats import FORMATS
from planner.model.mesh import MAX_AXES, MAX_DEVICES

router = APIRouter(tags=["house"])

FIXED = {"values": MAX_VALUES, "name_letters": 1024, "mesh_axes": MAX_AXES, "mesh_devices": MAX_DEVICES, "page": PAGE}
"""Limits that documents have everywhere, and the longest page."""


@router.get("/v1/hardware")
def list_hardware(_caller: Reader) -> HardwareAnswer:
    """The profiles that plans are priced with."""
    profiles = ((name, json.loads(hardware.source_text(name))) for name in hardware.names())
    return HardwareAnswer(default=hardware.DEFAULT, hardware=[{**profile, "name": name} for name, profile in profiles])


@router.get("/v1/limits")
def show_limits(_caller: Reader, service: ServiceDep) -> dict[str, int | float | list[str]]:
    """What a request may be at most, what a solve may use, and the formats that plans are exported in."""
    return {**asdict(service.limits), **FIXED, "export_formats": [*FORMATS]}


@router.get("/healthz")
async def is_alive() -> HealthAnswer:
    """The process answers."""
    return HealthAnswer(status="ok")


@router.get("/readyz", responses={503: {"model": HealthAnswer}})
def is_ready(service: ServiceDep, response: Response) -> HealthAnswer:
    """The database answers, and a worker was seen."""
    checks = {"database": service.store.answers()}
    checks["worker"] = checks["database"] and service.has_worker
    if all(checks.values()):
        return HealthAnswer(status="ok", checks=checks)
    response.status_code = 503
    return HealthAnswer(status="unavailable", checks=checks)


@router.get("/openapi.json", include_in_schema=False)
def show_description(request: Request) -> JSONResponse:
    """What can be asked here, as OpenAPI."""
    return JSONResponse(request.app.openapi())


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def show_metrics(_caller: Admin, service: ServiceDep) -> Response:
    """Counts for Prometheus."""
    text = service.metrics.text(service.records.counts())
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
