"""A check as markdown: a GitHub step summary, and one comment on a pull request.

The first line is a mark that no reader sees, by which a later run finds its comment and replaces it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from api.gate.words import (
    amount,
    causes,
    headline,
    name_of,
    plain,
    reasons,
    remarks,
    replanning,
    rise,
    total_rows,
    verdict,
)

Document = dict[str, Any]
ROWS = 12


def mark(file: str) -> str:
    """The mark of a file's comment."""
    return f"<!-- shardplan check {plain(file).replace('>', '')} -->"


def markdown(told: Document, file: str) -> str:
    """The whole page."""
    sign = "❌" if told["exceeded"] else "✅"
    parts = [mark(file), f"### {sign} shardplan: {code(file)}: {verdict(told)}", _limits(told)]
    for title, key in (("Exceeded", "exceeded"), ("Acknowledged", "acknowledged")):
        parts += [part for entry in told[key] for part in (f"**{title}: {text(headline(entry))}**", _why(entry))]
    parts += [_details("Totals", _totals(told["totals"], ("base", "new")))]
    parts += [part for entry in told["replanned"] for part in _replanned(entry)]
    parts += [f"> {text(remark)}" for remark in remarks(told)]
    return "\n\n".join(part for part in parts if part) + "\n"


def code(name: str) -> str:
    """A name that markdown and tables leave alone."""
    return f"`{plain(name).replace('`', chr(39))}`".replace("|", "\\|")


def text(sentence: str) -> str:
    """A sentence in which names cannot turn into markup, links or mentions."""
    escaped = (f"\\{letter}" if letter in "\\`*_[]<>|#~&" else letter for letter in plain(sentence))
    return "".join(escaped).replace("@", "@&#8203;")


def _limits(told: Document) -> str:
    if not told["limits"]:
        return ""
    broken = {entry["limit"]: "❌ exceeded" for entry in told["exceeded"]}
    broken |= {entry["limit"]: "acknowledged" for entry in told["acknowledged"]}
    rows = [
        (
            code(each["limit"]),
            *(amount(each[side], each["unit"]) for side in ("base", "new")),
            rise(each),
            broken.get(each["limit"], "within"),
        )
        for each in told["limits"]
    ]
    return _table(("limit", "base", "new", "change", ""), rows)


def _why(entry: Document) -> str:
    lines = [f"- {text(reason)}" for reason in reasons(entry)]
    lines += [f"- Also edited: {text(cause)}." for cause in causes(entry)[1:]]
    rows = [
        (
            code(f"{term['what']} {term['name']}"),
            *(amount(term[key], entry["unit"]) for key in ("base", "new", "change")),
            text(term["reason"]),
        )
        for term in entry["terms"][:ROWS]
    ]
    if left := entry["terms"][ROWS:]:
        rows.append((f"{len(left)} more", "", "", amount(sum(term["change"] for term in left), entry["unit"]), ""))
    table = _table(("what", "base", "new", "change", "how"), rows) if rows else ""
    return "\n".join(lines) + ("\n\n" + _details(f"All that moved in {name_of(entry)}", table) if table else "")


def _totals(totals: Document, sides: tuple[str, str]) -> str:
    return _table(("", *sides, "change"), total_rows(totals))


def _replanned(entry: Document) -> Iterator[str]:
    """A plan of another version: a part of the page of its own."""
    yield f"**Planned by another version: the {entry['side']}**"
    yield "\n".join(f"- {text(sentence)}" for sentence in replanning(entry))
    yield _details(
        f"The {entry['side']} as recorded, and planned by this version",
        _totals(entry["totals"], ("recorded", "this version's")),
    )


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" if number in (0, 4) else "---:" for number in range(len(head))), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _details(title: str, body: str) -> str:
    return f"<details><summary>{text(title)}</summary>\n\n{body}\n\n</details>"
