"""A capacity question whose meshes a server plans: the answer is that of planning them here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

from api.elsewhere import asked_of
from planner.capacity import survey
from planner.documents.hardware import profile_document
from planner.errors import InvalidRequest
from planner.judge.candidates import candidates
from planner.plans import Request
from planner.sweep import Asked, Offer, Question, Survey
from tests.api.http.serving import start
from tests.api.small import GRAPH

QUESTION = Question(
    (Asked(GRAPH, None),), (Offer(profile_document("cpu"), None),), candidates(1, 1, (2, 4), 2), Request(gap=0.01)
)


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


def _frontier(found: Survey) -> dict[int, float]:
    """Seconds of a step by the number of devices."""
    return {QUESTION.candidates[n].mesh.devices: found.outcomes[n].objective_s or 0.0 for n in found.frontier()}
