"""Request bodies within size limits, and rate limits per key."""

from __future__ import annotations

import asyncio
import threading
import time
import zlib
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from typing import Any

from fastapi import Request

from api.http.problems import HttpProblem, problem_of_planner_error
from api.http.requests import PlanRequest, check_nesting
from api.settings import Limits
from planner.documents.json_reader import parse_json
from planner.errors import ShardplanError

JSON = "application/json"
CHUNK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class RequestBody:
    """A request body with its content type."""

    kind: str
    data: bytes


async def read_body(request: Request, limits: Limits, kinds: Collection[str] = (JSON,)) -> RequestBody:
    """Read the body, decompressed where it is gzip; `kinds` are the accepted content types.

    Bytes are counted as they arrive and again as they are decompressed; Content-Length is not trusted. Raises
    HttpProblem.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in kinds:
        detail = f"Content-Type {kind or 'missing'}"
        raise HttpProblem(415, "unsupported-media-type", detail, wanted=" or ".join(kinds))
    try:
        async with asyncio.timeout(limits.body_s):
            return RequestBody(kind, await _read_encoded(request, limits))
    except TimeoutError:
        raise HttpProblem(408, "body-too-slow", f"the body did not arrive within {limits.body_s:g} s") from None


async def _read_encoded(request: Request, limits: Limits) -> bytes:
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding == "identity":
        return b"".join([piece async for piece in _limit_size(request.stream(), limits.body_bytes)])
    if coding != "gzip":
        raise HttpProblem(
            415, "unsupported-content-encoding", coding, wanted="gzip", headers={"Accept-Encoding": "gzip"}
        )
    return b"".join([piece async for piece in _decompress(request.stream(), limits.body_bytes)])


async def _limit_size(pieces: AsyncIterator[bytes], max_bytes: int) -> AsyncIterator[bytes]:
    count = 0
    async for piece in pieces:
        count += len(piece)
        if count > max_bytes:
            raise HttpProblem(
                413, "body-too-large", f"the body exceeds {max_bytes} bytes", wanted=f"at most {max_bytes} bytes"
            )
        yield piece


async def _decompress(pieces: AsyncIterator[bytes], max_bytes: int) -> AsyncIterator[bytes]:
    """Yield the content of a gzip stream; at most one byte beyond the limit is ever produced."""
    decompressor, count = zlib.decompressobj(wbits=31), 0
    try:
        async for piece in _limit_size(pieces, max_bytes):
            while piece and not decompressor.eof:
                chunk = decompressor.decompress(piece, min(CHUNK_BYTES, max_bytes + 1 - count))
                piece, count = decompressor.unconsumed_tail, count + len(chunk)
                if count > max_bytes:
                    raise HttpProblem(
                        413,
                        "body-too-large",
                        f"the decompressed body exceeds {max_bytes} bytes",
                        wanted=f"at most {max_bytes} bytes",
                    )
                yield chunk
    except zlib.error as error:
        raise HttpProblem(400, "damaged-gzip", str(error), "") from None
    if not decompressor.eof or decompressor.unused_data:
        raise HttpProblem(400, "damaged-gzip", "the gzip stream is truncated, or followed by other data", "")


def parse_body(raw: bytes, limits: Limits) -> Any:
    """Return the JSON of a body. Raises HttpProblem 400 for what is not JSON or too deep."""
    try:
        document = parse_json(raw, "body")
        check_nesting(document, limits.nesting)
    except ShardplanError as error:
        raise problem_of_planner_error(error, 400) from None
    return document


def check_graph_size(request: PlanRequest, limits: Limits) -> None:
    """Check limits that the schema does not express: edges, and fewer nodes than a document may have. Raises
    HttpProblem 413.
    """
    graph = request.graph
    edges = sum(len(node.inputs) for node in graph.nodes)
    for what, count, most in (("nodes", len(graph.nodes), limits.nodes), ("edges", edges, limits.edges)):
        if count > most:
            raise HttpProblem(
                413, "graph-too-large", f"the graph has {count} {what}", "/graph/nodes", wanted=f"at most {most}"
            )


class RateLimiter:
    """A token bucket per key that holds `burst` requests and refills by `per_s` per second."""

    MAX_KEYS = 10_000

    def __init__(self, per_s: float, burst: int) -> None:
        self.per_s, self.burst = per_s, burst
        self._lock = threading.Lock()
        self._buckets: dict[str, tuple[float, float]] = {}

    def check(self, key: str) -> None:
        """Take one request out of a key's bucket. Raises HttpProblem 429 where it is empty."""
        now = time.monotonic()
        with self._lock:
            tokens, refilled_at = self._buckets.pop(key, (float(self.burst), now))
            tokens = min(float(self.burst), tokens + (now - refilled_at) * self.per_s)
            self._buckets[key] = max(tokens - 1, 0.0) if tokens >= 1 else tokens, now
            # Taken out and put back, keys stand in order of use: the first one was used longest ago.
            while len(self._buckets) > self.MAX_KEYS:
                del self._buckets[next(iter(self._buckets))]
        if tokens < 1:
            retry_after_s = str(max(1, round((1 - tokens) / self.per_s)))
            raise HttpProblem(
                429,
                "too-many-requests",
                f"more than {self.per_s:g} requests per second",
                headers={"Retry-After": retry_after_s},
            )
