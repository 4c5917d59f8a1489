"""Writes a check as markdown, for a GitHub step summary and one comment on a pull request.

The first line is an invisible marker by which a later run finds its comment and replaces it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from api.check.summary import (
    format_amount,
    format_rise,
    limit_name,
    list_causes,
    list_reasons,
    list_remarks,
    replace_controls,
    replanning,
    summarize_check,
    summarize_limit,
    total_rows,
)
from api.cli.render_diff import list_stage_rows

Document = dict[str, Any]
ROWS = 12


def comment_marker(file: str) -> str:
    """Return the invisible marker of a file's comment."""
    return f"<!-- shardplan check {replace_controls(file).replace('>', '')} -->"


def write_markdown(report: Document, file: str) -> str:
    """Return the whole page."""
    sign = "❌" if report["exceeded"] else "✅"
    parts = [
        comment_marker(file),
        f"### {sign} shardplan: {escape_code(file)}: {summarize_check(report)}",
        _format_limits(report),
    ]
    for title, key in (("Exceeded", "exceeded"), ("Waived", "waived")):
        parts += [
            part
            for entry in report[key]
            for part in (f"**{title}: {escape_text(summarize_limit(entry))}**", _format_reasons(entry))
        ]
    parts += [_format_details("Totals", _format_totals(report["totals"], ("base", "new")))]
    if stages := report.get("stages"):
        rows = [tuple(map(escape_text, row)) for row in list_stage_rows(stages)]
        parts.append(_format_details("Stages", _format_table(("", "base", "new", "change"), rows)))
    parts += [part for entry in report["replanned"] for part in _replanned(entry)]
    parts += [f"> {escape_text(remark)}" for remark in list_remarks(report)]
    return "\n\n".join(part for part in parts if part) + "\n"


def escape_code(name: str) -> str:
    """Return a name as inline code that is safe in markdown tables."""
    return f"`{replace_controls(name).replace('`', chr(39))}`".replace("|", "\\|")


def escape_text(sentence: str) -> str:
    """Return a sentence in which names cannot become markup, links or mentions."""
    escaped = (f"\\{letter}" if letter in "\\`*_[]<>|#~&" else letter for letter in replace_controls(sentence))
    return "".join(escaped).replace("@", "@&#8203;")


def _format_limits(report: Document) -> str:
    if not report["limits"]:
        return ""
    broken = {entry["limit"]: "❌ exceeded" for entry in report["exceeded"]}
    broken |= {entry["limit"]: "waived" for entry in report["waived"]}
    rows = [
        (
            escape_code(limit["limit"]),
            *(format_amount(limit[side], limit["unit"]) for side in ("base", "new")),
            format_rise(limit),
            broken.get(limit["limit"], "within"),
        )
        for limit in report["limits"]
    ]
    return _format_table(("limit", "base", "new", "change", ""), rows)


def _format_reasons(entry: Document) -> str:
    lines = [f"- {escape_text(reason)}" for reason in list_reasons(entry)]
    lines += [f"- Also edited: {escape_text(cause)}." for cause in list_causes(entry)[1:]]
    rows = [
        (
            escape_code(f"{term['what']} {term['name']}"),
            *(format_amount(term[key], entry["unit"]) for key in ("base", "new", "change")),
            escape_text(term["reason"]),
        )
        for term in entry["terms"][:ROWS]
    ]
    if omitted := entry["terms"][ROWS:]:
        rows.append(
            (f"{len(omitted)} more", "", "", format_amount(sum(term["change"] for term in omitted), entry["unit"]), "")
        )
    table = _format_table(("what", "base", "new", "change", "how"), rows) if rows else ""
    return "\n".join(lines) + ("\n\n" + _format_details(f"All changes of {limit_name(entry)}", table) if table else "")


def _format_totals(totals: Document, sides: tuple[str, str]) -> str:
    return _format_table(("", *sides, "change"), total_rows(totals))


def _replanned(entry: Document) -> Iterator[str]:
    """Yield the part of the page about a plan of another version."""
    yield f"**Planned by another version: the {entry['side']}**"
    yield "\n".join(f"- {escape_text(sentence)}" for sentence in replanning(entry))
    yield _format_details(
        f"The {entry['side']} as recorded, and planned by this version",
        _format_totals(entry["totals"], ("recorded", "this version's")),
    )


def _format_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" if number in (0, 4) else "---:" for number in range(len(head))), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _format_details(title: str, body: str) -> str:
    return f"<details><summary>{escape_text(title)}</summary>\n\n{body}\n\n</details>"
