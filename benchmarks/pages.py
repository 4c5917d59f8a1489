"""The tables of committed results, as README and docs/benchmarks show them.

`python -m benchmarks.pages` writes every table anew, between the marker with the name of its benchmark and the one that
ends it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

from benchmarks import readme_table
from benchmarks.record import RESULTS, shown

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
MARKED = re.compile(r"<!-- (\w+) -->\n(.*?)\n\n<!-- /\1 -->", re.DOTALL)


def list_tables() -> Iterator[tuple[Path, str, str]]:
    """Yield the page, the benchmark and the text of every table of the documentation."""
    for page in sorted((ROOT / "docs" / "benchmarks").glob("*.md")):
        yield from ((page, name, text) for name, text in MARKED.findall(page.read_text()))


def render_table(name: str) -> str:
    """Return the table of a benchmark's committed result, as a page shows it."""
    result = json.loads((RESULTS / f"{name}.json").read_text())
    return shown(result, import_module(f"benchmarks.{name}").table(result)).rstrip()


def _rewrite(page: Path, render: Callable[[str], str]) -> None:
    text = page.read_text()
    page.write_text(MARKED.sub(lambda found: f"<!-- {found[1]} -->\n{render(found[1])}\n\n<!-- /{found[1]} -->", text))


if __name__ == "__main__":
    for table_page in {page for page, _, _ in list_tables()}:
        _rewrite(table_page, render_table)
    _rewrite(README, lambda _name: readme_table.table())
