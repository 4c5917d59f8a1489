"""Prints the comparison of two plans on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from api.cli.tables import add_rows, build_table
from planner.choose.cost import PICO
from planner.documents.versions import versions_text
from planner.units import format_bytes, format_time

Document = dict[str, Any]
ROWS = 16
TITLES = {
    "objective_s": "objective",
    "step_s": "step",
    "compute_s": "compute",
    "communication_s": "communication",
    "collective_bytes": "bytes received",
    "peak_bytes": "peak memory",
    "bound_s": "lower bound of a step",
    "bubble_s": "bubble",
    "sent_bytes": "bytes between stages",
}


def render_diff(comparison: Document) -> Group:
    """Return the page of a comparison: totals, the largest changes in time, changed layouts, memory at the peaks."""
    parts: list[RenderableType] = [_render_totals(comparison["totals"])]
    if stages := comparison.get("stages"):
        parts.append(_build_sides("Stages", [(what, "", *rest) for what, *rest in list_stage_rows(stages)]))
    terms = sorted(comparison["terms"], key=lambda term: -abs(term["change_ps"]))
    if terms:
        rows = [
            (
                _format_name(t, "name"),
                t["what"],
                _picoseconds(t["base"]),
                _picoseconds(t["new"]),
                _format_signed_time(t["change_ps"]),
            )
            for t in terms
        ]
        parts.append(_build_sides("Changes in time, by op and by value with its collectives", rows))
    for key, column in (("changes", "value"), ("options", "op")):
        if comparison[key]:
            rows = [
                (_format_name(c, column), "", _format_sharding(c["base"]), _format_sharding(c["new"]), "")
                for c in comparison[key]
            ]
            parts.append(_build_sides(f"{'Values' if key == 'changes' else 'Ops'} laid out differently", rows))
    changed = any(comparison[key] for key in ("terms", "changes", "options"))
    if not changed and not any(total["change"] for total in comparison["totals"].values()):
        parts.append(Text("the plans are equal"))
    if comparison["memory"] and any(comparison["memory"]["change_bytes"].values()):
        parts.append(_render_memory(comparison["memory"]))
    base, new = comparison["versions"]["base"], comparison["versions"]["new"]
    if base != new:
        versions = (
            f"planned by different versions: the base by {versions_text(base)}, the new one by {versions_text(new)}"
        )
        parts.append(Text(f"{versions}; `check` separates their differences from those of an edit"))
    return Group(*(Padding(part, (0, 0, 1, 0)) for part in parts))


def list_stage_rows(stages: Document) -> Iterator[tuple[str, str, str, str]]:
    """Yield what stages compute and hold and which cuts moved: what it is, in both plans, and the change."""
    nothing: Document = {}
    for number, (base, new) in enumerate(zip_longest(stages["base"], stages["new"], fillvalue=nothing)):
        for title, key, show in (("computes", "step_s", format_time), ("peak memory", "peak_bytes", format_bytes)):
            one, other = base.get(key), new.get(key)
            shown, shown_new = ("-" if end is None else show(end) for end in (one, other))
            total = {"base": one, "change": None if one is None or other is None else other - one}
            yield f"stage {number}: {title}", shown, shown_new, _format_total(total)
    for cut in stages["moved_cuts"]:
        moved = "moved" if cut["units"] is None else f"{cut['units']:+} units"
        yield f"stage {cut['stage']}: begins at", cut["base"] or "-", cut["new"] or "-", moved


def _render_totals(totals: Document) -> Table:
    def format_side(key: str, value: float | None) -> str:
        if value is None:
            return "-"
        return format_time(value) if key.endswith("_s") else format_bytes(int(value))

    rows = [
        (TITLES[key], "", *(format_side(key, total[side]) for side in ("base", "new")), _format_total(total))
        for key, total in totals.items()
    ]
    return _build_sides("Totals", rows)


def _format_total(total: Document) -> str:
    if not total["change"]:
        return "" if total["change"] is None else "same"
    return f"{total['change'] / total['base']:+.2%}" if total["base"] else "new"


def _render_memory(memory: Document) -> Table:
    before, after = (memory[side]["by_kind"] for side in ("base", "new"))
    rows = [
        (kind, "", format_bytes(before.get(kind, 0)), format_bytes(after.get(kind, 0)), f"{change:+,} B")
        for kind, change in memory["change_bytes"].items()
    ]
    return _build_sides(f"Memory at the peaks, while computing {memory['base']['at']} and {memory['new']['at']}", rows)


def _format_name(change: Document, key: str) -> str:
    return f"{change[key]}" + (f" (was {change['base_name']})" if change["base_name"] else "")


def _picoseconds(side: Document | None) -> str:
    return "-" if side is None else format_time(side["time_ps"] * PICO)


def _format_signed_time(change: int) -> str:
    return ("+" if change > 0 else "-") + format_time(abs(change) * PICO)


def _format_sharding(layout: Any) -> str:
    if layout is None:
        return "-"
    split, terms = (layout["split_axes"], layout.get("partial")) if isinstance(layout, dict) else (layout, None)
    partial = f" partial {'/'.join(terms['axes'])}" if terms else ""
    return " ".join("/".join(axes) or "·" for axes in split) + partial


def _build_sides(title: str, rows: Iterable[tuple[str, ...]]) -> Table:
    return add_rows(build_table(title, "what", "", "base", "new", "change", left=(0, 1)), rows, ROWS)
