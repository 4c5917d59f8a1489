"""A check as SARIF 2.1.0 (OASIS): a result for a broken limit, suppressed where it is acknowledged."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any
from urllib.parse import quote

from api.gate.words import NAMES, headline, reasons
from planner.documents.ids import digest

Document = dict[str, Any]
SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
RULES = {
    **{measure: f"{name[0].upper()}{name[1:]} rose" for measure, name in NAMES.items()},
    "plan": "No plan was found",
}


def sarif(told: Document, file: str) -> Document:
    """The log; `file` is where the results are shown."""
    entries = [*told["exceeded"], *told["acknowledged"]]
    used = list(dict.fromkeys(entry["measure"] for entry in entries))
    rules = [{"id": measure, "shortDescription": {"text": RULES[measure]}} for measure in used]
    driver = {"name": "shardplan", "version": version("shardplan"), "rules": rules}
    results = [_result(entry, used.index(entry["measure"]), file) for entry in entries]
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _result(entry: Document, rule: int, file: str) -> Document:
    answer = entry["acknowledgement"]
    held = answer is not None and not answer["expired"]
    why = {"kind": "external", "status": "accepted", "justification": answer["reason"]} if held else {}
    return {
        "ruleId": entry["measure"],
        "ruleIndex": rule,
        "level": "note" if held else "error",
        "message": {"text": " ".join([f"{headline(entry)}.", *reasons(entry)])},
        "locations": [_location(entry, file)],
        "partialFingerprints": {"shardplanLimit/v1": digest([file, entry["limit"]])},
        **({"suppressions": [why]} if held else {}),
    }


def _location(entry: Document, file: str) -> Document:
    names = list(dict.fromkeys(each["name"] for each in (*entry["causes"], *entry["terms"][:1])))
    place = {"artifactLocation": {"uri": quote(file)}, "region": {"startLine": 1}}
    logical = {"logicalLocations": [{"fullyQualifiedName": name} for name in names]} if names else {}
    return {"physicalLocation": place, **logical}
