"""A plan's report over HTTP, and the page at `/` in Chromium: it lists, requests, follows, opens and compares plans."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("fastapi", reason="the service is not installed: pip install shardplan[service]")

import httpx2

from api.http.routes.reports import PAGE_FILES
from api.jobs.api_keys import ApiKeys
from api.jobs.database import Database
from planner.export.report import html_page
from planner.frontends.zoo import MODELS
from tests.testing.browser import browsing, window
from tests.testing.postgres_cluster import Databases
from tests.testing.service import Server, named, planned, start
from tests.testing.small_documents import GRAPH, changed

pytestmark = pytest.mark.service

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HARM = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def server(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    found = start(databases(), tmp_path_factory.mktemp("page") / "log")
    yield found
    found.stop()


@pytest.fixture
def client(server: Server) -> httpx2.Client:
    return server.client


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as found:
        yield found


def test_a_report_is_a_page_or_its_data(client: httpx2.Client) -> None:
    plan, other = planned(client), planned(client, named("other"))
    path = f"/v1/plans/{plan}/report?compare_to={other}"
    page, data = client.get(path), client.get(path, headers={"Accept": "application/json"})
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.text == html_page(data.json())
    assert data.json()["comparison"]["base"] == other
    assert "script-src 'sha256-" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]


def test_the_parameter_that_had_another_name_is_refused_by_the_new_one(client: httpx2.Client) -> None:
    answer = client.get(f"/v1/plans/{'0' * 64}/report?beside={'1' * 64}")
    assert (answer.status_code, answer.json()["detail"]) == (422, "beside is now compare_to")


@pytest.mark.parametrize(("compare_to", "status"), [("0" * 64, 404), ("none", 422)])
def test_a_missing_plan_cannot_be_compared_with(client: httpx2.Client, compare_to: str, status: int) -> None:
    assert client.get(f"/v1/plans/{planned(client)}/report?compare_to={compare_to}").status_code == status


@pytest.mark.parametrize("name", sorted(PAGE_FILES))
def test_a_part_of_the_page_is_served_with_a_policy_and_a_tag(client: httpx2.Client, name: str) -> None:
    path = "/" if name == "index.html" else f"/web/{name}"
    answer = client.get(path)
    assert answer.status_code == 200
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert client.get(path, headers={"If-None-Match": answer.headers["etag"]}).status_code == 304
    assert not re.search(r"<script>|\son\w+=|<style|style=", answer.text) or not name.endswith(".html")


@pytest.mark.parametrize("name", ["../app.py", "%2e%2e%2fapp.py", "nothing.js", ""])
def test_nothing_else_is_served(client: httpx2.Client, name: str) -> None:
    assert client.get(f"/web/{name}").status_code == 404


def fill(page: Page, graph: object, mesh: str = "dp=2,tp=2") -> None:
    page.click("nav >> text=New plan")
    page.select_option("#model", "")
    page.fill("#graph", graph if isinstance(graph, str) else json.dumps(graph))
    page.fill("#mesh", mesh)
    page.click("button.main")


def test_plans_are_requested_opened_saved_and_compared(browser: Browser, server: Server, tmp_path: Path) -> None:
    with window(browser, str(server.client.base_url)) as found:
        page = found.page
        fill(page, {**GRAPH, "name": HARM})
        page.wait_for_selector(".report .headline")
        assert HARM in page.inner_text("h1")
        page.click("#tab-graph")
        assert page.locator(".node").count() > 1
        with page.expect_download() as saved:
            page.click("text=Save the report")
        saved.value.save_as(tmp_path / "report.html")
        assert "shardplan.report" in (tmp_path / "report.html").read_text()
        planned(server.client)
        page.click("nav >> text=Plans")
        for name in (HARM, GRAPH["name"]):
            page.get_by_label(f"compare {name}", exact=True).check()
        page.click("text=Compare two")
        page.click("#tab-compare")
        assert "Totals" in page.inner_text("#panel-compare")
        assert found.faults == []
        assert {url.split("/")[2] for url in found.asked} == {server.client.base_url.netloc.decode()}


def test_the_devices_that_a_model_needs_are_found(browser: Browser, server: Server) -> None:
    with window(browser, str(server.client.base_url)) as found:
        found.page.click("nav >> text=Capacity")
        found.page.select_option("#model", "")
        found.page.fill("#graph", json.dumps(GRAPH))
        found.page.fill("#devices", "2,4")
        found.page.click("button.main")
        found.page.wait_for_selector(".said .cards")
        assert "Fewest devices" in found.page.inner_text(".cards")
        assert found.page.locator(".said .mark").count() > 0
        assert found.page.locator(".said table").count() == 2
        assert found.faults == []


def test_a_built_in_model_is_planned_by_its_name_and_a_link_keeps_the_view(browser: Browser, server: Server) -> None:
    with window(browser, str(server.client.base_url)) as found:
        page = found.page
        page.click("nav >> text=New plan")
        page.wait_for_selector("#model")
        assert found.texts("#model option")[:-1] == [*MODELS]
        for field, text in {"#batch": "2", "#seq": "16", "#mesh": "dp=2", "#seconds": "20"}.items():
            page.fill(field, text)
        page.click("button.main")
        page.wait_for_selector(".report .headline")
        page.click("#tab-memory")
        page.reload()
        page.wait_for_selector("#panel-memory .chart")
        assert "tab=memory" in page.url
        assert page.locator("#key").count() == 0
        assert found.faults == []


def test_a_file_is_dropped_on_the_form(browser: Browser, server: Server, tmp_path: Path) -> None:
    (tmp_path / "dropped.json").write_text(json.dumps(named("dropped")))
    with window(browser, str(server.client.base_url)) as found:
        page = found.page
        page.click("nav >> text=New plan")
        page.set_input_files("#file", tmp_path / "dropped.json")
        assert "dropped.json" in page.inner_text(".drop")
        assert page.input_value("#model") == ""
        page.fill("#mesh", "dp=2")
        page.click("button.main")
        page.wait_for_selector(".report .headline")
        assert "dropped" in page.inner_text("h1")
        assert found.faults == []


@pytest.mark.parametrize(
    ("graph", "pointer"), [('{"nodes": [', "#"), (changed(GRAPH, "nodes.1.op", "nonsense"), "#/graph/nodes/1")]
)
def test_an_error_is_shown_with_its_pointer(browser: Browser, server: Server, graph: object, pointer: str) -> None:
    with window(browser, str(server.client.base_url)) as found:
        fill(found.page, graph)
        assert pointer in found.page.inner_text(".problem")


def test_a_key_is_requested_and_stays_in_the_session(browser: Browser, databases: Databases, tmp_path: Path) -> None:
    database = databases()
    store = Database(database)
    key = ApiKeys(store).add("tenant", "plan")
    store.close()
    server = start(database, tmp_path / "log")
    with window(browser, str(server.client.base_url)) as found:
        assert "API key" in found.page.inner_text(".problem")
        found.page.fill("#key", key)
        found.page.click(".key button")
        found.page.wait_for_selector("text=No plans yet")
        assert found.page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
        found.page.reload()
        found.page.wait_for_selector("text=No plans yet")
    server.stop()
