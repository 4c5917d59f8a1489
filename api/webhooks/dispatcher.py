"""The threads that deliver webhooks."""

from __future__ import annotations

import logging

from api.jobs.background_loop import BackgroundLoop
from api.webhooks.sender import DeliveryFailed, WebhookSender
from api.webhooks.store import WebhookStore
from planner.errors import InvalidRequest

log = logging.getLogger("shardplan.webhooks")

THREADS = 4
POLL_S = 1.0


class WebhookDispatcher:
    """Delivers until it is stopped; an interrupted delivery is retried later, by this process or another."""

    def __init__(self, store: WebhookStore, sender: WebhookSender) -> None:
        self.store, self.sender = store, sender
        self.loops = tuple(BackgroundLoop("webhooks", self._deliver_due) for _ in range(THREADS))

    def start(self) -> None:
        for loop in self.loops:
            loop.start()

    def stop(self) -> None:
        for loop in self.loops:
            loop.stop()

    def _deliver_due(self) -> float:
        return 0.0 if self.deliver() else POLL_S

    def deliver(self) -> bool:
        """Try the delivery that has been due longest. Return False where none is due."""
        delivery = self.store.claim_due()
        if delivery is None:
            return False
        try:
            self.sender.send(delivery)
        except (InvalidRequest, DeliveryFailed, OSError) as error:
            log.warning("webhook %s: attempt %d: %s", delivery.webhook, delivery.attempts, error)
            self.store.mark_failed(delivery)
        else:
            self.store.mark_delivered(delivery)
        return True
