"""The report in Chromium: its views, its graph by mouse and keys, two plans side by side, malicious names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from api.cli.plan import INFEASIBLE
from tests.testing.browser import Window, browsing, window
from tests.testing.command_line import shardplan
from tests.testing.small_documents import GRAPH, Document, typed, written

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SCRIPT = "</script><script>window.harmed = 1</script>"
IMAGE = '<img src=x onerror="window.harmed = 1">'
REVERSED = "gemm\u202egnp.exe"
LAYERS = 70
"""More than a box shows at once."""
TABS = ["Summary", "Graph", "Memory", "Communication", "Schedule"]


def layered() -> Document:
    """A chain of layers, some with a product, then two ops with names that mean harm, the last of the backward pass."""
    nodes: list[Document] = []
    for k in range(LAYERS):
        last = nodes[-1]["id"] if nodes else "x"
        is_product = k % 20 == 1
        named = {"id": f"product_{k}", "op": "linear"} if is_product else {"id": f"act_{k}", "op": "relu"}
        inputs = [last, "w"] if is_product else [last]
        nodes.append({**named, "inputs": inputs, "outputs": [typed(2048, 2048)], "scope": f"net.layers.{k}"})
    harm = {"id": SCRIPT, "op": "relu", "inputs": [nodes[-1]["id"]], "outputs": [typed(2048, 2048)], "scope": IMAGE}
    back = {"id": REVERSED, "op": "relu", "inputs": [SCRIPT], "outputs": [typed(2048, 2048)], "phase": "backward"}
    return {
        "format": "shardplan.graph",
        "version": 1,
        "name": f"chain {IMAGE}",
        "inputs": [
            {"id": "x", "kind": "input", "name": "x", **typed(2048, 2048)},
            {"id": "w", "kind": "parameter", "name": f"weight {IMAGE}", **typed(2048, 2048)},
        ],
        "nodes": [*nodes, harm, back],
        "outputs": [REVERSED],
    }


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as found:
        yield found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Path:
    """Reports of a plan, of one beside another, and of one that is infeasible."""
    place = tmp_path_factory.mktemp("pages")
    graph = written(place / "graph.json", layered())
    small = written(place / "small.json", GRAPH)
    planned: dict[str, list[object]] = {"plan": [graph], "other": [graph], "none": [small, "--memory-limit", "1KB"]}
    for name, words in planned.items():
        mesh = "dp=2" if name == "other" else "dp=2,tp=2"
        made = shardplan("plan", *words, "--mesh", mesh, "--deterministic", "-o", place / f"{name}.json")
        assert made.code in (0, INFEASIBLE), made.err
    reported: dict[str, list[object]] = {"plan": [], "both": ["--compare-to", place / "other.json"], "none": []}
    for name, more in reported.items():
        plan = place / ("plan.json" if name == "both" else f"{name}.json")
        made = shardplan("report", plan, *more, "-o", place / f"{name}.html")
        assert made.code in (0, INFEASIBLE), made.err
    return place


@pytest.fixture
def report(browser: Browser, folder: Path) -> Iterator[Window]:
    with window(browser, (folder / "plan.html").as_uri()) as found:
        yield found
        assert found.faults == []
        assert found.page.evaluate("window.harmed") is None
        assert found.asked == [(folder / "plan.html").as_uri()]


def nodes(found: Window) -> list[str]:
    return found.texts(".picture .node .name")


def test_every_view_opens_and_the_file_asks_for_nothing(report: Window) -> None:
    assert report.texts("[role=tab]") == TABS
    assert "Proven: no plan" in report.page.inner_text(".headline")
    assert "Model FLOPs utilisation" in report.page.inner_text(".cards")
    for tab in TABS:
        report.page.click(f"#tab-{tab.lower()}")
        assert report.page.locator("[role=tabpanel]:visible").count() == 1
    assert report.page.locator("canvas").is_visible()


def test_the_graph_opens_on_the_models_own_structure(report: Window) -> None:
    report.page.click("#tab-graph")
    found = nodes(report)
    assert "▾ forward" in found
    assert len(found) > 5
    assert report.page.evaluate("document.querySelector('.window').scrollTop") == 0


def test_scopes_are_closed_and_opened_one_by_one(report: Window) -> None:
    report.page.click("#tab-graph")
    report.page.click("text=close all")
    assert nodes(report) == ["▸ forward", "▸ backward", "outputs"]
    report.page.click(".node.box >> nth=0")
    report.page.click(".node.box .name >> text=net.layers")
    assert {"▸ layers.0 … layers.34", "▸ layers.35 … layers.69"} < set(nodes(report))
    assert report.texts(".picture .edge text")


def test_a_search_opens_what_it_finds_and_tells_of_it(report: Window) -> None:
    report.page.click("#tab-graph")
    report.page.fill("[type=search]", "product_21")
    report.page.keyboard.press("Enter")
    assert report.page.inner_text(".panel h3") == "product_21"
    assert report.texts(".node.picked .name") == ["product_21"]
    panel = report.page.inner_text(".panel")
    for words in ("compute time", "Other sharding options", "shardplan explain PLAN 'product_21'", "weight"):
        assert words in panel
    report.page.click(".panel button.link >> text=act_20")
    assert report.page.inner_text(".panel h3") == "act_20"


def test_the_graph_is_walked_by_keys_alone(report: Window) -> None:
    report.page.focus("#tab-summary")
    report.page.keyboard.press("ArrowRight")
    report.page.click("text=close all")
    report.page.focus('.node[tabindex="0"]')
    report.page.keyboard.press("ArrowDown")
    assert "backward" in report.page.evaluate("document.activeElement.getAttribute('aria-label')")
    report.page.keyboard.press("ArrowUp")
    report.page.keyboard.press("Enter")
    assert report.page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"
    assert len(nodes(report)) > 3


def test_a_link_leads_to_the_same_tab_boxes_and_selection(browser: Browser, folder: Path, report: Window) -> None:
    report.page.click("#tab-graph")
    report.page.fill("[type=search]", "product_21")
    report.page.keyboard.press("Enter")
    shown, address = nodes(report), report.page.url
    assert "tab=graph" in address
    with window(browser, address) as found:
        found.page.wait_for_selector(".picture")
        assert nodes(found) == shown
        assert found.page.inner_text(".panel h3") == "product_21"
        found.page.reload()
        found.page.wait_for_selector(".picture")
        assert nodes(found) == shown
        found.page.click("text=close all")
        found.page.reload()
        found.page.wait_for_selector(".picture")
        assert nodes(found) == ["▸ forward", "▸ backward", "outputs"]
        assert found.faults == []


@pytest.mark.parametrize("width", [1400, 400])
def test_no_label_of_the_memory_picture_meets_the_limit_line(browser: Browser, folder: Path, width: int) -> None:
    with window(browser, (folder / "plan.html").as_uri() + "#?tab=memory", width) as found:
        found.page.wait_for_selector(".chart .limit", state="attached")
        line = found.page.locator(".chart .limit").evaluate("each => each.getBoundingClientRect().y")
        boxes = found.page.locator(".chart text").evaluate_all(
            "all => all.map((each) => each.getBoundingClientRect()).map((box) => [box.left, box.top, box.bottom])"
        )
        left = found.page.locator(".chart .limit").evaluate("each => each.getBoundingClientRect().left")
        assert [box for box in boxes if box[0] >= left and box[1] < line < box[2] - 1] == []


def test_malicious_names_are_shown_as_text(report: Window) -> None:
    report.page.click("#tab-graph")
    report.page.fill("[type=search]", "window.harmed")
    found = report.texts(".results button bdi")
    assert SCRIPT in found
    assert f"weight {IMAGE}" in found
    report.page.fill("[type=search]", "gemm")
    assert report.texts(".results button bdi") == ["gemm‹U+202E›gnp.exe"]
    report.page.keyboard.press("Enter")
    assert IMAGE in report.page.inner_text("h1")
    assert report.page.locator("main img").count() == 0


def test_two_plans_stand_side_by_side_with_what_moved(browser: Browser, folder: Path) -> None:
    with window(browser, (folder / "both.html").as_uri(), dark=True) as found:
        assert found.page.locator(".side:visible").count() == 2
        found.page.click("#tab-compare")
        assert "they add up to the change of the step" in found.page.inner_text("#panel-compare")
        found.page.click("#tab-graph")
        assert found.page.locator(".node.box.slower, .node.box.faster, .node.box.other").count() > 0
        for tab in ("memory", "communication", "schedule"):
            found.page.click(f"#tab-{tab}")
            assert found.page.locator(f"#panel-{tab} .side").count() == 2
        assert found.faults == []


def test_an_infeasible_plan_says_the_least_limit_and_the_moment(browser: Browser, folder: Path) -> None:
    with window(browser, (folder / "none.html").as_uri()) as found:
        assert found.texts("[role=tab]") == ["Summary"]
        assert "is sufficient" in found.page.inner_text(".headline")
        assert "the peak is reached while" in found.page.inner_text(".summary")
        assert found.faults == []


def test_a_narrow_screen_shows_all_without_moving_sideways(browser: Browser, folder: Path) -> None:
    with window(browser, (folder / "plan.html").as_uri(), width=360) as found:
        for tab in TABS:
            found.page.click(f"#tab-{tab.lower()}")
            assert found.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), tab


def test_a_capacity_answer_is_drawn_with_its_frontier_and_what_was_excluded(browser: Browser, folder: Path) -> None:
    graph, answer, page = folder / "small.json", folder / "capacity.json", folder / "capacity.html"
    words = ("--hardware", "h100-sxm,a100-sxm", "--devices", "1..8", "--memory-limit", "10KB", "-o", answer)
    made = shardplan("capacity", graph, *words)
    assert made.code == 0, made.err
    made = shardplan("report", answer, "-o", page)
    assert made.code == 0, made.err
    found_document = json.loads(answer.read_text())
    with window(browser, page.as_uri()) as found:
        found.page.wait_for_selector(".mark")
        assert found.page.locator("svg[role=img]").count() == 2
        assert found.page.locator(".mark").count() == 2 * len(found_document["candidates"])
        assert found.page.locator(".mark .best").count() == 2 * len(found_document["frontier"])
        excluded = next(number for number, one in enumerate(found_document["candidates"]) if one["skip_reason"])
        found.page.locator(f'.mark[data-number="{excluded}"]').first.dispatch_event("pointerenter")
        assert found_document["candidates"][excluded]["mesh"] in found.page.inner_text(".told")
        assert re.search("does not fit|no plan fits|no better than", found.page.inner_text(".told"))
        assert found.faults == []
        assert found.asked == [page.as_uri()]


def test_a_capacity_answer_shows_throughput_and_a_whole_run(browser: Browser, folder: Path) -> None:
    answer, page = folder / "run.json", folder / "run.html"
    sizes = ("--layers", 1, "--width", 8, "--heads", 2, "--feed-forward", 16, "--vocabulary", 16, "--seq", 4)
    asked = ("--hardware", "h100-sxm=2.5", "--devices", "2", "--global-batch", 8, "--tokens", "1e12")
    made = shardplan("capacity", "gpt2", *sizes, "--train", "sgd", *asked, "-o", answer)
    assert made.code == 0, made.err
    made = shardplan("report", answer, "-o", page)
    assert made.code == 0, made.err
    best = json.loads(answer.read_text())["frontier"]
    with window(browser, page.as_uri()) as found:
        assert found.page.inner_text("h1").count("gpt2") == 1
        assert {"batch", "tokens/s", "tokens/s/device"} <= {*found.texts("table >> nth=0 >> th")}
        run = [found.texts(f"table >> nth=1 >> {row} > *") for row in ("thead tr", "tbody tr:first-child")]
        shown = dict(zip(*run, strict=True))
        assert float(shown["days"].replace(" ", "")) == pytest.approx(best[0]["run_days"], rel=0.01)
        assert float(shown["cost"].replace(" ", "")) == pytest.approx(best[0]["run_cost"], rel=0.01)
        assert found.faults == []


def test_a_capacity_answer_stands_beside_no_plan(folder: Path, browser: Browser) -> None:
    answer = folder / "alone.json"
    made = shardplan("capacity", folder / "small.json", "--hardware", "h100-sxm", "--devices", "1", "-o", answer)
    assert made.code == 0, made.err
    made = shardplan("report", answer, "--compare-to", folder / "plan.json", "-o", folder / "no.html")
    assert made.code == 1
    assert "--compare-to" in made.err
