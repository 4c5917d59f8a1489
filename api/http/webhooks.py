"""Webhooks: who is told when a plan has ended. `api/hooks` says what a delivery is, and how it is signed."""

from __future__ import annotations

from fastapi import APIRouter, Response

from api.asking import pointed
from api.hooks.register import TooManyHooks
from api.http.limits import parsed
from api.http.openapi import body_of
from api.http.problems import Problem
from api.http.schemas import WebhookAnswer, WebhookAsked, WebhookMade, WebhooksAnswer
from api.http.security import Body, Planner, Reader, ServiceDep
from planner.documents.schemas import checked

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"])


@router.post("", status_code=201, openapi_extra=body_of(WebhookAsked))
def add_webhook(caller: Planner, service: ServiceDep, body: Body) -> WebhookMade:
    """Have an https address told when one of your plans has ended. Refused (403) where the operator has not turned
    webhooks on, and (422) for addresses that are not the whole internet's.

    A delivery is a POST of JSON (`type`, `plan`, `status`, `ended_at`, incumbent, bound, gap or cause), at least once,
    with the headers `Shardplan-Delivery` (its number), `Shardplan-Timestamp` (seconds since 1970) and
    `Shardplan-Signature`: `v1=` and HMAC-SHA256 of timestamp, a dot and the body, by the secret, in hex. Answer 2xx."""
    if not service.settings.webhooks:
        raise Problem(403, "webhooks-off", "webhooks are off", wanted="shardplan serve --webhooks")
    asked = checked(WebhookAsked, parsed(body, service.limits), "body")
    most = service.limits.webhooks
    try:
        with pointed("/url"):
            made = service.hooks.add(caller.tenant, caller.id, asked.url, most)
    except TooManyHooks:
        raise Problem(429, "too-many-webhooks", f"the key has {most}", wanted=f"at most {most} of a key") from None
    return WebhookMade(**WebhookAnswer.of(made).model_dump(), secret=made.secret)


@router.get("")
def list_webhooks(caller: Reader, service: ServiceDep) -> WebhooksAnswer:
    """Your webhooks, without their secrets."""
    return WebhooksAnswer(webhooks=[WebhookAnswer.of(hook) for hook in service.hooks.listed(caller.tenant)])


@router.delete("/{webhook}", status_code=204, response_class=Response)
def remove_webhook(caller: Planner, service: ServiceDep, webhook: str) -> None:
    """It is told nothing more."""
    if not service.hooks.remove(caller.tenant, webhook):
        raise Problem(404, "no-such-webhook", f"webhook {webhook[:64]}")
