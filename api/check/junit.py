"""Writes a check as JUnit XML, in the Jenkins plugin's schema that CI services read, with a test case per limit."""

from __future__ import annotations

from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from api.check.summary import list_reasons, list_remarks, replace_controls, replanning, summarize_limit

Document = dict[str, Any]


def write_junit(report: Document, file: str) -> str:
    """Return the XML document: a broken limit is a failure, a waived one is skipped.

    A plan of another version is a test case of its own, which passes.
    """
    broken = {entry["limit"]: entry for entry in (*report["exceeded"], *report["waived"])}
    names = dict.fromkeys([*(entry["limit"] for entry in report["limits"]), *broken])
    versions = {f"{entry['reason']}: {entry['side']}": entry for entry in report["replanned"]}
    counts = {"tests": len(names) + len(versions), "failures": len(report["exceeded"]), "errors": 0}
    suites = Element("testsuites", {"name": "shardplan check", **{key: str(count) for key, count in counts.items()}})
    suite = SubElement(
        suites,
        "testsuite",
        {**suites.attrib, "name": replace_controls(file), "skipped": str(len(report["waived"]))},
    )
    for name in names:
        case = SubElement(suite, "testcase", classname=replace_controls(file), name=replace_controls(name), time="0")
        if name in broken:
            _add_failure(case, broken[name], broken[name] in report["exceeded"])
    for name, entry in versions.items():
        case = SubElement(suite, "testcase", classname=replace_controls(file), name=name, time="0")
        SubElement(case, "system-out").text = replace_controls("\n".join(replanning(entry)))
    if report["notes"] or report["unused_waivers"]:
        SubElement(suite, "system-out").text = replace_controls("\n".join(list_remarks(report)))
    indent(suites)
    return tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _add_failure(case: Element, entry: Document, fails: bool) -> None:
    outcome = SubElement(case, "failure" if fails else "skipped", message=replace_controls(summarize_limit(entry)))
    if fails:
        outcome.set("type", entry["measure"])
        outcome.text = replace_controls("\n".join(list_reasons(entry)))
