"""An HTTP/1.1 client over a bare socket: it uses little CPU time, which it shares with the server under test."""

from __future__ import annotations

import json
import socket
from typing import Any


def request(method: str, path: str, body: bytes = b"") -> bytes:
    """Return the bytes of a request; the body is JSON."""
    about = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
    return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{about}\r\n".encode() + body


class Connection:
    """A kept-open connection with one request at a time. Responses must have a Content-Length, as the service's do."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, sent: bytes) -> tuple[int, bytes]:
        """Send a request and return status and body of the response."""
        self.socket.sendall(sent)
        got = self._more(b"")
        while (end := got.find(b"\r\n\r\n")) < 0:
            got = self._more(got)
        head = got[:end].lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        while len(got) < end + 4 + length:
            got = self._more(got)
        return int(head[9:12]), got[end + 4 :]

    def get(self, path: str) -> Any:
        """Return the JSON at a path."""
        return json.loads(self.ask(request("GET", path))[1])

    def close(self) -> None:
        self.socket.close()

    def _more(self, got: bytes) -> bytes:
        piece = self.socket.recv(1 << 16)
        if not piece:
            raise ConnectionError("the server has closed the connection")
        return got + piece
