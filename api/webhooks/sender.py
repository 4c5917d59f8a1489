"""One delivery: signed, posted over TLS to the address that was looked at. Redirects are failures, as all answers but
2xx are; of an answer no more is read than its head."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass

from api.webhooks.store import Delivery
from api.webhooks.url_policy import Resolve, WebhookUrl, choose_address, is_public, resolve_host

STEP_TIMEOUT_S = 5.0
"""For connecting, and between bytes."""
TOTAL_TIMEOUT_S = 15.0
"""For an answer that trickles."""


class DeliveryFailed(Exception):
    """The receiver did not take it: what it answered instead."""


class _PinnedConnection(http.client.HTTPSConnection):
    """To an address that is known to be allowed; the certificate is the name's."""

    def __init__(self, target: WebhookUrl, address: str, port: int, context: ssl.SSLContext) -> None:
        super().__init__(target.host, target.port, timeout=STEP_TIMEOUT_S, context=context)
        self.place, self.tls = (address, port), context

    def connect(self) -> None:
        bare = socket.create_connection(self.place, STEP_TIMEOUT_S)
        self.sock = self.tls.wrap_socket(bare, server_hostname=self.host)


@dataclass(frozen=True)
class WebhookSender:
    """How names become addresses, which of them are admitted, and whose certificates are believed."""

    resolve: Resolve = resolve_host
    is_allowed: Callable[[str], bool] = is_public
    context: ssl.SSLContext | None = None

    def send(self, delivery: Delivery) -> None:
        """Raises InvalidRequest for an address that may not be called, Undelivered, OSError."""
        target = WebhookUrl.parse(delivery.url)
        address = choose_address(target, self.resolve, self.is_allowed)
        connection = _PinnedConnection(target, address, target.port, self.context or ssl.create_default_context())
        body = delivery.body.encode()
        with closing(connection), _deadline(connection):
            try:
                connection.request("POST", target.path, body, build_headers(delivery, body))
                status = connection.getresponse().status
            except http.client.HTTPException as error:
                raise DeliveryFailed(type(error).__name__) from None
        if not 200 <= status < 300:
            raise DeliveryFailed(f"answered {status}")


def build_headers(delivery: Delivery, body: bytes) -> dict[str, str]:
    """What a delivery is known by, signed now."""
    timestamp = str(int(time.time()))
    return {
        "Content-Type": "application/json",
        "User-Agent": "shardplan",
        "Shardplan-Delivery": str(delivery.number),
        "Shardplan-Timestamp": timestamp,
        "Shardplan-Signature": f"v1={sign(delivery.secret, timestamp, body)}",
    }


def sign(secret: str, timestamp: str, body: bytes) -> str:
    """HMAC-SHA256 over timestamp, a dot and the body, in hex."""
    return hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()


@contextmanager
def _deadline(connection: http.client.HTTPSConnection) -> Iterator[None]:
    """Whoever answers a byte every few seconds is cut off all the same."""

    def cut() -> None:
        with suppress(OSError, AttributeError):
            connection.sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(TOTAL_TIMEOUT_S, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
