"""Builds the service's OpenAPI 3.1 description: FastAPI's, with our documents, examples and problems added."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from api.http.requests import PlanRequest
from api.http.requests_capacity import CapacityRequest
from api.http.requests_reshard import ReshardRequest
from api.http.schemas import ComparisonRequest, ProblemDetails, ValidationRequest, WebhookRequest
from planner.documents.pipeline_sections import PipelineDocument
from planner.documents.schemas import PlanDocument

REF = "#/components/schemas/{model}"
DOCUMENT_SCHEMAS: tuple[type[BaseModel], ...] = (
    PlanRequest,
    ValidationRequest,
    ComparisonRequest,
    ReshardRequest,
    CapacityRequest,
    WebhookRequest,
    PlanDocument,
    PipelineDocument,
    ProblemDetails,
)

GRAPH = {
    "format": "shardplan.graph",
    "version": 1,
    "name": "layer",
    "inputs": [
        {"id": "x", "kind": "input", "name": "x", "shape": [8, 16], "dtype": "f32"},
        {"id": "w", "kind": "parameter", "name": "w", "shape": [32, 16], "dtype": "f32"},
    ],
    "nodes": [{"id": "y", "op": "linear", "inputs": ["x", "w"], "outputs": [{"shape": [8, 32], "dtype": "f32"}]}],
    "outputs": ["y"],
}
RESHARD = {"mesh": "2x3", "shape": [6, 6], "dtype": "f32", "source": [["0"], ["1"]], "target": [["1"], ["0"]]}
EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    PlanRequest: {"graph": GRAPH, "mesh": "dp=2,tp=4", "hardware": "h100-sxm", "request": {"time_limit_s": 10.0}},
    ValidationRequest: {"plan": "0" * 64},
    ComparisonRequest: {"base": "0" * 64, "new": "1" * 64},
    ReshardRequest: RESHARD,
    WebhookRequest: {"url": "https://hooks.example.com/shardplan"},
    CapacityRequest: {
        "graphs": [GRAPH],
        "devices": "2..4",
        "hardware": [{"name": "h100-sxm", "price_per_device_hour": 2.5}],
    },
}
PROBLEMS = {
    400: "The body is not JSON, or damaged.",
    401: "Missing or invalid API key.",
    403: "The key's scope does not allow this.",
    404: "Not found, or owned by another tenant.",
    408: "Timed out reading the body.",
    409: "The plan has no document.",
    413: "Too large.",
    415: "Not JSON by its Content-Type, or an unknown Content-Encoding.",
    421: "Without keys, the Host header must name loopback.",
    422: "The request is well-formed and invalid.",
    429: "Too many requests, or the queue is full.",
    500: "Internal error.",
    503: "Temporarily unavailable.",
}


def describe_body(model: type[BaseModel], *others: str) -> dict[str, Any]:
    """Return the description of a body that the handler reads itself; `others` are content types besides JSON."""
    content = {"schema": {"$ref": REF.format(model=model.__name__)}, "example": EXAMPLES[model]}
    binary_content = {kind: {"schema": {"type": "string", "format": "binary"}} for kind in others}
    return {"requestBody": {"required": True, "content": {"application/json": content, **binary_content}}}


def build_openapi(app: FastAPI) -> dict[str, Any]:
    """Return the description; it is built once."""
    if app.openapi_schema is None:
        description = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        _, schemas = models_json_schema([(model, "validation") for model in DOCUMENT_SCHEMAS], ref_template=REF)
        schemas_by_name = description.setdefault("components", {}).setdefault("schemas", {})
        schemas_by_name |= {name: schema for name, schema in schemas["$defs"].items() if name not in schemas_by_name}
        for operations in description["paths"].values():
            for operation in operations.values():
                _add_problems(operation)
                _drop_query_requirements(operation)
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas_by_name.pop(unused, None)
        app.openapi_schema = description
    return app.openapi_schema


def _add_problems(operation: dict[str, Any]) -> None:
    """Add every problem to an operation, because any operation can end in any of them."""
    content = {"application/problem+json": {"schema": {"$ref": REF.format(model="ProblemDetails")}}}
    problems = {str(status): {"description": about, "content": content} for status, about in PROBLEMS.items()}
    operation["responses"] = {**operation["responses"], **problems}


def _drop_query_requirements(operation: dict[str, Any]) -> None:
    """Drop defaults of query parameters of an operation with a body, so that generated clients do not send them with
    JSON.
    """
    if "requestBody" in operation:
        for parameter in operation.get("parameters", ()):
            parameter["schema"].pop("default", None)
