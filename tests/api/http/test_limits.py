"""Large bodies are parsed one at a time, tenants in turn, and hold up nobody else's answers."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

import httpx2

from api.http import plan_intake
from api.http.limits import LargeBodyTurns, parse_body
from api.http.routes import capacity
from tests.testing.service import MISBEHAVING, serving
from tests.testing.small_documents import GRAPH, MESH

pytestmark = pytest.mark.service

LARGE = LargeBodyTurns.LARGE_BYTES
JSON = {"Content-Type": "application/json"}
PLAN = {"graph": GRAPH, "mesh": MESH}
QUESTION = {"graphs": [GRAPH], "devices": "2", "hardware": [{"name": "cpu"}]}


def take_turns(*bodies: tuple[str, int]) -> list[str]:
    """Let bodies, by tenant and size, wait for their turns; return the tenants in the order in which they had them."""

    async def wait_for_all() -> list[str]:
        turns, order = LargeBodyTurns(), []

        async def parse(tenant: str, size: int) -> None:
            async with turns.take(tenant, size):
                order.append(tenant)
                await asyncio.sleep(0.01)

        async with asyncio.TaskGroup() as group:
            for tenant, size in bodies:
                group.create_task(parse(tenant, size))
        return order

    return asyncio.run(wait_for_all())


def test_tenants_with_large_bodies_take_turns() -> None:
    assert take_turns(*[("a", LARGE)] * 4, ("b", LARGE), ("c", LARGE)) == ["a", "b", "c", "a", "a", "a"]


def test_a_small_body_waits_for_no_large_one() -> None:
    assert take_turns(*[("a", LARGE)] * 3, ("b", LARGE - 1))[:2] == ["a", "b"]


@pytest.mark.parametrize(("path", "request_"), [("/v1/plans", PLAN), ("/v1/capacity", QUESTION)])
def test_large_bodies_are_parsed_one_at_a_time(
    path: str, request_: dict[str, Any], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, overlapping = threading.Lock(), []

    def parse_alone(*arguments: Any) -> Any:
        overlapping.append(not lock.acquire(blocking=False))
        time.sleep(0.05)
        if not overlapping[-1]:
            lock.release()
        return parse_body(*arguments)

    for module in (plan_intake, capacity):
        monkeypatch.setattr(module, "parse_body", parse_alone)
    with serving(database, children=MISBEHAVING) as client, ThreadPoolExecutor(4) as pool:

        def post(number: int) -> httpx2.Response:
            body = json.dumps(request_) + " " * (LARGE + number)
            return client.post(path, content=body.encode(), headers=JSON)

        assert {answer.status_code for answer in pool.map(post, range(4))} == {202}
    assert overlapping == [False] * 4
