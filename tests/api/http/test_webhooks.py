"""Webhooks: created over HTTP, queued with the plan's result, delivered signed over TLS, at least once."""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

import httpx2
from fastapi.testclient import TestClient
from sqlalchemy import select, update

from api.http.app import create_app
from api.jobs.api_keys import ApiKeys
from api.jobs.database import Database
from api.jobs.enqueue import PlanJob
from api.jobs.queue import JobQueue, JobResult
from api.jobs.tables import deliveries
from api.service import Service
from api.settings import DAY_S, Limits, Settings
from api.webhooks.dispatcher import WebhookDispatcher
from api.webhooks.sender import WebhookSender, build_headers, sign
from api.webhooks.store import MAX_ATTEMPTS, WebhookStore
from tests.testing.plan_queue import begin_next
from tests.testing.service import LOCAL, MISBEHAVING, SECONDS, ask, ended, named, serving

pytestmark = pytest.mark.service

ON_BOTH_DATABASES = True
NAME = "hooks.example.com"
URL = f"https://{NAME}:8443/told"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SIGNED = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@dataclass
class Receiver:
    """An https server of that name, on an address of loopback; what it was sent."""

    address: str
    sender: WebhookSender
    statuses: list[int] = field(default_factory=list)
    heard: list[tuple[Any, bytes]] = field(default_factory=list)

    def claim_due(self, headers: Any, body: bytes) -> int:
        self.heard.append((headers, body))
        return self.statuses.pop(0) if self.statuses else 204


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key and certificate of the name, signed by itself."""
    folder = tmp_path_factory.mktemp("certificate")
    words = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    named = ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"]
    files = ["-keyout", str(folder / "key"), "-out", str(folder / "certificate")]
    try:
        subprocess.run([*words, *named, *files], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    return folder


@contextmanager
def receiving(certificate: Path) -> Iterator[Receiver]:
    address = ".".join(["127", *(str(Random().randint(1, 254)) for _ in range(3))])
    believed = ssl.create_default_context(cafile=str(certificate / "certificate"))
    receiver = Receiver(
        address, WebhookSender(lambda _name, _port: [address], lambda found: found == address, believed)
    )

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(receiver.claim_due(self.headers, body))
            self.send_header("Location", "https://127.0.0.1:8443/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer((address, 8443), Handler)
    offered = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    offered.load_cert_chain(certificate / "certificate", certificate / "key")
    server.socket = offered.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def receiver(certificate: Path) -> Iterator[Receiver]:
    with receiving(certificate) as found:
        yield found


@pytest.fixture
def store(database: str) -> Iterator[Database]:
    found = Database(database)
    yield found
    found.close()


def end_a_plan(store: Database, tenant: str = "local", name: str = "a") -> None:
    jobs = JobQueue(store)
    jobs.submit(tenant, PlanJob(name * 64, name, b""), 100)
    claim = begin_next(jobs)
    assert claim is not None
    jobs.complete(claim, JobResult("failed", "for a test"))


def due_now(store: Database) -> None:
    with store.begin() as connection:
        connection.execute(update(deliveries).values(due_at=0.0))


def waiting(store: Database) -> list[Any]:
    with store.connect() as connection:
        return list(connection.execute(select(deliveries).order_by(deliveries.c.number)))


def test_a_plan_that_ends_is_delivered_to_its_tenant(database: str, receiver: Receiver) -> None:
    service = Service(Settings(database, webhooks=True), MISBEHAVING, receiver.sender)
    with TestClient(create_app(service), LOCAL) as client:
        made = client.post("/v1/webhooks", json={"url": URL})
        assert made.status_code == 201
        plan = ask(client, named("exit")).json()["id"]
        ended(client, plan)
        until = time.monotonic() + SECONDS
        while not receiver.heard and time.monotonic() < until:
            time.sleep(0.05)
    headers, body = receiver.heard[0]
    told = json.loads(body)
    assert (told["type"], told["plan"], told["status"]) == ("plan.ended", plan, "failed")
    secret, timestamp = made.json()["secret"], headers["webhook-timestamp"]
    assert headers["webhook-signature"] == sign(secret, headers["webhook-id"], timestamp, body)
    assert abs(int(timestamp) - time.time()) < SECONDS
    assert headers["Host"] == f"{NAME}:8443"


def test_a_signature_is_that_of_standard_webhooks() -> None:
    """The example of the specification."""
    body = b'{"test": 2432232314}'
    assert sign(SECRET, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", body) == SIGNED


def test_a_delivery_is_verified_by_the_library_of_standard_webhooks(store: Database) -> None:
    webhooks = pytest.importorskip("standardwebhooks", reason="standardwebhooks is not installed")
    register = WebhookStore(store)
    secret = register.add("local", "key", URL, 8).secret
    end_a_plan(store)
    delivery = register.claim_due()
    assert delivery is not None
    body = delivery.body.encode()
    assert webhooks.Webhook(secret).verify(body, build_headers(delivery, body))["plan"] == "a" * 64
    with pytest.raises(webhooks.WebhookVerificationError):
        webhooks.Webhook(secret).verify(body + b" ", build_headers(delivery, body))


def test_only_webhooks_of_its_tenant_are_called_for_a_plan(store: Database) -> None:
    register = WebhookStore(store)
    hooks = {tenant: register.add(tenant, "key", URL, 8) for tenant in ("a", "b")}
    end_a_plan(store, "b")
    assert [row.webhook for row in waiting(store)] == [hooks["b"].id]
    assert register.remove("a", hooks["b"].id) is False
    assert register.remove("b", hooks["b"].id) is True
    assert waiting(store) == []


def test_the_webhook_of_a_revoked_key_is_not_called(store: Database) -> None:
    keys, register = ApiKeys(store), WebhookStore(store)
    key = keys.add("a", "plan").split("_")[1]
    register.add("a", key, URL, 8)
    end_a_plan(store, "a", "a")
    keys.revoke(key)
    end_a_plan(store, "a", "b")
    assert [json.loads(row.body)["plan"] for row in waiting(store)] == ["a" * 64]


def test_undelivered_results_expire_after_a_day(store: Database) -> None:
    WebhookStore(store).add("local", "key", URL, 8)
    end_a_plan(store)
    with store.begin() as connection:
        connection.execute(update(deliveries).values(created_at=time.time() - 2 * DAY_S))
    end_a_plan(store, name="b")
    assert [row.number for row in waiting(store)] == [2]


def test_a_claimed_delivery_that_was_not_made_is_made_again(store: Database, receiver: Receiver) -> None:
    """As after a kill between sending and deleting."""
    register = WebhookStore(store)
    register.add("local", "key", URL, 8)
    end_a_plan(store)
    first = register.claim_due()
    assert first is not None
    assert register.claim_due() is None, "it is in somebody's hands"
    due_now(store)
    assert WebhookDispatcher(register, receiver.sender).deliver()
    assert [(int(h["webhook-id"]), body.decode()) for h, body in receiver.heard] == [(first.number, first.body)]
    assert waiting(store) == []


@pytest.mark.parametrize("status", [302, 307, 404, 500])
def test_a_refused_delivery_waits_longer_each_time(status: int, store: Database, receiver: Receiver) -> None:
    register, receiver.statuses = WebhookStore(store), [status] * MAX_ATTEMPTS
    register.add("local", "key", URL, 8)
    end_a_plan(store)
    end_a_plan(store, name="b")
    notifier, waits = WebhookDispatcher(register, receiver.sender), []
    with store.begin() as connection:  # the second behind the first
        connection.execute(update(deliveries).where(deliveries.c.number == 2).values(due_at=2e9))
    for attempt in range(1, MAX_ATTEMPTS + 1):
        assert notifier.deliver()
        assert not notifier.deliver(), "the other waits too"
        left = waiting(store)
        if attempt < MAX_ATTEMPTS:
            waits.append(left[0].due_at - time.time())
        with store.begin() as connection:
            connection.execute(update(deliveries).where(deliveries.c.number == 1).values(due_at=0.0))
    assert all(after > 1.5 * before for before, after in pairwise(waits))
    assert len(receiver.heard) == MAX_ATTEMPTS, "redirects were not followed"
    assert [row.number for row in waiting(store)] == [2], "the first was given up"


def test_a_certificate_of_another_name_is_refused(store: Database, receiver: Receiver) -> None:
    register = WebhookStore(store)
    register.add("local", "key", "https://other.example.com:8443/", 8)
    end_a_plan(store)
    assert WebhookDispatcher(register, receiver.sender).deliver()
    assert (receiver.heard, len(waiting(store))) == ([], 1)


def test_a_name_of_a_private_address_is_not_called(store: Database, receiver: Receiver) -> None:
    register = WebhookStore(store)
    register.add("local", "key", URL, 8)
    end_a_plan(store)
    sender = WebhookSender(receiver.sender.resolve, context=receiver.sender.context)
    assert WebhookDispatcher(register, sender).deliver()
    assert (receiver.heard, len(waiting(store))) == ([], 1)


def test_webhooks_are_off_unless_turned_on(database: str) -> None:
    with serving(database, children=MISBEHAVING) as client:
        answer = client.post("/v1/webhooks", json={"url": URL})
        assert (answer.status_code, answer.json()["title"]) == (403, "Webhooks off")


@contextmanager
def hooked(database: str) -> Iterator[httpx2.Client]:
    keys = ApiKeys(Database(database))
    settings = Settings(database, webhooks=True, keys_required=True, limits=Limits(webhooks=1))
    with TestClient(create_app(Service(settings, MISBEHAVING)), LOCAL) as client:
        client.headers["Authorization"] = f"Bearer {keys.add('a', 'plan')}"
        yield client
        client.headers["Authorization"] = f"Bearer {keys.add('b', 'plan')}"
        assert client.get("/v1/webhooks").json() == {"webhooks": []}
    keys.store.close()


def test_a_webhook_is_made_listed_and_removed(database: str) -> None:
    with hooked(database) as client:
        made = client.post("/v1/webhooks", json={"url": URL}).json()
        listed = client.get("/v1/webhooks").json()["webhooks"]
        assert listed == [{key: made[key] for key in ("id", "url", "created_at")}]
        assert client.post("/v1/webhooks", json={"url": URL}).status_code == 429
        assert client.delete(f"/v1/webhooks/{made['id']}").status_code == 204
        assert client.delete(f"/v1/webhooks/{made['id']}").status_code == 404
        wrong = client.post("/v1/webhooks", json={"url": "https://127.1/"})
        assert (wrong.status_code, wrong.json()["errors"][0]["pointer"]) == (422, "#/url")
