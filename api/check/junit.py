"""A check as JUnit XML, in the form of the Jenkins plugin's schema that CI services read: a test case for a limit."""

from __future__ import annotations

from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from api.check.summary import list_reasons, list_remarks, replace_controls, replanning, summarize_limit

Document = dict[str, Any]


def write_junit(told: Document, file: str) -> str:
    """The document: a broken limit is a failure, a waived one is skipped; a plan of another version is a case
    of its own, which passes."""
    broken = {entry["limit"]: entry for entry in (*told["exceeded"], *told["waived"])}
    names = dict.fromkeys([*(entry["limit"] for entry in told["limits"]), *broken])
    versions = {f"{entry['reason']}: {entry['side']}": entry for entry in told["replanned"]}
    counts = {"tests": len(names) + len(versions), "failures": len(told["exceeded"]), "errors": 0}
    suites = Element("testsuites", {"name": "shardplan check", **{key: str(count) for key, count in counts.items()}})
    suite = SubElement(
        suites,
        "testsuite",
        {**suites.attrib, "name": replace_controls(file), "skipped": str(len(told["waived"]))},
    )
    for name in names:
        case = SubElement(suite, "testcase", classname=replace_controls(file), name=replace_controls(name), time="0")
        if name in broken:
            _add_failure(case, broken[name], broken[name] in told["exceeded"])
    for name, entry in versions.items():
        case = SubElement(suite, "testcase", classname=replace_controls(file), name=name, time="0")
        SubElement(case, "system-out").text = replace_controls("\n".join(replanning(entry)))
    if told["notes"] or told["unused_waivers"]:
        SubElement(suite, "system-out").text = replace_controls("\n".join(list_remarks(told)))
    indent(suites)
    return tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _add_failure(case: Element, entry: Document, fails: bool) -> None:
    told = SubElement(case, "failure" if fails else "skipped", message=replace_controls(summarize_limit(entry)))
    if fails:
        told.set("type", entry["measure"])
        told.text = replace_controls("\n".join(list_reasons(entry)))
