"""Sends one delivery: signed as Standard Webhooks (standardwebhooks.com, version 1) has it, over TLS, to an address
that was checked. Every answer but 2xx is a failure, redirects included, and no more than an answer's head is read.
"""

from __future__ import annotations

import base64
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

from api.webhooks.store import SECRET_PREFIX, Delivery
from api.webhooks.url_policy import Resolve, WebhookUrl, choose_address, is_public, resolve_host

STEP_TIMEOUT_S = 5.0
"""For connecting, and between bytes."""
TOTAL_TIMEOUT_S = 15.0
"""For a whole attempt, because a slow receiver could send a byte at a time."""


class DeliveryFailed(Exception):
    """The receiver did not accept the delivery."""


class _PinnedConnection(http.client.HTTPSConnection):
    """A connection to a checked address; the certificate is verified against the host name."""

    def __init__(self, target: WebhookUrl, address: str, port: int, context: ssl.SSLContext) -> None:
        super().__init__(target.host, target.port, timeout=STEP_TIMEOUT_S, context=context)
        self.endpoint, self.tls = (address, port), context

    def connect(self) -> None:
        plain_socket = socket.create_connection(self.endpoint, STEP_TIMEOUT_S)
        self.sock = self.tls.wrap_socket(plain_socket, server_hostname=self.host)


@dataclass(frozen=True)
class WebhookSender:
    """How host names are resolved, which addresses are allowed, and which certificates are trusted."""

    resolve: Resolve = resolve_host
    is_allowed: Callable[[str], bool] = is_public
    context: ssl.SSLContext | None = None

    def send(self, delivery: Delivery) -> None:
        """Send a delivery. Raises InvalidRequest for an address that is not allowed, DeliveryFailed, OSError."""
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
    """Return the headers of a delivery, signed now."""
    timestamp, name = str(int(time.time())), str(delivery.number)
    return {
        "Content-Type": "application/json",
        "User-Agent": "shardplan",
        "webhook-id": name,
        "webhook-timestamp": timestamp,
        "webhook-signature": sign(delivery.secret, name, timestamp, body),
    }


def sign(secret: str, name: str, timestamp: str, body: bytes) -> str:
    """Return the signature of a delivery: HMAC-SHA256 over its id, timestamp and body, with dots between."""
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    digest = hmac.digest(key, f"{name}.{timestamp}.".encode() + body, hashlib.sha256)
    return f"v1,{base64.b64encode(digest).decode()}"


@contextmanager
def _deadline(connection: http.client.HTTPSConnection) -> Iterator[None]:
    """Shut the connection down after TOTAL_TIMEOUT_S, even where bytes still arrive."""

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
