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

from api.hooks.register import Delivery
from api.hooks.targets import Resolve, Target, address_of, is_public, resolved

STEP_S = 5.0
"""For connecting, and between bytes."""
WHOLE_S = 15.0
"""For an answer that trickles."""


class Undelivered(Exception):
    """The receiver did not take it: what it answered instead."""


class _Pinned(http.client.HTTPSConnection):
    """To an address that is known to be allowed; the certificate is the name's."""

    def __init__(self, target: Target, address: str, port: int, context: ssl.SSLContext) -> None:
        super().__init__(target.host, target.port, timeout=STEP_S, context=context)
        self.place, self.tls = (address, port), context

    def connect(self) -> None:
        bare = socket.create_connection(self.place, STEP_S)
        self.sock = self.tls.wrap_socket(bare, server_hostname=self.host)


@dataclass(frozen=True)
class Sender:
    """How names become addresses, which of them are admitted, and whose certificates are believed."""

    resolve: Resolve = resolved
    admits: Callable[[str], bool] = is_public
    context: ssl.SSLContext | None = None

    def send(self, delivery: Delivery) -> None:
        """Raises InvalidRequest for an address that may not be called, Undelivered, OSError."""
        target = Target.parse(delivery.url)
        address = address_of(target, self.resolve, self.admits)
        connection = _Pinned(target, address, target.port, self.context or ssl.create_default_context())
        body = delivery.body.encode()
        with closing(connection), _ended_after(connection):
            try:
                connection.request("POST", target.path, body, headers(delivery, body))
                status = connection.getresponse().status
            except http.client.HTTPException as error:
                raise Undelivered(type(error).__name__) from None
        if not 200 <= status < 300:
            raise Undelivered(f"answered {status}")


def headers(delivery: Delivery, body: bytes) -> dict[str, str]:
    """What a delivery is known by, signed now."""
    timestamp = str(int(time.time()))
    return {
        "Content-Type": "application/json",
        "User-Agent": "shardplan",
        "Shardplan-Delivery": str(delivery.number),
        "Shardplan-Timestamp": timestamp,
        "Shardplan-Signature": f"v1={signature(delivery.secret, timestamp, body)}",
    }


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """HMAC-SHA256 over timestamp, a dot and the body, in hex."""
    return hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()


@contextmanager
def _ended_after(connection: http.client.HTTPSConnection) -> Iterator[None]:
    """Whoever answers a byte every few seconds is cut off all the same."""

    def cut() -> None:
        with suppress(OSError, AttributeError):
            connection.sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(WHOLE_S, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
