"""Limits of a connection that need no key to be reached: bytes and seconds of a request's head, requests in line, and
answers that are not read.

uvicorn ends connections that are idle after an answer. Before the first request, and once the first byte of another one
has arrived, it waits for ever, and holds as many bytes of headers, and as many requests sent ahead, as come. An answer
that is not read keeps its connection for ever, unless the kernel is told how long (TCP_USER_TIMEOUT, tcp(7): how long
data may wait to be acknowledged, or to be sent because the receiver's window is full).
"""

from __future__ import annotations

import asyncio
import resource
import socket
from contextlib import suppress

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES = 1 << 16
"""The request line and all headers."""
HEAD_S = 10.0
"""From the start of a connection, or from the first byte of a later request, to the end of the head."""
UNREAD_S = 60.0
"""How long a client may read nothing of what waits for it. Only Linux knows this limit."""
MAX_PIPELINED = 16
"""Requests of a connection that wait for the answer to one before them."""


def raise_open_files() -> None:
    """Let this process have as many connections and files open as its user may allow it.

    The limit that processes start with, often 1024, is for programs that use select(2); so few connections are soon
    taken by somebody who opens them and sends nothing, until they end after HEAD_S.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS names a limit that it does not allow
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class TooManyPipelined(Exception):
    """A client sends more requests ahead than may wait; the parser tells uvicorn, which answers 400."""


class LimitedHttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which ends a connection whose request's head is too long or takes too long, that sends too
    many requests ahead, or whose client stops reading.
    """

    _bytes = 0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            connection: socket.socket = transport.get_extra_info("socket")
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * UNREAD_S))
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._timer is not None:
            self._bytes += len(data)
            if self._bytes > HEAD_BYTES:
                self._refuse(b"431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._timer is None:
            self._await_head()

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        super().on_headers_complete()
        if len(self.pipeline) > MAX_PIPELINED:
            raise TooManyPipelined

    def _await_head(self) -> None:
        self._bytes, self._timer = 0, self.loop.call_later(HEAD_S, self._refuse, b"408 Request Timeout")

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def _refuse(self, status: bytes) -> None:
        self._stop_waiting()
        if not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 " + status + b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            self.transport.close()
