"""A capacity question whose meshes a server plans: the answer is that of planning them here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

from api.elsewhere import asked_of
from api.remote import Busy, NotKept
from planner.capacity import survey
from planner.documents.hardware import profile_document
from planner.errors import InvalidRequest
from planner.judge.candidates import candidates
from planner.plans import Request
from planner.sweep import Asked, Offer, Question, Survey
from tests.testing.service import start
from tests.testing.small_documents import GRAPH

pytestmark = pytest.mark.service

QUESTION = Question(
    (Asked(GRAPH, None),), (Offer(profile_document("cpu"), None),), candidates(1, 1, (2, 4), 2), Request(gap=0.01)
)


@pytest.mark.slow
def test_a_server_finds_the_frontier_and_knows_its_plans_when_asked_again(tmp_path: Path) -> None:
    server = start(f"sqlite:///{tmp_path}/service.db", tmp_path / "log")
    try:
        ask = asked_of(str(server.client.base_url), QUESTION)
        here, there, again = survey(QUESTION), survey(QUESTION, processes=2, ask=ask), survey(QUESTION, ask=ask)
        for found in (there, again):
            assert _frontier(found).keys() == _frontier(here).keys()
            assert _frontier(found) == pytest.approx(_frontier(here), rel=0.01)
        assert len(server.client.get("/v1/plans").json()["plans"]) == there.planned
    finally:
        server.stop()


def test_a_server_has_profiles_of_its_own() -> None:
    mine = Offer({**profile_document("cpu"), "launch_s": 0.5}, None)
    with pytest.raises(InvalidRequest, match="with a profile of yours"):
        asked_of("http://127.0.0.1:1", replace(QUESTION, offers=(mine,)))


def test_what_is_no_address_and_who_does_not_answer_are_told() -> None:
    with pytest.raises(InvalidRequest, match="--server"):
        asked_of("ftp://somewhere", QUESTION)
    with pytest.raises(InvalidRequest, match="cannot be reached"):
        survey(QUESTION, ask=asked_of("http://127.0.0.1:1", QUESTION))


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
def test_a_server_that_stays_busy_is_asked_until_time_is_up_and_no_longer(status: int) -> None:
    with busy([status]) as url:
        found = survey(QUESTION, ask=asked_of(url, QUESTION, time_limit_s=0.3), time_limit_s=0.3)
    assert found.outcomes == {}
    assert {passed.why for passed in found.passed.values()} == {"time"}


def test_without_a_limit_a_server_that_stays_busy_is_told() -> None:
    with busy([503]) as url, pytest.raises(Busy, match=r"the server refuses .*got 503"):
        survey(QUESTION, ask=asked_of(url, QUESTION, patience_s=0.3))


def test_a_server_that_was_busy_is_asked_again() -> None:
    with busy([429, 503, 404]) as url, pytest.raises(NotKept, match="got 404"):
        survey(QUESTION, ask=asked_of(url, QUESTION))


def _frontier(found: Survey) -> dict[int, float]:
    """Seconds of a step by the number of devices."""
    return {QUESTION.candidates[n].mesh.devices: found.outcomes[n].objective_s or 0.0 for n in found.frontier()}
