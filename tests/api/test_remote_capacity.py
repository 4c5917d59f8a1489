"""A capacity question that a server answers with its workers, followed from the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

from api.client import PlanUnavailable, ServerBusy, ServiceClient
from api.options import CapacityOptions
from api.remote_capacity import RetryingClient, describe_question
from planner.documents.hardware import read_profile
from planner.errors import InvalidRequest
from planner.judge.mesh_candidates import enumerate_candidates
from planner.planning.plan_types import Request
from planner.usecases.capacity_question import CapacityQuestion, CapacityWorkload, HardwareOffer
from tests.testing.command_line import refused, shardplan
from tests.testing.service import start
from tests.testing.small_documents import GRAPH

pytestmark = pytest.mark.service

QUESTION = CapacityQuestion(
    (CapacityWorkload(GRAPH, None),),
    (HardwareOffer(read_profile("cpu"), None),),
    enumerate_candidates(1, 1, (2, 4), axes=2),
    Request(gap=0.01),
)
OPTIONS = CapacityOptions(devices="2..4")


@pytest.mark.slow
def test_a_server_answers_as_the_command_line_does_and_keeps_the_plans(tmp_path: Path) -> None:
    server = start(f"sqlite:///{tmp_path}/service.db", tmp_path / "log")
    graph = tmp_path / "graph.json"
    graph.write_text(json.dumps(GRAPH))
    asked = "capacity", graph, "--hardware", "cpu=0.5", "--devices", "2..4"
    try:
        url = str(server.client.base_url)
        here = shardplan(*asked, "--json").json
        folder = tmp_path / "plans"
        folder.mkdir()
        there = shardplan(*asked, "--json", "--server", url, "--jobs", 3, "--plans", folder, "--validate").json
        assert there["id"] == here["id"]
        assert [each["devices"] for each in there["frontier"]] == [each["devices"] for each in here["frontier"]]
        assert there["cheapest"]["cost"] == pytest.approx(here["cheapest"]["cost"], rel=0.01)
        plans = [point["plan"] for point in there["frontier"]]
        assert {plan["verdict"] for plan in plans} == {"equal"}
        assert {file.name for file in folder.iterdir()} == {f"{plan['id']}.json.gz" for plan in plans}
        assert shardplan("explain", folder / f"{plans[0]['id']}.json.gz").code == 0
        assert "smallest" in shardplan(*asked, "--server", url, "--jobs", 3).out
        refused(shardplan(*asked, "--server", url, "--journal", tmp_path / "journal"), "--journal with --server")
        refused(shardplan(*asked, "--server", url, "--max-step", "1e-12"), "no plan meets the budget")
    finally:
        server.stop()


def test_a_server_has_profiles_of_its_own() -> None:
    mine = HardwareOffer({**read_profile("cpu"), "launch_s": 0.5}, None)
    with pytest.raises(InvalidRequest, match="with a profile of yours"):
        describe_question(replace(QUESTION, offers=(mine,)), OPTIONS, None, jobs=2)


def test_invalid_urls_and_unreachable_servers_are_reported() -> None:
    with pytest.raises(InvalidRequest, match="--server"):
        ServiceClient("ftp://somewhere")
    with pytest.raises(InvalidRequest, match="cannot be reached"):
        RetryingClient(ServiceClient("http://127.0.0.1:1")).request("/v1/capacity", {})


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


def test_a_server_that_stays_busy_is_an_error() -> None:
    with busy([503]) as url, pytest.raises(ServerBusy, match=r"the server refuses .*got 503"):
        RetryingClient(ServiceClient(url), 0.3).request("/v1/capacity", {})


def test_a_busy_server_is_retried() -> None:
    with busy([429, 503, 404]) as url, pytest.raises(PlanUnavailable, match="got 404"):
        RetryingClient(ServiceClient(url)).request("/v1/capacity", {})
