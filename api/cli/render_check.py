"""Prints a check on a terminal: the comparison, then every limit and why it is broken."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from api.check.summary import (
    format_amount,
    format_rise,
    list_causes,
    list_reasons,
    list_remarks,
    replanning,
    summarize_check,
    summarize_limit,
)
from api.cli.render_diff import render_diff
from api.cli.tables import build_table

Document = dict[str, Any]


def render_check(report: Document) -> Group:
    """Return the page of a check."""
    parts: list[RenderableType] = [] if report["graphs_equal"] else [render_diff(report)]
    if report["limits"]:
        parts.append(Padding(_render_limits(report), (0, 0, 1, 0)))
    for title, key, style in (("exceeded", "exceeded", "bold red"), ("waived", "waived", "yellow")):
        for entry in report[key]:
            lines = [*list_reasons(entry), *(f"Also edited: {cause}." for cause in list_causes(entry)[1:])]
            parts.append(Text(f"{title}: {summarize_limit(entry)}", style=style))
            parts.append(Padding(Text("\n".join(lines)), (0, 0, 1, 2)))
    for entry in report["replanned"]:
        first, *more = replanning(entry)
        parts += [Text(first, style="yellow"), Padding(Text("\n".join(more)), (0, 0, 1, 2))]
    parts += [Text(f"note: {remark}", style="dim") for remark in list_remarks(report)]
    return Group(*parts, Text(summarize_check(report), style="bold red" if report["exceeded"] else "bold green"))


def _render_limits(report: Document) -> Table:
    broken = [entry["limit"] for entry in (*report["exceeded"], *report["waived"])]
    table = build_table("Limits", "limit", "base", "new", "change", "", left=(0, 4))
    for limit in report["limits"]:
        ends = (format_amount(limit[side], limit["unit"]) for side in ("base", "new"))
        table.add_row(Text(limit["limit"]), *ends, format_rise(limit), "over" if limit["limit"] in broken else "within")
    return table
