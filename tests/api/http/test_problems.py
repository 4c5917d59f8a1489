"""Every error is a problem (RFC 9457), with a JSON pointer to the fault in the body."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

import httpx2
from fastapi import Request

from api.http.limits import BodyBudget, HeldBytes, read_body
from api.http.problems import HttpProblem, problem_of_planner_error, problem_of_task_result
from api.jobs.database import Database
from api.jobs.worker_process import TaskEnd, TaskResult
from api.settings import Limits
from planner.documents.json_reader import MAX_VALUES
from planner.errors import InvalidMesh
from tests.testing.postgres_cluster import Databases
from tests.testing.service import MISBEHAVING, ask, named, serving, writers_stopped
from tests.testing.small_documents import GRAPH, LEFT_OUT, MESH, changed, pin, pins, typed

pytestmark = pytest.mark.service

ASK = {"graph": GRAPH, "mesh": MESH}
JSON = {"Content-Type": "application/json"}
GZIP = {**JSON, "Content-Encoding": "gzip"}
NO_PLAN = f"/v1/plans/{'0' * 64}"
TWICE = [GRAPH["inputs"][0], GRAPH["inputs"][0], GRAPH["inputs"][1]]
OTHER_SHAPE = [{"id": "a", "op": "linear", "inputs": ["x", "w"], "outputs": [typed(8, 33)]}, GRAPH["nodes"][1]]

# What is changed in a good ask, the value, the status, the pointer.
FAULTS: list[tuple[str, object, int, str]] = [
    ("graph", LEFT_OUT, 422, "#/graph"),
    ("graph", None, 422, "#/graph"),
    ("graph", [], 422, "#/graph"),
    ("mesh", LEFT_OUT, 422, "#/mesh"),
    ("more", 1, 422, "#/more"),
    ("sl/ash~", 1, 422, "#/sl~1ash~0"),
    ("graph.format", "pickle", 422, "#/graph/format"),
    ("graph.version", True, 422, "#/graph/version"),
    ("graph.nodes.0.op", 3, 422, "#/graph/nodes/0/op"),
    ("graph.nodes.0.op", "no_such_op", 422, "#/graph/nodes/0"),
    ("graph.nodes.1.inputs.0", "nobody", 422, "#/graph/nodes/1"),
    ("graph.nodes", OTHER_SHAPE, 422, "#/graph/nodes/0"),
    ("graph.inputs.1.shape.0", True, 422, "#/graph/inputs/1/shape/0"),
    ("graph.inputs.1.shape.0", "32", 422, "#/graph/inputs/1/shape/0"),
    ("graph.inputs.1.shape.0", 32.0, 422, "#/graph/inputs/1/shape/0"),
    ("graph.inputs.1.shape.0", 1 << 41, 422, "#/graph/inputs/1/shape/0"),
    ("graph.inputs.0.name", "\0", 422, "#/graph/inputs/0/name"),
    ("graph.inputs.0.name", "x" * 1025, 422, "#/graph/inputs/0/name"),
    ("graph.inputs", TWICE, 422, "#/graph"),
    ("graph.outputs.0", "nobody", 422, "#/graph"),
    ("graph.annotations", [pin("x", [["pp"]])], 422, "#/graph/annotations/0"),
    ("pins", pins(pin("x", [["dp"]]), pin("a", [["pp"]])), 422, "#/pins/annotations/1"),
    ("mesh", "dp=two", 422, "#/mesh"),
    ("mesh", "dp=?", 422, "#/mesh"),
    ("mesh", "dp=2000000", 422, "#/mesh"),
    ("mesh.axes.0.size", 0, 422, "#/mesh/axes/0/size"),
    ("mesh.axes.1.name", "dp", 422, "#/mesh"),
    ("mesh.axes.0.link", "string", 422, "#/mesh"),
    ("mesh.device", "abacus", 422, "#/mesh/device"),
    ("hardware", "abacus", 422, "#/hardware"),
    ("request", {"gap": 1}, 422, "#/request/gap"),
    ("request", {"time_limit_s": 0}, 422, "#/request/time_limit_s"),
    ("request", {"memory_limit_bytes": 0}, 422, "#/request/memory_limit_bytes"),
    ("request", {"objective": "beauty"}, 422, "#/request/objective"),
    ("request", {"seed": -1}, 422, "#/request/seed"),
]

# Bodies that are no JSON, or too much of it.
BODIES: list[tuple[bytes, dict[str, str], int]] = [
    (b"", JSON, 400),
    (b"{", JSON, 400),
    (b"\xff", JSON, 400),
    (b'{"a": NaN}', JSON, 400),
    (b'{"a": 1, "a": 2}', JSON, 400),
    (b'{"a": "\\ud800"}', JSON, 400),
    (b'{"a": ' + b"9" * 5000 + b"}", JSON, 400),
    (b"[" * 100_000, JSON, 400),
    (b"[" * 100 + b"]" * 100, JSON, 400),
    (b"[" + b"1," * MAX_VALUES + b"1]", JSON, 400),
    (b"null", JSON, 422),
    (b"{}", {}, 415),
    (b"{}", {"Content-Type": "text/plain"}, 415),
    (b"{}", {"Content-Type": "application/x-yaml"}, 415),
    (b"{}", {**JSON, "Content-Encoding": "br"}, 415),
    (b"{}", GZIP, 400),
    (gzip.compress(b"{}")[:-3], GZIP, 400),
    (gzip.compress(b"{}") + b"more", GZIP, 400),
    (gzip.compress(b"{"), GZIP, 400),
    (gzip.compress(b" " * (17 << 20)), GZIP, 413),
    (b" " * (17 << 20), JSON, 413),
]

# Requests without a body.
REQUESTS = [
    ("GET", "/nowhere", 404),
    ("GET", "/v1/plans/", 404),
    ("GET", NO_PLAN, 404),
    ("GET", "/v1/plans/%00", 404),
    ("GET", f"{NO_PLAN}/document", 404),
    ("GET", f"{NO_PLAN}/events", 404),
    ("GET", f"{NO_PLAN}/export?format=mesh", 404),
    ("DELETE", NO_PLAN, 404),
    ("PUT", "/v1/plans", 405),
    ("DELETE", "/v1/plans", 405),
    ("POST", "/v1/limits", 405),
    ("BREW", "/v1/plans", 405),
    ("POST", "/v1/plans", 415),
    ("GET", "/v1/plans?limit=0", 422),
    ("GET", "/v1/plans?limit=many", 422),
    ("GET", "/v1/plans?after=-1", 422),
    ("GET", f"{NO_PLAN}/export?format=pdf", 422),
    ("GET", f"{NO_PLAN}/export", 422),
    ("GET", "/v1/plans?limits=2", 422),
    ("GET", "/v1/plans?limit=2&limits=2", 422),
    ("GET", f"{NO_PLAN}?format=mesh", 422),
    ("DELETE", f"{NO_PLAN}?format=mesh", 422),
    ("GET", "/healthz?a", 422),
    ("GET", "/openapi.json?a=1", 422),
    ("GET", "/?a=1", 422),
]


@pytest.fixture(scope="module")
def client(databases: Databases) -> Iterator[httpx2.Client]:
    with serving(databases(), children=MISBEHAVING) as client:
        yield client


def problem(answer: httpx2.Response, status: int) -> Any:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json()
    assert told["status"] == status
    assert told["type"].startswith("urn:shardplan:problem:")
    assert told["title"]
    assert told["detail"]
    assert len(answer.text) < 4000
    return told


@pytest.mark.parametrize(("path", "value", "status", "pointer"), FAULTS)
def test_a_fault_in_a_request_has_a_pointer(
    path: str, value: object, status: int, pointer: str, client: httpx2.Client
) -> None:
    told = problem(client.post("/v1/plans", json=changed(ASK, path, value)), status)
    assert [fault["pointer"] for fault in told["errors"]] == [pointer]


@pytest.mark.parametrize("number", range(len(BODIES)))
def test_a_body_that_cannot_be_read_is_a_problem(number: int, client: httpx2.Client) -> None:
    body, headers, status = BODIES[number]
    told = problem(client.post("/v1/plans", content=body, headers=headers), status)
    if status == 400:
        assert told["errors"][0]["pointer"] == "#"


@pytest.mark.parametrize(("method", "path", "status"), REQUESTS)
def test_a_request_that_is_wrong_is_a_problem(method: str, path: str, status: int, client: httpx2.Client) -> None:
    problem(client.request(method, path), status)


def test_a_body_without_a_length_is_counted(client: httpx2.Client) -> None:
    pieces = (b" " * (1 << 20) for _ in range(40))
    problem(client.post("/v1/plans", content=pieces, headers=JSON), 413)


def test_a_body_that_does_not_arrive_times_out() -> None:
    async def never() -> Any:
        await asyncio.Event().wait()

    headers = [(b"content-type", b"application/json")]
    request = Request({"type": "http", "method": "POST", "headers": headers}, never)
    with pytest.raises(HttpProblem, match=r"not arrive within 0\.01 s"):
        asyncio.run(read_body(request, Limits(body_s=0.01), HeldBytes(BodyBudget(1), "a")))


def test_bodies_in_flight_are_limited_and_make_room_when_their_requests_end(database: str) -> None:
    with serving(database, Limits(bodies_bytes=1 << 20), workers=0) as client:
        for body, headers in ((b" " * (600 << 10), JSON), (gzip.compress(b" " * (600 << 10)), GZIP)):
            answer = client.post("/v1/plans", content=body, headers=headers)
            problem(answer, 503)
            assert answer.headers["retry-after"] == "1"
        for _ in range(5):
            problem(client.post("/v1/plans", content=b" " * (400 << 10), headers=JSON), 400)


def test_a_tenant_leaves_half_of_the_bytes_of_bodies_to_others() -> None:
    budget = BodyBudget(100)
    with budget.open("a") as first, budget.open("a") as second:
        first.add(40)
        with pytest.raises(HttpProblem, match="too many bodies"):
            second.add(20)
        with budget.open("b") as other:
            other.add(50)
            with budget.open("c") as late, pytest.raises(HttpProblem):
                late.add(20)
    with budget.open("a") as again:
        again.add(50)


@pytest.mark.parametrize(("limits", "what"), [(Limits(nodes=1), "2 nodes"), (Limits(edges=2), "3 edges")])
def test_a_graph_larger_than_is_allowed_here_is_refused(limits: Limits, what: str, database: str) -> None:
    with serving(database, limits, workers=0) as client:
        told = problem(ask(client), 413)
    assert what in told["detail"]
    assert told["errors"][0]["pointer"] == "#/graph/nodes"


def test_a_full_queue_and_a_hasty_caller_get_retry_after(database: str) -> None:
    limits = Limits(max_queued=1, requests_per_s=0.001, burst=8)
    with serving(database, limits, workers=0) as client:
        answers = [ask(client, named(name)) for name in ("hang", "hang", "spin", "fault", "exit", "abort")]
        full = [answer for answer in answers if answer.status_code == 429]
        assert full
        assert {problem(answer, 429)["title"] for answer in full} == {"Queue full"}
        hasty = [client.get("/v1/limits") for _ in range(8)][-1]
        assert problem(hasty, 429)["title"] == "Too many requests"
        assert int(hasty.headers["retry-after"]) >= 1


def test_a_database_that_is_locked_is_503_and_comes_back(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.jobs.database.LOCK_TIMEOUT_MS", 100)
    other = Database(database)
    with serving(database, workers=0) as client:
        with writers_stopped(other):
            answer = ask(client, named("hang"))
            assert problem(answer, 503)["title"] == "Database unavailable"
            assert answer.headers["retry-after"]
            assert client.get("/healthz").status_code == 200
        other.close()
        assert ask(client, named("hang")).status_code == 202


def test_a_fault_has_one_type_in_whichever_process_it_is_found() -> None:
    error = InvalidMesh("no such axis", got="pp", wanted="dp", pointer="/mesh")
    head = {"error_class": "InvalidMesh", "message": str(error), "got": "pp", "wanted": "dp", "pointer": "/mesh"}
    found = [problem_of_planner_error(error), problem_of_task_result(TaskResult("refused", head))]
    assert len({(each.status, bytes(each.response().body)) for each in found}) == 1
    assert found[0].kind == "invalid-mesh"


@pytest.mark.parametrize(
    ("kind", "status", "title"),
    [("exceeded", 422, "Limits exceeded"), ("killed", 503, "Task killed"), ("failed", 500, "Task failed")],
)
def test_a_task_without_a_result_is_a_problem_of_its_cause(kind: TaskEnd, status: int, title: str) -> None:
    answer = problem_of_task_result(TaskResult(kind, {"error": "out of memory"})).response()
    told = json.loads(bytes(answer.body))
    assert (answer.status_code, told["title"], told["detail"]) == (status, title, "out of memory")


def test_an_internal_error_is_a_problem_without_details(database: str) -> None:
    with serving(database, workers=0) as client:
        del client.app.state.rate_limiter  # type: ignore[attr-defined]
        answer = client.get("/v1/limits")
        assert "rates" not in problem(answer, 500)["detail"]
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_pointers_lead_to_the_fault() -> None:
    """The table's own check: each pointer, followed in the ask it belongs to, ends at something that is there."""
    for path, value, _, pointer in FAULTS:
        at: Any = changed(ASK, path, value)
        for part in pointer.removeprefix("#/").split("/"):
            key = part.replace("~1", "/").replace("~0", "~")
            if value is LEFT_OUT:
                break
            at = at[int(key)] if isinstance(at, list) else at[key]
