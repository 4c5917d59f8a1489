"""Request bodies within size limits, each and together, turns of large ones, and rate limits per key."""

from __future__ import annotations

import asyncio
import threading
import time
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from api.http.problems import HttpProblem, problem_of_planner_error
from api.http.requests import PlanRequest, check_nesting
from api.settings import Limits
from planner.documents.json_reader import parse_json
from planner.errors import ShardplanError

JSON = "application/json"
CHUNK_BYTES = 1 << 18


class BodyBudget:
    """The bytes of bodies, decompressed, that the process holds at once; a tenant may take half of them."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._held: Counter[str] = Counter()

    @contextmanager
    def open(self, tenant: str) -> Iterator[HeldBytes]:
        """Count a body of a tenant until the context ends."""
        held = HeldBytes(self, tenant)
        try:
            yield held
        finally:
            self._held[tenant] -= held.count
            self._held += Counter()  # forgets tenants that hold none

    def take(self, tenant: str, count: int) -> None:
        """Count more bytes. Raises HttpProblem 503 where the tenant, or all together, hold as many as they may."""
        if self._held[tenant] + count > self.most_bytes // 2 or self._held.total() + count > self.most_bytes:
            wanted = f"at most {self.most_bytes} bytes of bodies at once, half of them of one tenant"
            raise HttpProblem(503, "bodies-in-flight", "too many bodies", wanted=wanted, headers={"Retry-After": "1"})
        self._held[tenant] += count


@dataclass(slots=True)
class HeldBytes:
    """The bytes that one request holds of a budget."""

    budget: BodyBudget
    tenant: str
    count: int = 0

    def add(self, count: int) -> None:
        """Raises HttpProblem 503."""
        self.budget.take(self.tenant, count)
        self.count += count


@dataclass(frozen=True, slots=True)
class RequestBody:
    """A request body with its content type."""

    kind: str
    data: bytes


async def read_body(
    request: Request, limits: Limits, held: HeldBytes, *, kinds: Collection[str] = (JSON,)
) -> RequestBody:
    """Read the body, decompressed where it is gzip, and count it in `held`; `kinds` are the accepted content types.

    Bytes are counted as they arrive and again as they are decompressed; Content-Length is not trusted. Raises
    HttpProblem.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in kinds:
        detail = f"Content-Type {kind or 'missing'}"
        raise HttpProblem(415, "unsupported-media-type", detail, wanted=" or ".join(kinds))
    try:
        async with asyncio.timeout(limits.body_s):
            return RequestBody(kind, await _read_encoded(request, limits, held))
    except TimeoutError:
        raise HttpProblem(408, "body-too-slow", f"the body did not arrive within {limits.body_s:g} s") from None


async def _read_encoded(request: Request, limits: Limits, held: HeldBytes) -> bytes:
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding == "identity":
        return await _join(_limit_size(request.stream(), limits.body_bytes), held)
    if coding != "gzip":
        raise HttpProblem(
            415, "unsupported-content-encoding", coding, wanted="gzip", headers={"Accept-Encoding": "gzip"}
        )
    return await _join(_decompress(request.stream(), limits.body_bytes), held)


async def _join(pieces: AsyncIterator[bytes], held: HeldBytes) -> bytes:
    parts = []
    async for piece in pieces:
        held.add(len(piece))
        parts.append(piece)
    return b"".join(parts)


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
    """Yield the content of a gzip stream; at most one byte beyond the limit is ever produced.

    It is decompressed in a thread: a few bytes may grow a thousandfold, and other requests are answered meanwhile.
    """
    decompressor, count = zlib.decompressobj(wbits=31), 0
    try:
        async for piece in _limit_size(pieces, max_bytes):
            while piece and not decompressor.eof:
                most = min(CHUNK_BYTES, max_bytes + 1 - count)
                chunk = await run_in_threadpool(decompressor.decompress, piece, most)
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


class LargeBodyTurns:
    """Lets one large body at a time be parsed and checked, tenants in turn.

    Python runs one thread at a time: ten bodies of seconds each, beside one another, would hold up every short answer
    for as long as all of them take.
    """

    LARGE_BYTES = 1 << 18

    def __init__(self) -> None:
        self._any = asyncio.Lock()
        self._of_tenant: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def take(self, tenant: str, size: int) -> AsyncIterator[None]:
        """Wait where the body is large; one body of each tenant stands in line for its turn."""
        if size < self.LARGE_BYTES:
            yield
            return
        own = self._of_tenant.setdefault(tenant, asyncio.Lock())
        async with own, self._any:
            yield


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
