"""An upgrade of the service: the same database and the same request, with another version of the package.

The other version is a copy of the packages in which only planner/version.py has another number.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

from api.http.requests import pack_json
from api.jobs.database import Database
from api.jobs.enqueue import PlanJob
from api.jobs.queue import JobQueue
from planner.documents.versions import current_versions, versions_text
from tests.testing.check_cases import NEVER, wider
from tests.testing.command_line import ROOT, shardplan
from tests.testing.plan_versions import OLDER, by_an_older_version
from tests.testing.postgres_cluster import Databases
from tests.testing.service import ask, ended, planned, serving, start
from tests.testing.small_documents import GRAPH, written

OTHER = "0.9.9"
DETERMINISTIC = {"request": {"deterministic": True}}


@pytest.fixture(scope="module")
def upgraded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packages of another version."""
    folder = tmp_path_factory.mktemp("upgraded")
    for package in ("planner", "solvers", "api"):
        shutil.copytree(ROOT / package, folder / package)
    file = folder / "planner" / "version.py"
    file.write_text(re.sub(r'^VERSION = ".+"$', f'VERSION = "{OTHER}"', file.read_text(), flags=re.MULTILINE))
    return folder


@pytest.mark.slow
def test_after_an_upgrade_a_stored_plan_can_be_read_but_does_not_answer_a_new_request(
    databases: Databases, upgraded: Path, tmp_path: Path
) -> None:
    database = databases()
    server = start(database, tmp_path / "before")
    before = planned(server.client, **DETERMINISTIC)
    assert ask(server.client, **DETERMINISTIC).status_code == 200
    server.stop()
    server = start(database, tmp_path / "after", root=upgraded)
    answer = ask(server.client, **DETERMINISTIC)
    assert answer.status_code == 202, "planned anew"
    after = answer.json()["id"]
    assert after != before
    assert ended(server.client, after)["status"] == "optimal"
    assert ask(server.client, **DETERMINISTIC).status_code == 200
    documents = [server.client.get(f"/v1/plans/{plan}/document").json() for plan in (before, after)]
    server.stop()
    assert [document["id"] for document in documents] == [before, after]
    versions = [document["solver"]["versions"] for document in documents]
    assert versions == [current_versions(), {**current_versions(), "shardplan": OTHER}]
    new = written(tmp_path / "after.json", documents[1])
    told = shardplan("check", new, "--base", written(tmp_path / "before.json", documents[0]), "--json").json
    assert [(entry["side"], entry["recorded"]["id"]) for entry in told["replanned"]] == [("new", after)]


def test_a_plan_that_another_version_queued_is_not_answered_by_this_one(database: str) -> None:
    store = Database(database)
    asked = pack_json({"graph": GRAPH, "mesh": "dp=2,tp=4"})
    JobQueue(store).submit("local", PlanJob(NEVER, "small", asked), 1)
    store.close()
    with serving(database) as client:
        found = ended(client, NEVER)
        assert found["status"] == "failed"
        assert "from a server of another version" in found["error"]
        assert versions_text(current_versions()) in found["error"]
        assert planned(client) != NEVER


def test_a_comparison_with_a_plan_of_an_older_version_says_so(database: str) -> None:
    with serving(database) as client:
        base, new = planned(client, **DETERMINISTIC), planned(client, wider(), **DETERMINISTIC)
        older = by_an_older_version(client.get(f"/v1/plans/{base}/document").json())
        asked = {"new": new, "fail_on": "memory>5%"}
        found, current = (client.post("/v1/comparisons", json={"base": each, **asked}).json() for each in (older, base))
        assert client.post("/v1/comparisons", json={"base": older, "new": new}).json()["versions"]["base"] == OLDER
    (entry,) = found.pop("replanned")
    assert current.pop("replanned") == []
    assert found == current
    assert (entry["recorded"]["versions"], entry["current"]["id"]) == (OLDER, base)
