"""The system itself: hardware profiles, limits, health, metrics."""

from __future__ import annotations

import json
from dataclasses import asdict

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from api.http.routes.plans import MAX_PAGE
from api.http.schemas import HardwareResponse, HealthResponse
from api.http.security import Admin, Reader, ServiceDep
from planner.choose import hardware
from planner.documents.json_reader import MAX_VALUES
from planner.export.formats import FORMATS
from planner.ir.mesh import MAX_AXES, MAX_DEVICES

router = APIRouter(tags=["system"])

FIXED_LIMITS = {
    "values": MAX_VALUES,
    "name_chars": 1024,
    "mesh_axes": MAX_AXES,
    "mesh_devices": MAX_DEVICES,
    "page_plans": MAX_PAGE,
}
"""Limits of all documents, and the longest page."""


@router.get("/v1/hardware")
def list_hardware(_caller: Reader) -> HardwareResponse:
    """List the profiles that plans are priced with."""
    profiles = ((name, json.loads(hardware.read_source(name))) for name in hardware.list_profiles())
    return HardwareResponse(
        default=hardware.DEFAULT_PROFILE, hardware=[{**profile, "name": name} for name, profile in profiles]
    )


@router.get("/v1/limits")
def get_limits(_caller: Reader, service: ServiceDep) -> dict[str, int | float | list[str]]:
    """Return the limits of requests and solves, and the formats that plans are exported in."""
    return {**asdict(service.limits), **FIXED_LIMITS, "export_formats": [*FORMATS]}


@router.get("/healthz", responses={503: {"model": HealthResponse}})
async def get_health(service: ServiceDep, response: Response) -> HealthResponse:
    """Return whether the process answers and all of its threads live."""
    return _answer_checks(response, {"threads": service.is_alive})


@router.get("/readyz", responses={503: {"model": HealthResponse}})
def get_readiness(service: ServiceDep, response: Response) -> HealthResponse:
    """Return whether the database answers and a worker is alive."""
    is_reachable = service.store.is_reachable()
    return _answer_checks(response, {"database": is_reachable, "worker": is_reachable and service.has_worker})


def get_worker_readiness(service: ServiceDep, response: Response) -> HealthResponse:
    """Return whether the database answers and no worker of this process failed in its last step."""
    return _answer_checks(response, {"database": service.store.is_reachable(), "worker": service.is_working})


def _answer_checks(response: Response, checks: dict[str, bool]) -> HealthResponse:
    if all(checks.values()):
        return HealthResponse(status="ok", checks=checks)
    response.status_code = 503
    return HealthResponse(status="unavailable", checks=checks)


@router.get("/openapi.json", include_in_schema=False)
def show_description(request: Request) -> JSONResponse:
    """Return the OpenAPI description."""
    return JSONResponse(request.app.openapi())


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def get_metrics(_caller: Admin, service: ServiceDep) -> Response:
    """Return the metrics of this process for Prometheus."""
    return Response(service.metrics.format(), media_type="text/plain; version=0.0.4; charset=utf-8")
