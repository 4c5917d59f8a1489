"""A check as JUnit XML, in the form of the Jenkins plugin's schema that CI services read: a test case for a limit."""

from __future__ import annotations

from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from api.gate.words import headline, plain, reasons, remarks, replanning

Document = dict[str, Any]


def junit(told: Document, file: str) -> str:
    """The document: a broken limit is a failure, an acknowledged one is skipped; a plan of another version is a case
    of its own, which passes."""
    broken = {entry["limit"]: entry for entry in (*told["exceeded"], *told["acknowledged"])}
    names = dict.fromkeys([*(entry["limit"] for entry in told["limits"]), *broken])
    versions = {f"{entry['cause']}: {entry['side']}": entry for entry in told["replanned"]}
    counts = {"tests": len(names) + len(versions), "failures": len(told["exceeded"]), "errors": 0}
    suites = Element("testsuites", {"name": "shardplan check", **{key: str(count) for key, count in counts.items()}})
    suite = SubElement(
        suites, "testsuite", {**suites.attrib, "name": plain(file), "skipped": str(len(told["acknowledged"]))}
    )
    for name in names:
        case = SubElement(suite, "testcase", classname=plain(file), name=plain(name), time="0")
        if name in broken:
            _failed(case, broken[name], broken[name] in told["exceeded"])
    for name, entry in versions.items():
        case = SubElement(suite, "testcase", classname=plain(file), name=name, time="0")
        SubElement(case, "system-out").text = plain("\n".join(replanning(entry)))
    if told["notes"] or told["unused"]:
        SubElement(suite, "system-out").text = plain("\n".join(remarks(told)))
    indent(suites)
    return tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _failed(case: Element, entry: Document, fails: bool) -> None:
    told = SubElement(case, "failure" if fails else "skipped", message=plain(headline(entry)))
    if fails:
        told.set("type", entry["measure"])
        told.text = plain("\n".join(reasons(entry)))
