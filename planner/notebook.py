"""HTML of plans, comparisons and capacity searches in a notebook: a title, a sentence, small tables.

It has no scripts or style sheets, so that it looks the same in a saved or exported notebook.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple


class HtmlTable(NamedTuple):
    """A table: the first column is text, the others are aligned to the right."""

    caption: str
    columns: Sequence[str]
    rows: Iterable[Sequence[str]]


def notebook_html(title: str, lead: str, *tables: HtmlTable) -> str:
    """Return the HTML for a `_repr_html_` method."""
    parts = "".join(map(_table, tables))
    return f"<div><p><b>{escape(title)}</b><br/>{escape(lead)}</p>{parts}</div>"


def _table(table: HtmlTable) -> str:
    head = "".join(_cell("th", k, text) for k, text in enumerate(table.columns))
    rows = ("".join(_cell("td", k, text) for k, text in enumerate(row)) for row in table.rows)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    caption = f'<caption style="text-align:left"><b>{escape(table.caption)}</b></caption>'
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(tag: str, column: int, text: str) -> str:
    return f'<{tag} style="text-align:{"right" if column else "left"}">{escape(text)}</{tag}>'
