"""Keys, scopes, tenants and hosts decide who may do what; every answer has the security headers."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

import httpx2

from api.jobs.api_keys import ApiKeys, Scope
from api.jobs.database import Database
from api.settings import is_loopback
from tests.testing.command_line import refused, shardplan
from tests.testing.service import MISBEHAVING, ask, named, serving
from tests.testing.small_documents import GRAPH

pytestmark = pytest.mark.service

OPEN = {("get", "/healthz"), ("get", "/readyz")}
HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}
NO_KEYS = ["", "Bearer", "Bearer ", "Bearer sp_", "Basic abc", "Bearer sp_000000000000_" + "a" * 43, "Bearer \xe9"]
LOOPBACK = ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost"]
ELSEWHERE = ["0.0.0.0", "::", "192.168.1.1", "example.org", "localhost.example.org", ""]


@dataclass(frozen=True)
class House:
    client: httpx2.Client
    keys: ApiKeys

    def as_of(self, tenant: str, scope: Scope = "plan") -> httpx2.Client:
        """The client as one who has a new key sees the service."""
        self.client.headers["Authorization"] = f"Bearer {self.keys.add(tenant, scope)}"
        return self.client


@contextmanager
def house(database: str) -> Iterator[House]:
    keys = ApiKeys(Database(database))
    with serving(database, keys_required=True, children=MISBEHAVING) as client:
        yield House(client, keys)
    keys.store.close()


def operations(client: httpx2.Client) -> list[tuple[str, str, Any]]:
    """Method, path and body of every operation, by the description."""
    found = []
    for path, methods in client.get("/openapi.json").json()["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {})
            found.append((method, path, content.get("application/json", {}).get("example")))
    return found


def test_every_operation_requires_a_key(database: str) -> None:
    with house(database) as found:
        listed = operations(found.client)
        assert len(listed) >= 14
        for method, path, body in listed:
            for words in NO_KEYS:
                headers = {b"Authorization": words.encode("latin-1")}
                answer = found.client.request(
                    method,
                    path.format(plan="0" * 64, sweep="0" * 64, webhook="0" * 16, model="gpt2"),
                    json=body,
                    headers=headers,
                )
                assert answer.status_code == (200 if (method, path) in OPEN else 401), (method, path, words)


def test_the_plan_of_another_tenant_is_not_found(database: str) -> None:
    with house(database) as found:
        plan = ask(found.as_of("a"), named("hang")).json()["id"]
        stranger = found.as_of("b")
        of_a_plan = [(method, path) for method, path, _ in operations(stranger) if "{plan}" in path]
        assert {method for method, _ in of_a_plan} == {"get", "delete"}
        for method, path in of_a_plan:
            params = {"format": "mesh"} if path.endswith("/export") else None
            answer = stranger.request(method, path.format(plan=plan), params=params)
            assert answer.status_code == 404, (method, path)
        for body in ({"plan": plan}, {"base": plan, "new": plan}):
            where = "validations" if "plan" in body else "comparisons"
            assert stranger.post(f"/v1/{where}", json=body).status_code == 404
        assert stranger.get("/v1/plans").json()["plans"] == []
        assert ask(stranger, named("hang")).status_code == 202, "and is not known to be planned"
        assert found.as_of("a").get(f"/v1/plans/{plan}").json()["status"] in ("queued", "running")


SCOPES: list[tuple[Scope, int, int, int]] = [("read", 200, 403, 403), ("plan", 200, 202, 403), ("admin", 200, 202, 200)]


@pytest.mark.parametrize(("scope", "reads", "asks", "measures"), SCOPES)
def test_a_scope_allows_exactly_its_operations(
    scope: Scope, reads: int, asks: int, measures: int, database: str
) -> None:
    with house(database) as found:
        client = found.as_of("a", scope)
        assert client.get("/v1/plans").status_code == reads
        assert ask(client, named("exit")).status_code == asks
        assert client.get("/metrics").status_code == measures


def test_no_body_is_read_without_a_key(database: str) -> None:
    def never() -> Iterator[bytes]:
        for _ in range(64):
            yield b" " * (1 << 20)

    with house(database) as found:
        headers = {"Content-Type": "application/json"}
        assert found.client.post("/v1/plans", content=never(), headers=headers).status_code == 401


def test_a_revoked_key_is_refused_and_the_service_still_requires_keys(database: str) -> None:
    with serving(database, children=MISBEHAVING) as client:
        assert client.get("/v1/plans").status_code == 200
        keys = ApiKeys(Database(database))
        text = keys.add("a", "plan")
        headers = {"Authorization": f"Bearer {text}"}
        assert client.get("/v1/plans").status_code == 401, "closed from the first key on"
        assert client.get("/v1/plans", headers=headers).status_code == 200
        keys.revoke(text.split("_")[1])
        assert client.get("/v1/plans", headers=headers).status_code == 401
        assert client.get("/v1/plans").status_code == 401
        keys.store.close()


def test_a_secret_is_kept_nowhere(tmp_path: Path) -> None:
    keys = ApiKeys(Database(f"sqlite:///{tmp_path}/service.db"))
    secret = keys.add("a", "plan").split("_", 2)[2]
    keys.store.close()
    assert all(secret.encode() not in file.read_bytes() for file in tmp_path.iterdir())


HOSTS = [
    "example.org",
    "127.0.0.1.example.org",
    "192.168.0.1",
    "127.0.0.1@example.org",
    "example.org@127.0.0.1",
    "127.0.0.1/example.org",
    "localhost:80:80",
    "[::1",
    "",
]


@pytest.mark.parametrize("host", HOSTS)
def test_without_keys_only_loopback_is_answered(host: str, database: str) -> None:
    with serving(database, children=MISBEHAVING) as client:
        assert client.get("/v1/plans", headers={"Host": host}).status_code == 421
        assert client.get("/v1/plans", headers={"Host": "localhost:8000"}).status_code == 200


@pytest.mark.parametrize("path", ["/v1/plans", "/nowhere", "/healthz", "/openapi.json"])
def test_every_answer_has_the_headers(path: str, database: str) -> None:
    with serving(database, children=MISBEHAVING) as client:
        headers = client.get(path).headers
        assert {name: headers[name] for name in HEADERS} == HEADERS
        assert re.fullmatch("[0-9a-f]{16}", headers["x-request-id"])
        assert "server" not in headers


@pytest.mark.parametrize("host", LOOPBACK)
def test_loopback_addresses_are_recognised(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ELSEWHERE)
def test_other_addresses_are_not_loopback(host: str) -> None:
    assert not is_loopback(host)


def test_without_keys_only_loopback_can_be_listened_on(tmp_path: Path) -> None:
    database = tmp_path / "service.db"
    refused(shardplan("serve", "--host", "0.0.0.0", "--database", database), "no keys")
    made = shardplan("keys", "create", "a", "--database", database, "--json").json
    shardplan("keys", "revoke", made["id"], "--database", database)
    refused(shardplan("serve", "--host", "0.0.0.0", "--database", database), "no keys")


def test_keys_are_made_listed_and_revoked_by_command(tmp_path: Path) -> None:
    database = tmp_path / "service.db"
    made = shardplan("keys", "create", "team-a", "--scope", "read", "--database", database, "--json").json
    assert made["key"].startswith(f"sp_{made['id']}_")
    listed = shardplan("keys", "list", "--database", database, "--json").json["keys"]
    assert [(key["id"], key["tenant"], key["scope"], key["state"]) for key in listed] == [
        (made["id"], "team-a", "read", "valid")
    ]
    assert made["key"] not in str(listed)
    assert shardplan("keys", "revoke", made["id"], "--database", database).code == 0
    refused(shardplan("keys", "revoke", made["id"], "--database", database), "no such key")
    assert shardplan("keys", "list", "--database", database, "--json").json["keys"][0]["state"] == "revoked"
    refused(shardplan("keys", "create", "a b", "--database", database), "tenant")


def test_a_database_elsewhere_or_of_another_kind_is_refused(tmp_path: Path) -> None:
    refused(shardplan("keys", "list", "--database", "mysql://root@db/plans"), "--database")
    file = tmp_path / "not.db"
    file.write_text(str(GRAPH) * 10)
    refused(shardplan("keys", "list", "--database", file), "not.db")


def test_without_its_extra_the_service_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "api.cli.serve", raising=False)
    refused(shardplan("serve"), "pip install shardplan[service]")
