"""A report as one HTML file that opens offline. `page/` holds its script and sheet, built from web/ (`make pages`).

The file requests nothing, and its policy enforces that: the only sources it allows are the script and the sheet, named
by their SHA-256 (Content Security Policy Level 3). The data is a JSON block, which a browser never runs. `<` is escaped
in it, so that no name of a node can end the block, and every string of it becomes a text node.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

PAGE = files("planner.export.report") / "page"
SCRIPT, SHEET = "report.js", "report.css"


def html_page(report: Mapping[str, Any]) -> str:
    """Return the file that shows a report document (`planner.documents.report`), or one of capacity or a pipeline."""
    script, sheet = read_page_file(SCRIPT), read_page_file(SHEET)
    data = json.dumps(report, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{content_security_policy()}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(_title(report))} - shardplan</title>\n<style>{sheet}</style>\n</head>\n"
        '<body>\n<main><p>The report needs JavaScript.</p></main>\n<script type="application/json" id="report">'
        f'{data}</script>\n<script type="module">{script}</script>\n</body>\n</html>\n'
    )


def _title(report: Mapping[str, Any]) -> str:
    graphs = report["graphs"] if "graphs" in report else [report.get("plan", report)["graph"]]
    return ", ".join(graph["name"] for graph in graphs)


def content_security_policy() -> str:
    """Return the Content-Security-Policy of the file: nothing from outside, and only parts with a known digest."""
    script, sheet = _digest(read_page_file(SCRIPT)), _digest(read_page_file(SHEET))
    return f"default-src 'none'; script-src {script}; style-src {sheet}; base-uri 'none'; form-action 'none'"


def read_page_file(name: str) -> str:
    """Return the text of a file of the page."""
    return (PAGE / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
