"""A report as one HTML file that opens offline: `page/` has its views, plain modules of JavaScript that the service's
page loads as they are; here they are laid into the file, in the order in which they need each other.

The file asks no one for anything, and its policy says so: no source but the scripts and the sheet whose SHA-256 it
names (Content Security Policy Level 3). What it shows is a JSON block, which is never run; `<` is escaped in it, so
that no name of a node can end the block, and every string of it becomes a text node.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

PAGE = files("planner.export.report") / "page"
LIBRARY, FIRST = "dagre.min.js", "main.js"
SHEETS = ("theme.css", "report.css", "pictures.css")
EXPORT = re.compile(r"^export (?=(?:function|const|class) (\w+))", re.MULTILINE)
IMPORT = re.compile(r'^import [^;]* from "\./([a-z]+\.js)";\n', re.MULTILINE)


def html_page(report: Mapping[str, Any]) -> str:
    """The file that shows a report document (`planner.documents.reports`)."""
    library, script, sheet = (source(LIBRARY), bundle(FIRST), style())
    data = json.dumps(report, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy()}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(report['plan']['graph']['name'])} - shardplan</title>\n<style>{sheet}</style>\n</head>\n"
        '<body>\n<main><p>The report needs JavaScript.</p></main>\n<script type="application/json" id="report">'
        f'{data}</script>\n<script>{library}</script>\n<script type="module">{script}</script>\n</body>\n</html>\n'
    )


def policy() -> str:
    """The Content-Security-Policy of the file: nothing from anywhere, and of itself what is known by its digest."""
    scripts = " ".join(map(_digest, (source(LIBRARY), bundle(FIRST))))
    sheet = _digest(style())
    return f"default-src 'none'; script-src {scripts}; style-src {sheet}; base-uri 'none'; form-action 'none'"


def source(name: str) -> str:
    """A file of the page."""
    return (PAGE / name).read_text(encoding="utf-8")


def style() -> str:
    """The sheets as one."""
    return "\n".join(map(source, SHEETS))


def bundle(name: str) -> str:
    """A module with all that it imports before it, as one, each in a scope of its own: only what modules export has to
    have a name that no other exports."""
    found: dict[str, str] = {}

    def add(module: str) -> None:
        if module not in found:
            text = source(module)
            for needed in IMPORT.findall(text):
                add(needed)
            names = ", ".join(EXPORT.findall(text))
            inner = EXPORT.sub("", IMPORT.sub("", text))
            found[module] = f"const {{ {names} }} = (() => {{\n{inner}return {{ {names} }};\n}})();"

    add(name)
    return "\n".join(found.values())


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
