"""Webhooks, which are called when a plan has ended. `api/webhooks` defines deliveries and their signatures."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from api.http.limits import parse_body
from api.http.openapi import describe_body
from api.http.problems import HttpProblem
from api.http.requests import at_pointer
from api.http.schemas import CreatedWebhook, WebhookList, WebhookRequest, WebhookResponse
from api.http.security import Body, Planner, Reader, ServiceDep
from api.webhooks.store import TooManyWebhooks
from planner.documents.schemas import validate_document

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"])


@router.post("", status_code=201, openapi_extra=describe_body(WebhookRequest))
def create_webhook(caller: Planner, service: ServiceDep, body: Body) -> CreatedWebhook:
    """Register an https address that is called when one of your plans ends.

    Returns 403 where the operator has not turned webhooks on, and 422 for an address that is not public.

    A delivery is a POST of JSON with `type` (`plan.ended`), `plan`, `status`, `ended_at` and either `incumbent_s`,
    `bound_s` and `gap` or `error`; that of a capacity question has the type `sweep.ended`, `sweep` instead of `plan`,
    and its progress. It is delivered at least once, with three headers: `Shardplan-Delivery` (the delivery's number),
    `Shardplan-Timestamp` (seconds since 1970) and `Shardplan-Signature` (`v1=` and the HMAC-SHA256 of timestamp, a dot
    and the body under the webhook's secret, in hexadecimal). Answer with a 2xx status.
    """
    if not service.settings.webhooks:
        raise HttpProblem(403, "webhooks-off", "webhooks are disabled", wanted="shardplan serve --webhooks")
    request = validate_document(WebhookRequest, parse_body(body, service.limits), "body")
    max_webhooks = service.limits.webhooks
    try:
        with at_pointer("/url"):
            webhook = service.webhooks.add(caller.tenant, caller.id, request.url, max_webhooks)
    except TooManyWebhooks:
        raise HttpProblem(
            429, "too-many-webhooks", f"the key has {max_webhooks} webhooks", wanted=f"at most {max_webhooks} per key"
        ) from None
    return CreatedWebhook(**WebhookResponse.of(webhook).model_dump(), secret=webhook.secret)


@router.get("")
def list_webhooks(caller: Reader, service: ServiceDep) -> WebhookList:
    """List your webhooks, without their secrets."""
    return WebhookList(webhooks=[WebhookResponse.of(hook) for hook in service.webhooks.list_all(caller.tenant)])


@router.delete("/{webhook}", status_code=204, response_class=Response)
def delete_webhook(
    caller: Planner, service: ServiceDep, webhook: Annotated[str, Path(description="The webhook's id.")]
) -> None:
    """Delete a webhook with the deliveries that are due to it."""
    if not service.webhooks.remove(caller.tenant, webhook):
        raise HttpProblem(404, "no-such-webhook", f"webhook {webhook[:64]}")
