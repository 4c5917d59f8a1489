"""The service's answers, and the request bodies that are not documents of the planner."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Discriminator, Field, JsonValue, Tag

from api.jobs.plan_repository import PlanRecord
from api.options import ValidationOptions
from api.webhooks.store import Webhook
from api.webhooks.url_policy import MAX_URL
from planner.documents.pipeline_sections import PipelineDocument
from planner.documents.pipelines import is_pipeline
from planner.documents.schemas import PlanDocument
from planner.documents.strict_model import Name, StrictModel

Status = Literal["queued", "running", "optimal", "feasible", "infeasible", "timeout", "cancelled", "failed"]
SOLVED: tuple[str, ...] = ("optimal", "feasible", "infeasible")
"""Statuses of plans that have a document."""

PlanId = Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="SHA-256 of all that determines the plan.")]


def _tag_plan(reference: Any) -> str:
    """Return which kind of reference to a plan a JSON value is."""
    return "id" if isinstance(reference, str) else "pipeline" if is_pipeline(reference) else "plan"


PlanReference = Annotated[
    Annotated[PlanDocument, Tag("plan")] | Annotated[PipelineDocument, Tag("pipeline")] | Annotated[PlanId, Tag("id")],
    Field(discriminator=Discriminator(_tag_plan), description="A plan document, or the id of a plan kept here."),
]


class ValidationRequest(ValidationOptions):
    """A plan to run on logical devices and to compare with its unsharded graph."""

    plan: PlanReference
    backend: Annotated[Literal["numpy", "cupy"], Field(description="What runs the logical devices.")] = "numpy"


class ComparisonRequest(StrictModel):
    """Two plans to compare."""

    base: PlanReference
    new: PlanReference
    fail_on: Annotated[
        str | None,
        Field(max_length=4096, description="Limits on what may rise, such as `time>5%,memory[h.0.mlp]>1GiB`."),
    ] = None


class WebhookRequest(StrictModel):
    """An address to call when one of your plans ends."""

    url: Annotated[str, Field(min_length=1, max_length=MAX_URL, description="A public https address.")]


class ResponseModel(BaseModel):
    """Models of answers; FastAPI does not validate them again."""


class PlanLinks(ResponseModel):
    """Paths of what belongs to a plan, or to a capacity question; `document` is null until there is one."""

    self: str
    events: str
    document: str | None


class PlanResponse(ResponseModel):
    """The state of a plan. `incumbent_s` is the step time of the best plan found, `bound_s` a proven lower bound."""

    id: PlanId
    status: Status
    name: str
    incumbent_s: float | None
    bound_s: float | None
    gap: float | None
    error: str | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    links: PlanLinks

    @classmethod
    def of(cls, record: PlanRecord) -> PlanResponse:
        path = f"/v1/plans/{record.id}"
        numbers = {key: record.progress.get(key) for key in ("incumbent_s", "bound_s", "gap")}
        return cls.model_validate(
            {
                **{key: getattr(record, key) for key in ("id", "status", "name", "error")},
                **numbers,
                **{key: _to_datetime(getattr(record, key)) for key in ("created_at", "started_at", "ended_at")},
                "links": {
                    "self": path,
                    "events": f"{path}/events",
                    "document": f"{path}/document" if record.status in SOLVED else None,
                },
            }
        )


class PlanPage(ResponseModel):
    """A page of plans, newest first; `next` is the path of the next page."""

    plans: list[PlanResponse]
    next: str | None


class TotalChange(ResponseModel):
    """A number of both plans; change = new - base, null where a plan lacks it."""

    base: float | None
    new: float | None
    change: float | None


class ShardingChange(ResponseModel):
    """A value whose sharding differs; null where a plan does not have the value."""

    value: str
    base_name: str | None
    base: dict[str, JsonValue] | None
    new: dict[str, JsonValue] | None


class ComparisonResponse(ResponseModel):
    """The differences between two plans: totals (change = new - base), values, ops, terms of time, memory at the peaks.

    The `change_ps` of all terms add up to the change of the step. `base_name` is the name in the base, where that
    differs.

    With `fail_on` there are also `graphs_equal`, `limits` with the figure that each limit applies to, and `exceeded`:
    every exceeded limit with the terms that add up to its change, and the edits nearest to it. The service knows no
    waivers. A plan of another version is planned again first; `replanned` shows how its figures changed, and that
    change is not part of the comparison.

    `stages`, where a plan is in pipeline stages: those of both, and the cuts that are elsewhere (`moved_cuts`).
    """

    base: str
    new: str
    versions: dict[str, dict[str, int | str]]
    totals: dict[str, TotalChange]
    changes: list[ShardingChange]
    options: list[dict[str, JsonValue]]
    terms: list[dict[str, JsonValue]]
    memory: dict[str, JsonValue] | None
    graphs_equal: bool | None = None
    limits: list[dict[str, JsonValue]] | None = None
    exceeded: list[dict[str, JsonValue]] | None = None
    waived: list[dict[str, JsonValue]] | None = None
    unused_waivers: list[dict[str, JsonValue]] | None = None
    notes: list[str] | None = None
    replanned: list[dict[str, JsonValue]] | None = None
    stages: dict[str, JsonValue] | None = None


class HardwareResponse(ResponseModel):
    """The built-in profiles with the source of every number, and the name of the default profile."""

    default: str
    hardware: list[dict[str, JsonValue]]


class ModelAnswer(ResponseModel):
    """A built-in model with its number of layers and the longest sequence that it was published for."""

    name: str
    layers: int
    max_seq: int


class ModelsAnswer(ResponseModel):
    """The built-in models, and the optimizers of their training steps."""

    models: list[ModelAnswer]
    optimizers: list[str]


class HealthResponse(ResponseModel):
    """The checks that were made, and whether all passed."""

    status: Literal["ok", "unavailable"]
    checks: dict[str, bool] = {}


class WebhookResponse(ResponseModel):
    """A webhook without its secret."""

    id: str
    url: str
    created_at: datetime

    @classmethod
    def of(cls, hook: Webhook) -> WebhookResponse:
        return cls.model_validate({"id": hook.id, "url": hook.url, "created_at": _to_datetime(hook.created_at)})


class CreatedWebhook(WebhookResponse):
    """A new webhook with the secret that signs its deliveries; the secret cannot be shown again."""

    secret: str


class WebhookList(ResponseModel):
    """All webhooks of a tenant."""

    webhooks: list[WebhookResponse]


class ErrorDetail(ResponseModel):
    """One fault in the request's body."""

    pointer: str
    detail: str


