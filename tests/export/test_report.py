"""The report as a file: it requests nothing, names its scripts by digest, and holds names only as data."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest

from planner.export.report import content_security_policy, html_page

NAMES = ["</script><script>alert(1)</script>", "<!--<script>", "a\u2028b", "\u202egnp.exe", "\"&'", "]]>"]


ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "web"


def sources() -> list[str]:
    """What the pages are built from, as web/build.mjs lists it."""
    folders = [f"{name}/{path.name}" for name in ("report", "service") for path in (WEB / name).iterdir()]
    return sorted([*folders, "build.mjs", "package-lock.json"])


def sources_digest() -> str:
    found = hashlib.sha256()
    for path in sources():
        found.update(f"{path}\n".encode() + (WEB / path).read_bytes())
    return found.hexdigest()


def page(name: str) -> str:
    return html_page({"plan": {"graph": {"name": name}}})


@pytest.mark.parametrize("name", NAMES)
def test_a_name_cannot_leave_the_data(name: str) -> None:
    text = page(name)
    assert text.count("<script") == page("plain").count("<script")
    (held,) = re.findall(r'<script type="application/json" id="report">(.*?)</script>', text, re.DOTALL)
    assert json.loads(held)["plan"]["graph"]["name"] == name


def test_every_script_and_sheet_is_in_the_policy_by_its_digest() -> None:
    text = page("plain")
    parts = re.findall(r"<script type=\"module\">(.*?)</script>|<style>(.*?)</style>", text, re.DOTALL)
    digests = {base64.b64encode(hashlib.sha256((one or other).encode()).digest()).decode() for one, other in parts}
    assert len(parts) == 2
    assert digests == set(re.findall(r"'sha256-([^']+)'", content_security_policy()))
    assert f'content="{content_security_policy()}"' in text


def test_the_file_names_no_place_outside_itself() -> None:
    text = page("plain")
    assert set(re.findall(r"https?://[^\s\"'`)]+", text)) <= {
        "http://www.w3.org/2000/svg",
        "https://github.com/sandersky",
    }
    assert not re.search(r"@import|\bimport\s*\(|\bsrc\s*=\s*[\"']|\burl\(\s*[\"']?(?!#)", re.sub(r"url\(#", "", text))


@pytest.mark.parametrize("built", ["planner/export/report/page/report.js", "api/web/service.js"])
def test_the_pages_are_built_from_the_sources_beside_them(built: str) -> None:
    told = re.search(r"sources ([0-9a-f]{64})", (ROOT / built).read_text(encoding="utf-8"))
    assert told is not None
    assert told[1] == sources_digest(), "run make pages and commit what it builds"


def test_the_bundled_library_comes_with_its_licence() -> None:
    text = page("plain")
    for words in ("@dagrejs/dagre", "Permission is hereby granted", "WITHOUT WARRANTY OF ANY KIND"):
        assert words in text


def test_sources_of_the_pages_are_within_the_ceiling_of_files() -> None:
    lengths = {path: len((WEB / path).read_text(encoding="utf-8").splitlines()) for path in sources()}
    assert {path: length for path, length in lengths.items() if length > 300 and path != "package-lock.json"} == {}
