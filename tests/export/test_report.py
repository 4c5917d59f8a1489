"""The report as a file: one that asks for nothing, names all it runs by digest, and holds names only as data."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any

import pytest

from planner.export.report import EXPORT, PAGE, bundle, html_page, policy, source

NAMES = ["</script><script>alert(1)</script>", "<!--<script>", "a\u2028b", "\u202egnp.exe", "\"&'", "]]>"]


def page(name: str) -> str:
    return html_page({"plan": {"graph": {"name": name}}})


@pytest.mark.parametrize("name", NAMES)
def test_a_name_stays_within_the_data(name: str) -> None:
    text = page(name)
    assert text.count("<script") == page("plain").count("<script")
    (held,) = re.findall(r'<script type="application/json" id="report">(.*?)</script>', text, re.DOTALL)
    assert json.loads(held)["plan"]["graph"]["name"] == name


def test_every_script_and_sheet_is_in_the_policy_by_its_digest() -> None:
    text = page("plain")
    parts = re.findall(r"<script(?: type=\"module\")?>(.*?)</script>|<style>(.*?)</style>", text, re.DOTALL)
    digests = {base64.b64encode(hashlib.sha256((one or other).encode()).digest()).decode() for one, other in parts}
    assert len(parts) == 3
    assert digests == set(re.findall(r"'sha256-([^']+)'", policy()))
    assert f'content="{policy()}"' in text


def test_the_file_names_no_place_outside_itself() -> None:
    text = page("plain")
    assert set(re.findall(r"https?://[^\s\"'`)]+", text)) <= {
        "http://www.w3.org/2000/svg",
        "https://github.com/sandersky",
    }
    assert not re.search(r"@import|\bimport\s*\(|\bsrc\s*=\s*[\"']|\burl\(\s*[\"']?(?!#)", re.sub(r"url\(#", "", text))


def test_no_two_modules_export_one_name() -> None:
    modules = [part.name for part in PAGE.iterdir() if part.name.endswith(".js") and ".min." not in part.name]
    names = [name for module in modules for name in EXPORT.findall(source(module))]
    assert len(names) == len(set(names))
    assert "import {" not in bundle("main.js")


def test_the_library_comes_with_its_licence() -> None:
    text = page("plain")
    for words in ("@dagrejs/dagre", "Permission is hereby granted", "WITHOUT WARRANTY OF ANY KIND"):
        assert words in text


def test_modules_are_within_the_ceiling_of_files() -> None:
    lengths: dict[str, Any] = {part.name: len(part.read_text().splitlines()) for part in PAGE.iterdir()}
    assert {name: length for name, length in lengths.items() if length > 300} == {}
