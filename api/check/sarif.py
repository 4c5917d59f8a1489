"""Writes a check as SARIF 2.1.0 (OASIS), with a result per broken limit, suppressed where it is waived.

A plan of another version is a notification of the run (3.20.21). Every result repeats it, because some readers do not
show notifications.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from api.check.summary import METRIC_NAMES, list_reasons, replanning, summarize_limit
from planner.documents.canonical_json import digest_document
from planner.version import VERSION

Document = dict[str, Any]
SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
RULES = {
    **{measure: f"{name[0].upper()}{name[1:]} rose" for measure, name in METRIC_NAMES.items()},
    "plan": "No plan was found",
}
REPLANNED = {"id": "version", "shortDescription": {"text": "Planned by another version"}}


def build_sarif(report: Document, file: str) -> Document:
    """Return the log; `file` is where the results are shown."""
    entries = [*report["exceeded"], *report["waived"]]
    used = list(dict.fromkeys(entry["measure"] for entry in entries))
    rules = [{"id": measure, "shortDescription": {"text": RULES[measure]}} for measure in used]
    versions = [" ".join(replanning(entry)) for entry in report["replanned"]]
    notifications = [REPLANNED] if versions else []
    driver = {"name": "shardplan", "version": VERSION, "rules": rules, "notifications": notifications}
    results = [_build_result(entry, used.index(entry["measure"]), file, versions=versions) for entry in entries]
    run = {"tool": {"driver": driver}, "invocations": [_invocation(versions)], "results": results}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _invocation(versions: Sequence[str]) -> Document:
    """Return the invocation, with the notifications of the run."""
    notifications = [
        {"level": "note", "descriptor": {"id": REPLANNED["id"]}, "message": {"text": text}} for text in versions
    ]
    return {"executionSuccessful": True, "toolExecutionNotifications": notifications}


def _build_result(entry: Document, rule: int, file: str, *, versions: Sequence[str]) -> Document:
    waiver = entry["waiver"]
    is_waived = waiver is not None and not waiver["expired"]
    suppression = {"kind": "external", "status": "accepted", "justification": waiver["reason"]} if is_waived else {}
    return {
        "ruleId": entry["measure"],
        "ruleIndex": rule,
        "level": "note" if is_waived else "error",
        "message": {"text": " ".join([f"{summarize_limit(entry)}.", *list_reasons(entry), *versions])},
        "locations": [_build_location(entry, file)],
        "partialFingerprints": {"shardplanLimit/v1": digest_document([file, entry["limit"]])},
        **({"suppressions": [suppression]} if is_waived else {}),
    }


def _build_location(entry: Document, file: str) -> Document:
    names = list(dict.fromkeys(term["name"] for term in (*entry["causes"], *entry["terms"][:1])))
    place = {"artifactLocation": {"uri": quote(file)}, "region": {"startLine": 1}}
    logical = {"logicalLocations": [{"fullyQualifiedName": name} for name in names]} if names else {}
    return {"physicalLocation": place, **logical}
