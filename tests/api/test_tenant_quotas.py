"""What tenants share: nobody waits for more than one task of another tenant."""

from __future__ import annotations

import threading
import time

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

from api.tenant_quotas import TaskSlots

SECONDS = 60.0


def test_a_free_slot_goes_to_the_tenant_that_holds_the_fewest() -> None:
    slots, order, threads = TaskSlots(2), list[str](), list[threading.Thread]()
    ends = [threading.Event() for _ in range(2)]

    def hold(end: threading.Event, held: threading.Event) -> None:
        with slots.take("many", SECONDS) as is_taken:
            assert is_taken
            held.set()
            end.wait()

    def ask(tenant: str) -> None:
        with slots.take(tenant, SECONDS) as is_taken:
            assert is_taken
            order.append(tenant)

    def start(*words: object, target: object) -> None:
        threads.append(threading.Thread(target=target, args=words))  # type: ignore[arg-type]
        threads[-1].start()

    for end in ends:
        held = threading.Event()
        start(end, held, target=hold)
        assert held.wait(SECONDS)
    for number, tenant in enumerate(["many", "many", "few"]):
        start(tenant, target=ask)
        while slots.waiting <= number:
            time.sleep(0.001)
    ends[0].set()
    for thread in (threads[0], *threads[2:]):
        thread.join(SECONDS)
    ends[1].set()
    threads[1].join(SECONDS)
    assert order == ["few", "many", "many"]


def test_who_waits_in_vain_is_told_and_leaves_the_slot_to_others() -> None:
    slots = TaskSlots(1)
    with slots.take("a", 0.0) as first, slots.take("b", 0.01) as second:
        assert (first, second) == (True, False)
    with slots.take("b", 0.0) as again:
        assert again
