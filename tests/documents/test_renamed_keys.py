"""An old key is refused by a message with the new one; older plans are still read."""

from __future__ import annotations

import json

import pytest

from planner.documents.canonical_json import digest_document
from planner.documents.capacity_report import CapacityDocument
from planner.documents.plans import parse_plan
from planner.documents.renamed_keys import RENAMED_KEYS, find_new_key, upgrade_plan
from planner.documents.schemas import PlanDocument, validate_document
from planner.documents.waivers import WaiversDocument
from planner.errors import InvalidDocument
from tests.testing.command_line import shardplan
from tests.testing.small_documents import GRAPH, Document, written

PLAN_PATHS = [path for path in RENAMED_KEYS if path[0] in ("cost", "solver")]
DIFFERENCE = {"what": "value", "instruction": 0, "value": "y", "device": 0, "index": [], "got": 1.0, "wanted": 2.0}

# document type, a document with an old key, words of the message
REFUSED = [
    (CapacityDocument, {"version": 1, "hardware": [{"name": "cpu", "hour": 2.5}]}, "hour is now price_per_device_hour"),
    (CapacityDocument, {"version": 2, "candidates": [{"why": None}]}, "why is now skip_reason"),
    (WaiversDocument, {"acknowledged": []}, "acknowledged is now waiver"),
    (PlanDocument, {"version": 2, "cost": {"dearest": []}}, "dearest is now top_collectives"),
]


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Document:
    folder = tmp_path_factory.mktemp("plan")
    output = folder / "plan.json"
    answer = shardplan("plan", written(folder / "g.json", GRAPH), "--mesh", "2x4", "--deterministic", "-o", output)
    assert answer.code == 0, answer.err
    found: Document = json.loads(output.read_text())
    return found


def as_version_1(plan: Document) -> Document:
    """The plan as version 1 wrote it: every renamed key under its old name, and the digest of that text."""
    old: Document = json.loads(json.dumps({key: value for key, value in plan.items() if key != "digest"}))
    old["version"] = 1
    for *parents, name in PLAN_PATHS:
        home = old
        for parent in parents:
            home = home[parent] or {}
        if RENAMED_KEYS[(*parents, name)] in home:
            home[name] = home.pop(RENAMED_KEYS[(*parents, name)])
    return {**old, "digest": digest_document(old)}


def test_a_plan_of_version_1_is_read_under_the_new_names(plan: Document) -> None:
    old = as_version_1(plan)
    assert {"dearest", "floor_s"} <= {*old["cost"], *old["cost"]["overlap"]}
    parsed = parse_plan(old, "plan").model_dump(mode="json", exclude_unset=True)
    assert parsed == {key: value for key, value in plan.items() if key != "digest"}
    assert parse_plan(parsed, "plan").id == plan["id"]


def test_a_changed_plan_of_version_1_does_not_fit_its_digest(plan: Document) -> None:
    old = as_version_1(plan)
    old["cost"]["mfu"] = 0.5
    with pytest.raises(InvalidDocument, match="digest mismatch"):
        parse_plan(old, "plan")


def test_only_version_1_is_renamed() -> None:
    old = {"verdict": {"difference": {**DIFFERENCE, "done": "n1"}}}
    renamed = {"verdict": {"difference": {**DIFFERENCE, "operation": "n1"}}}
    assert upgrade_plan({"version": 1, **old}) == {"version": 2, **renamed}
    for version in (1.0, True, 2, "1", None):
        assert upgrade_plan({"version": version, **old}) == {"version": version, **old}
    assert upgrade_plan([]) == []


@pytest.mark.parametrize(("kind", "raw", "words"), REFUSED)
def test_an_old_key_is_refused_with_its_new_name(kind: type[PlanDocument], raw: Document, words: str) -> None:
    with pytest.raises(InvalidDocument, match=words):
        validate_document(kind, raw, "document")


def test_a_new_name_is_found_wherever_the_document_stands() -> None:
    assert find_new_key(["plan", "cost", "dearest"]) == "top_collectives"
    assert find_new_key(["candidates", 3, "by"]) == "dominated_by"
    assert find_new_key(["cost", "by"]) is None
    assert find_new_key([]) is None


def test_no_new_name_is_an_old_one() -> None:
    assert not {path[-1] for path in RENAMED_KEYS} & set(RENAMED_KEYS.values())
