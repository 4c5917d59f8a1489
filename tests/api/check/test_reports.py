"""The reports of a check: each follows its standard, all have the same verdict, and no name can inject markup.

SARIF and JUnit are compared with the parts of their public schemas that are written here: SARIF 2.1.0 (OASIS), sections
3.13 to 3.35, and the XSD of the Jenkins xUnit plugin (junit-10).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import date
from io import StringIO
from xml.etree import ElementTree

import jsonschema
import pytest
from rich.console import Console

from api.check.junit import write_junit
from api.check.markdown import write_markdown
from api.check.sarif import build_sarif
from api.cli.render_check import render_check
from planner.documents.check_report import dump_check
from planner.documents.versions import current_versions
from planner.judge.check.limits import parse_limits
from planner.judge.check.verdict import Waiver
from planner.usecases.check import compare_plans
from tests.testing.check_models import Document, base, load_model, model, node, older_base, plan_model
from tests.testing.plan_versions import OLDER

FILE = "models/a b.json"
TODAY = date(2026, 6, 1)
HOSTILE = "a|b`<img src=x>@everyone [x](http://evil) & *_~ ]]> --> é\ufffe"


def closed(required: list[str], **properties: Document) -> Document:
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


TEXT: Document = {"type": "string"}
MESSAGE = closed(["text"], text={"type": "string", "minLength": 1})
LOCATION = closed(
    [],
    physicalLocation=closed(
        ["artifactLocation"],
        artifactLocation=closed(["uri"], uri={"type": "string", "pattern": r"^[A-Za-z0-9._~!$&'()*+,;=:@/%-]+$"}),
        region=closed([], startLine={"type": "integer", "minimum": 1}),
    ),
    logicalLocations={"type": "array", "uniqueItems": True, "items": closed([], fullyQualifiedName=TEXT)},
)
SUPPRESSION = closed(
    ["kind"],
    kind={"enum": ["inSource", "external"]},
    status={"enum": ["accepted", "underReview", "rejected"]},
    justification=TEXT,
)
RESULT = closed(
    ["message"],
    ruleId=TEXT,
    ruleIndex={"type": "integer", "minimum": 0},
    level={"enum": ["none", "note", "warning", "error"]},
    message=MESSAGE,
    locations={"type": "array", "items": LOCATION},
    partialFingerprints={"type": "object", "additionalProperties": TEXT},
    suppressions={"type": "array", "items": SUPPRESSION},
)
RULE = closed(["id"], id=TEXT, shortDescription=MESSAGE)
RULES: Document = {"type": "array", "items": RULE, "uniqueItems": True}
DRIVER = closed(["name"], name=TEXT, version=TEXT, rules=RULES, notifications=RULES)
NOTIFICATION = closed(
    ["message"],
    message=MESSAGE,
    level={"enum": ["none", "note", "warning", "error"]},
    descriptor=closed([], id=TEXT),
)
INVOCATION = closed(
    ["executionSuccessful"],
    executionSuccessful={"type": "boolean"},
    toolExecutionNotifications={"type": "array", "items": NOTIFICATION},
)
RUN = closed(
    ["tool"],
    tool=closed(["driver"], driver=DRIVER),
    invocations={"type": "array", "items": INVOCATION},
    results={"type": "array", "items": RESULT},
)
SARIF = closed(
    ["version", "runs"],
    **{"$schema": {"type": "string", "format": "uri"}},
    version={"const": "2.1.0"},
    runs={"type": "array", "items": RUN},
)

# element: attributes it must have, attributes it may have, what it may hold
JUNIT: dict[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": (set(), {"name", "tests", "failures", "errors", "time", "disabled"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests"},
        {"failures", "errors", "skipped", "time", "timestamp", "hostname", "id", "package"},
        {"testcase", "properties", "system-out", "system-err"},
    ),
    "testcase": ({"name"}, {"classname", "time", "status"}, {"skipped", "failure", "error", "system-out"}),
    "failure": (set(), {"message", "type"}, set()),
    "skipped": (set(), {"message"}, set()),
    "system-out": (set(), set(), set()),
}


def hostile() -> Document:
    """A wider model in which the op to blame has a name that means something to everybody."""
    document = model(ff=1536)
    edited = [each["id"] for each in document["nodes"] if each["op"] == "linear"][4]
    text = json.dumps(document).replace(json.dumps(edited), json.dumps(HOSTILE))
    return {**json.loads(text), "name": HOSTILE}


def told(kind: str) -> Document:
    """A check of every kind."""
    limits = parse_limits("time>1%,memory>1%,time[h0]>1%,gap>1%")
    known = [Waiver(parse_limits("memory>90%")[0], HOSTILE, date(2030, 1, 1))]
    known += [Waiver(parse_limits("time>90%")[0], "agreed", date(2020, 1, 1))]
    if kind == "infeasible":
        return dump_check(
            compare_plans(plan_model(model(), memory_limit_bytes=30_000_000), load_model(model(ff=4096))), limits
        )
    if kind.startswith("older"):
        new = model() if kind == "older, same" else model(ff=1536)
        return dump_check(compare_plans(older_base(), load_model(new)), limits, known, today=TODAY)
    new = {"same": model(), "wider": model(ff=1536), "hostile": hostile()}[kind]
    return dump_check(compare_plans(base(), load_model(new)), limits, known, today=TODAY)


KINDS = ("same", "wider", "hostile", "infeasible", "older, same", "older, wider")


@pytest.fixture(scope="module", params=KINDS)
def check(request: pytest.FixtureRequest) -> Document:
    return told(request.param)


def elements(found: ElementTree.Element) -> Iterator[ElementTree.Element]:
    yield found
    for child in found:
        assert child.tag in JUNIT[found.tag][2], (found.tag, child.tag)
        yield from elements(child)


def test_sarif_fits_its_schema_and_has_a_result_for_every_broken_limit(check: Document) -> None:
    log = json.loads(json.dumps(build_sarif(check, FILE)))
    jsonschema.validate(log, SARIF, format_checker=jsonschema.FormatChecker())
    (run,) = log["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert [rules[result["ruleIndex"]] for result in run["results"]] == [result["ruleId"] for result in run["results"]]
    by_level = [sum(result["level"] == level for result in run["results"]) for level in ("error", "note")]
    assert by_level == [len(check["exceeded"]), len(check["waived"])]
    assert all(("suppressions" in result) is (result["level"] == "note") for result in run["results"])
    prints = [json.dumps(result["partialFingerprints"]) for result in run["results"]]
    assert len(set(prints)) == len(prints)


def test_junit_fits_its_schema_and_its_counts_are_right(check: Document) -> None:
    root = ElementTree.fromstring(write_junit(check, FILE))
    for element in elements(root):
        must, may, _ = JUNIT[element.tag]
        assert must <= set(element.attrib) <= must | may, element.tag
    for suite in (root, root[0]):
        cases = list(root[0].iter("testcase"))
        assert int(suite.get("tests", "")) == len(cases)
        assert int(suite.get("failures", "")) == len(list(root.iter("failure"))) == len(check["exceeded"])
    assert len(list(root.iter("skipped"))) == len(check["waived"])
    assert len({case.get("name") for case in root.iter("testcase")}) == len(list(root.iter("testcase")))


def test_markdown_begins_with_its_mark_and_its_tables_are_whole(check: Document) -> None:
    page = write_markdown(check, FILE)
    assert page.startswith("<!-- shardplan check models/a b.json -->\n\n### ")
    assert page.count("**Exceeded: ") == len(check["exceeded"])
    assert page.count("<details>") == page.count("</details>")
    for block in re.findall(r"(?:^\|.*\|$\n?)+", page, re.MULTILINE):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(widths) == 1, block


def test_names_cannot_inject_markup() -> None:
    page = write_markdown(told("hostile"), "x --> <script>")
    assert page.splitlines()[0].count("-->") == 1
    assert page.splitlines()[0].endswith("-->")
    outside = re.sub(r"`[^`]*`|\\.|@&#8203;|</?details>|</?summary>|^<!--.*", "", page)
    assert not re.search(r"<|@|\[x\]\(", outside)


def page_of(check: Document) -> str:
    console = Console(width=120, record=True, file=StringIO())
    console.print(render_check(check))
    return console.export_text()


FORMS: dict[str, Callable[[Document], str]] = {
    "markdown": lambda check: write_markdown(check, FILE).replace("\\", ""),
    "junit": lambda check: write_junit(check, FILE),
    "sarif": lambda check: json.dumps(build_sarif(check, FILE)),
    "json": json.dumps,
    "page": lambda check: " ".join(page_of(check).split()),
}


@pytest.mark.parametrize("kind", ["older, same", "older, wider"])
@pytest.mark.parametrize("form", FORMS)
def test_every_format_names_the_version_that_planned_the_base(form: str, kind: str) -> None:
    shown = FORMS[form](told(kind)).casefold()
    assert "planned by another version" in shown
    for versions in (OLDER, current_versions()):
        for name, version in versions.items():
            assert name in shown
            assert str(version) in shown
    assert "planned by another version" not in FORMS[form](told("wider")).casefold()


def test_a_version_is_a_case_and_a_notification_of_its_own_and_breaks_no_limit() -> None:
    older, current = told("older, wider"), told("wider")
    listed = cases(older)
    assert list(listed) == [*cases(current), "planned by another version: base"]
    (said,) = listed["planned by another version: base"]
    assert said.tag == "system-out"
    assert re.search(r"with step .* us, was .* us \(-9.09 %\)\.", said.text or "")
    (run,) = build_sarif(older, FILE)["runs"]
    (notification,) = run["invocations"][0]["toolExecutionNotifications"]
    assert notification["descriptor"]["id"] == "version"
    assert all(notification["message"]["text"] in result["message"]["text"] for result in run["results"])


def cases(check: Document) -> dict[str, ElementTree.Element]:
    return {case.get("name", ""): case for case in ElementTree.fromstring(write_junit(check, FILE)).iter("testcase")}


def test_a_waiver_that_has_expired_or_is_not_needed_is_reported() -> None:
    wider = told("wider")
    assert "expired on 2020-01-01: renew it" in write_markdown(wider, FILE)
    same = told("same")
    assert "is not needed: remove it" in write_junit(same, FILE)
    assert "is not needed, and expired on 2020-01-01: remove it" in write_markdown(same, FILE).replace("\\", "")


@pytest.mark.parametrize(
    ("kind", "words"),
    [("same", "the graph equals its base"), ("wider", "2 limits exceeded"), ("infeasible", "no plan was found")],
)
def test_the_markdown_page_has_the_facts_of_the_check(kind: str, words: str) -> None:
    page = page_of(told(kind))
    assert words in page
    if kind == "wider":
        assert "Proven: no plan of the new graph is within the limit." in page
        assert f"Edited nearest to it: op {told(kind)['exceeded'][0]['causes'][0]['name']}: reads" in page
    assert node(model(), "gelu")["id"] not in page or kind == "wider"