class ProblemDetails(ResponseModel):
    """RFC 9457. `pointer`: a JSON pointer (RFC 6901) into the request's body, as a URI fragment."""

    type: Annotated[str, Field(examples=["urn:shardplan:problem:invalid-document"])]
    title: Name
    status: int
    detail: str
    got: str | None = None
    wanted: str | None = None
    errors: list[ErrorDetail] = []


def _to_datetime(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


class SweepProgress(ResponseModel):
    """What a search knows: the candidates that are decided, of which some were planned, and the frontier so far.

    `running` are the meshes that are planned now. Cost and time are of a step, or of a token where the graphs have
    tokens.
    """

    candidates: int
    decided: int
    planned: int
    running: list[str]
    frontier: list[dict[str, JsonValue]]


class SweepResponse(ResponseModel):
    """The state of a capacity question; `progress` is null until the search has begun.

    It ends `complete`, or `incomplete` where its time limit left candidates unplanned.
    """

    id: PlanId
    status: Literal["queued", "running", "complete", "incomplete", "cancelled", "failed"]
    name: str
    progress: SweepProgress | None
    error: str | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    links: PlanLinks

    @classmethod
    def of(cls, record: PlanRecord) -> SweepResponse:
        path, has_document = f"/v1/capacity/{record.id}", record.status in ("complete", "incomplete")
        return cls.model_validate(
            {
                **{key: getattr(record, key) for key in ("id", "status", "name", "error")},
                "progress": record.progress or None,
                **{key: _to_datetime(getattr(record, key)) for key in ("created_at", "started_at", "ended_at")},
                "links": {
                    "self": path,
                    "events": f"{path}/events",
                    "document": f"{path}/document" if has_document else None,
                },
            }
        )


class CapacityResponse(ResponseModel):
    """Every candidate with its outcome, and the frontier; cost and time are of a step or of a token."""

    id: PlanId
    unit: Literal["step", "token"]
    cost_unit: Literal["price", "device_s"]
    run_tokens: float | None
    complete: bool
    planned: int
    graphs: list[dict[str, Any]]
    hardware: list[dict[str, Any]]
    candidates: list[dict[str, Any]]
    frontier: list[dict[str, Any]]
    smallest_feasible: dict[str, Any] | None
    cheapest: dict[str, Any] | None
    fastest: dict[str, Any] | None
