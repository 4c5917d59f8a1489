"""Connections whose request never comes, or has no end, are ended."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

import uvicorn
from uvicorn.server import ServerState

from api.http import connection_limits
from api.http.connection_limits import HEAD_BYTES, MAX_PIPELINED, LimitedHttpProtocol, raise_open_files

pytestmark = pytest.mark.service

WHOLE = b"POST / HTTP/1.1\r\nhost: here\r\ncontent-length: 4\r\n\r\nbody"
SECONDS = 60.0


async def answer(_scope: Any, receive: Any, send: Any) -> None:
    """Answer with the body, like a handler that takes its time."""
    body = (await receive())["body"]
    await asyncio.sleep(0.3)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def connected(
    app: Any = answer, protocol: type[LimitedHttpProtocol] = LimitedHttpProtocol
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    config = uvicorn.Config(app, http=protocol, lifespan="off", log_config=None)
    config.load()
    server = await asyncio.get_running_loop().create_server(lambda: protocol(config, ServerState(), {}), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        yield reader, writer
    finally:
        writer.close()
        server.close()


async def told(*pieces: bytes) -> bytes:
    """Send pieces, one after another, and return what comes until the connection ends, b"" where it is reset."""
    async with connected() as (reader, writer):
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0.01)
        async with asyncio.timeout(SECONDS):
            with suppress(ConnectionResetError):
                return await reader.read()
    return b""


def test_headers_without_end_are_refused() -> None:
    line = b"x-filler: " + b"y" * 1000 + b"\r\n"
    heard = asyncio.run(told(b"GET / HTTP/1.1\r\n", line * (2 * HEAD_BYTES // 1000)))
    # What is still on its way when the connection ends resets it.
    assert heard == b"" or heard.startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("pieces", [(), (b"GET / HT",), (b"GET / HTTP/1.1\r\nhost: here\r\n",)])
def test_a_request_that_does_not_come_is_refused(pieces: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "HEAD_S", 0.1)
    assert asyncio.run(told(*pieces)).startswith(b"HTTP/1.1 408 ")


def test_a_second_request_that_does_not_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "HEAD_S", 0.1)
    heard = asyncio.run(told(WHOLE + b"GET / HT"))
    assert heard.startswith(b"HTTP/1.1 ")
    assert heard.endswith(b"content-length: 0\r\n\r\n")


def test_an_answer_may_take_longer_than_a_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "HEAD_S", 0.1)

    async def ask() -> list[bytes]:
        async with connected() as (reader, writer):
            heard = []
            for _ in range(2):
                writer.write(WHOLE)
                head = await reader.readuntil(b"\r\n\r\n")
                heard.append(head[:15] + await reader.readexactly(4))
            return heard

    assert asyncio.run(ask()) == [b"HTTP/1.1 200 OKbody"] * 2


def test_a_long_body_in_small_pieces_is_no_head() -> None:
    async def ask() -> bytes:
        async with connected() as (reader, writer):
            writer.write(b"POST / HTTP/1.1\r\nhost: here\r\ncontent-length: %d\r\n\r\n" % (4 * HEAD_BYTES))
            for _ in range(8):
                writer.write(b"body" * (HEAD_BYTES // 8))
                await writer.drain()
            return await reader.readexactly(15)

    assert asyncio.run(ask()) == b"HTTP/1.1 200 OK"


def test_more_requests_sent_ahead_than_may_wait_are_refused() -> None:
    heard = asyncio.run(told(WHOLE * (MAX_PIPELINED + 2)))
    assert heard.startswith(b"HTTP/1.1 400 ")
    assert b"200 OK" not in heard


def test_requests_sent_ahead_are_answered_in_turn() -> None:
    async def ask() -> list[bytes]:
        async with connected() as (reader, writer):
            writer.write(WHOLE * 3)
            return [(await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(4))[-4:] for _ in range(3)]

    assert asyncio.run(ask()) == [b"body"] * 3


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux ends connections that are not read")
@pytest.mark.parametrize("length", [1 << 15, 1 << 22])
def test_a_connection_whose_answers_are_not_read_ends(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "UNREAD_S", 0.5)

    async def answer_long(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"y" * length})

    async def read_nothing() -> None:
        ended = asyncio.Event()

        class Watched(LimitedHttpProtocol):
            def connection_lost(self, exc: Exception | None) -> None:
                super().connection_lost(exc)
                ended.set()

        async with connected(answer_long, Watched) as (reader, writer):
            # Neither side's buffers hold it all.
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            async with asyncio.timeout(SECONDS):
                while not ended.is_set():
                    writer.write(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n")
                    await asyncio.sleep(0.1)

    asyncio.run(read_nothing())


def test_a_server_may_open_as_many_files_as_its_user_may_allow() -> None:
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(before, 512), most))
    try:
        raise_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, most)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))
