"""A capacity question whose meshes a server plans: the answer equals that of planning them locally."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

from api.client import PlanUnavailable, ServerBusy
from api.remote_planner import plan_on_server
from planner.documents.hardware import read_profile
from planner.errors import InvalidRequest
from planner.judge.mesh_candidates import enumerate_candidates
from planner.planning.deadline import Deadline
from planner.planning.plan_types import Request
from planner.usecases.capacity import search_meshes
from planner.usecases.capacity_question import CapacityQuestion, CapacityWorkload, HardwareOffer
from planner.usecases.capacity_search import CapacitySearch
from tests.testing.service import start
from tests.testing.small_documents import GRAPH

pytestmark = pytest.mark.service

QUESTION = CapacityQuestion(
    (CapacityWorkload(GRAPH, None),),
    (HardwareOffer(read_profile("cpu"), None),),
    enumerate_candidates(1, 1, (2, 4), axes=2),
    Request(gap=0.01),
)


@pytest.mark.slow
def test_a_server_finds_the_frontier_and_reuses_its_plans(tmp_path: Path) -> None:
    server = start(f"sqlite:///{tmp_path}/service.db", tmp_path / "log")
    try:
        ask = plan_on_server(str(server.client.base_url), QUESTION)
        here, there, again = (
            search_meshes(QUESTION),
            search_meshes(QUESTION, processes=2, ask=ask),
            search_meshes(QUESTION, ask=ask),
        )
        for found in (there, again):
            assert _frontier(found).keys() == _frontier(here).keys()
            assert _frontier(found) == pytest.approx(_frontier(here), rel=0.01)
        assert len(server.client.get("/v1/plans").json()["plans"]) == there.planned_count
    finally:
        server.stop()


def test_a_server_has_profiles_of_its_own() -> None:
    mine = HardwareOffer({**read_profile("cpu"), "launch_s": 0.5}, None)
    with pytest.raises(InvalidRequest, match="with a profile of yours"):
        plan_on_server("http://127.0.0.1:1", replace(QUESTION, offers=(mine,)))


def test_invalid_urls_and_unreachable_servers_are_reported() -> None:
    with pytest.raises(InvalidRequest, match="--server"):
        plan_on_server("ftp://somewhere", QUESTION)
    with pytest.raises(InvalidRequest, match="cannot be reached"):
        search_meshes(QUESTION, ask=plan_on_server("http://127.0.0.1:1", QUESTION))


@contextmanager
def busy(answers: Sequence[int]) -> Iterator[str]:
    """A server that refuses whatever it is asked: the statuses in turn, the last for good."""
    left = list(answers)

    class Refusing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_error(left.pop(0) if len(left) > 1 else left[0])

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Refusing) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_retried_until_the_time_is_up(status: int) -> None:
    with busy([status]) as url:
        found = search_meshes(QUESTION, ask=plan_on_server(url, QUESTION, Deadline(0.3)), deadline=Deadline(0.3))
    assert found.outcomes == {}
    assert {passed.skip_reason for passed in found.skipped.values()} == {"time"}


def test_without_a_time_limit_a_server_that_stays_busy_is_an_error() -> None:
    with busy([503]) as url, pytest.raises(ServerBusy, match=r"the server refuses .*got 503"):
        search_meshes(QUESTION, ask=plan_on_server(url, QUESTION, patience_s=0.3))


def test_a_busy_server_is_retried() -> None:
    with busy([429, 503, 404]) as url, pytest.raises(PlanUnavailable, match="got 404"):
        search_meshes(QUESTION, ask=plan_on_server(url, QUESTION))


def _frontier(found: CapacitySearch) -> dict[int, float]:
    """Seconds of a step by the number of devices."""
    return {QUESTION.candidates[n].mesh.devices: found.outcomes[n].objective_s or 0.0 for n in found.frontier()}
