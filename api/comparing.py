"""Two plans compared, as a page for people: what `diff` prints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from api.units import show_bytes, show_time
from planner.choose.cost import PICO
from planner.documents.versions import versions_text

Document = dict[str, Any]
ROWS = 16
TITLES = {
    "objective_s": "objective",
    "step_s": "step",
    "compute_s": "compute",
    "communication_s": "communication",
    "collective_bytes": "bytes received",
    "peak_bytes": "peak memory",
}


def comparison_page(found: Document) -> Group:
    """Totals, the terms of time that moved most, what is laid out otherwise, memory at the peaks."""
    parts: list[RenderableType] = [_totals(found["totals"])]
    terms = sorted(found["terms"], key=lambda term: -abs(term["change_ps"]))
    if terms:
        rows = [(_named(t, "name"), t["what"], _ps(t["base"]), _ps(t["new"]), _signed(t["change_ps"])) for t in terms]
        parts.append(_table("Time that moved, by op and by value whose collectives moved", rows))
    for key, what in (("changes", "value"), ("options", "op")):
        if found[key]:
            rows = [(_named(c, what), "", _laid_out(c["base"]), _laid_out(c["new"]), "") for c in found[key]]
            parts.append(_table(f"{'Values' if key == 'changes' else 'Ops'} laid out otherwise", rows))
    if len(parts) == 1 and not any(total["change"] for total in found["totals"].values()):
        parts.append(Text("the plans are alike"))
    if found["memory"] and any(found["memory"]["change_bytes"].values()):
        parts.append(_memory(found["memory"]))
    base, new = found["versions"]["base"], found["versions"]["new"]
    if base != new:
        told = f"planned by different versions: the base by {versions_text(base)}, the new one by {versions_text(new)}"
        parts.append(Text(f"{told}; `check` tells apart what is their doing"))
    return Group(*(Padding(part, (0, 0, 1, 0)) for part in parts))


def _totals(totals: Document) -> Table:
    def shown(key: str, value: float | None) -> str:
        if value is None:
            return "-"
        return show_time(value) if key.endswith("_s") else show_bytes(int(value))

    rows = [
        (TITLES[key], "", *(shown(key, total[side]) for side in ("base", "new")), _more(total))
        for key, total in totals.items()
    ]
    return _table("Totals", rows)


def _more(total: Document) -> str:
    if not total["change"]:
        return "" if total["change"] is None else "same"
    return f"{total['change'] / total['base']:+.2%}" if total["base"] else "new"


def _memory(memory: Document) -> Table:
    before, after = (memory[side]["by_kind"] for side in ("base", "new"))
    rows = [
        (kind, "", show_bytes(before.get(kind, 0)), show_bytes(after.get(kind, 0)), f"{change:+,} B")
        for kind, change in memory["change_bytes"].items()
    ]
    return _table(f"At the peak: while {memory['base']['at']}, and {memory['new']['at']}, is made", rows)


def _named(change: Document, key: str) -> str:
    return f"{change[key]}" + (f" (was {change['was']})" if change["was"] else "")


def _ps(side: Document | None) -> str:
    return "-" if side is None else show_time(side["time_ps"] * PICO)


def _signed(change: int) -> str:
    return ("+" if change > 0 else "-") + show_time(abs(change) * PICO)


def _laid_out(layout: Any) -> str:
    if layout is None:
        return "-"
    split, terms = (layout["split_axes"], layout.get("partial")) if isinstance(layout, dict) else (layout, None)
    partial = f" partial {'/'.join(terms['axes'])}" if terms else ""
    return " ".join("/".join(axes) or "·" for axes in split) + partial


def _table(title: str, rows: Iterable[tuple[str, ...]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for number, column in enumerate(("what", "", "base", "new", "change")):
        table.add_column(column, justify="left" if number < 2 else "right", overflow="fold")
    listed = list(rows)
    for row in listed[:ROWS]:
        table.add_row(*row)
    if len(listed) > ROWS:
        table.add_row(f"and {len(listed) - ROWS} more", "", "", "", "")
    return table
