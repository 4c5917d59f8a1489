"""A hook of mkdocs: a built page loads nothing from another host."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

FOREIGN = re.compile(r"""<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc=["']?(?:https?:)?//[^"'\s>]+""")
SHEETS = re.compile(
    r"""<link\b(?=[^>]*\brel=["']?(?:stylesheet|preload|preconnect|icon))[^>]*\bhref=["']?(?:https?:)?//[^>]+"""
)


def on_post_build(config: Any) -> None:
    """Raises PluginError for the first page that asks another host for a script, a style or a picture."""
    for page in sorted(Path(config["site_dir"]).rglob("*.html")):
        text = page.read_text(encoding="utf-8")
        if found := FOREIGN.search(text) or SHEETS.search(text):
            raise PluginError(f"{page}: loads from another host (got {found[0]}; wanted files of this site alone)")
