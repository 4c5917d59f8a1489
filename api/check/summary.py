"""Sentences about a check that the terminal, markdown, JUnit and SARIF share."""

from __future__ import annotations

from typing import Any

from api.cli.render_diff import TITLES
from planner.choose.cost import PICO
from planner.documents.versions import versions_text
from planner.units import format_bytes, format_time

Document = dict[str, Any]
METRIC_NAMES = {"time": "time", "bytes": "bytes received", "memory": "peak memory", "gap": "the gap"}
CERTIFICATE_TEXTS = {
    "proven": "Proven: no plan of the new graph is within the limit.",
    "dearer": "Proven: every plan of the new graph is worse than the base's; the size of the rise is not proven.",
    "in gaps": "Not proven: the rise lies within the plans' gaps and may come from the solver; use a smaller gap.",
}


def replace_controls(text: str) -> str:
    """Replace control characters, which neither pages nor XML documents can hold, by question marks."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in text)


def format_amount(number: float | None, unit: str | None) -> str:
    """Return a number with its unit: `3.486 ms`, `12.3 MiB`, `1.2 %`; `-` where it is unknown."""
    if number is None or unit is None:
        return "-"
    if unit == "share":
        return f"{100 * number:.3g} %"
    sign, size = ("-" if number < 0 else ""), abs(number)
    return sign + (format_time(size * PICO) if unit == "ps" else format_bytes(size))


def format_rise(entry: Document) -> str:
    """Return a change as a share such as `+12.30 %`, or as an amount such as `+3.1 MiB` where the base is 0."""
    if not entry["change"]:
        return "-" if entry["change"] is None else "same"
    if entry["share"] is not None:
        return f"{100 * entry['share']:+.2f} %"
    return ("+" if entry["change"] > 0 else "") + format_amount(entry["change"], entry["unit"])


def total_rows(totals: Document) -> list[tuple[str, str, str, str]]:
    """Return the title, both numbers and the change of every total."""
    rows = []
    for key, total in totals.items():
        scale, unit = (1 / PICO, "ps") if key.endswith("_s") else (1, "bytes")
        base, new = (
            format_amount(None if total[side] is None else total[side] * scale, unit) for side in ("base", "new")
        )
        share = total["change"] / total["base"] if total["base"] and total["change"] else None
        entry = {"change": total["change"] and total["change"] * scale, "share": share, "unit": unit}
        rows.append((TITLES[key], base, new, format_rise(entry)))
    return rows


def limit_name(entry: Document) -> str:
    place = f" [{entry['place']}]" if entry["place"] else ""
    return f"{METRIC_NAMES.get(entry['measure'], entry['measure'])}{place}"


def summarize_limit(entry: Document) -> str:
    """Return one line about a broken limit."""
    if entry["unit"] is None:
        return f"no plan was found: {entry['certificate']}"
    base, new = (format_amount(entry[side], entry["unit"]) for side in ("base", "new"))
    return f"{limit_name(entry)} {format_rise(entry)}: {new}, was {base} (limit {entry['limit']})"


def list_causes(entry: Document) -> list[str]:
    return [f"{cause['what']} {cause['name']}: {cause['reason']}" for cause in entry["causes"]]


def list_reasons(entry: Document) -> list[str]:
    """Return why a limit is broken: the nearest edit, the term that rose most, what is proven, and the waiver."""
    reasons = []
    if entry["causes"]:
        reasons.append(f"Edited nearest to it: {list_causes(entry)[0]}.")
    if entry["terms"]:
        term = entry["terms"][0]
        rise = format_amount(term["change"], entry["unit"])
        reasons.append(f"Rose most: {term['what']} {term['name']} by {rise} ({term['reason']}).")
    if entry["certificate"] in CERTIFICATE_TEXTS:
        reasons.append(CERTIFICATE_TEXTS[entry["certificate"]])
    if waiver := entry["waiver"]:
        reasons.append(_format_waiver(waiver))
    return reasons


def _format_waiver(waiver: Document) -> str:
    if waiver["expired"]:
        return f"Its waiver ({waiver['reason']}) expired on {waiver['expires']}: renew it, or bring the rise down."
    return f"Waived until {waiver['expires']}: {waiver['reason']}."


def summarize_check(report: Document) -> str:
    """Return one line about the whole check."""
    if report["exceeded"]:
        return f"{_format_count(len(report['exceeded']), 'limit')} exceeded"
    if report["graphs_equal"]:
        return "the graph equals its base"
    waived = f", {len(report['waived'])} of them waived" if report["waived"] else ""
    return f"within {_format_count(len(report['limits']), 'limit')}{waived}"


def replanning(entry: Document) -> list[str]:
    """Return sentences about a plan of another version and the plan that this version makes of the same graph."""
    recorded, current = (versions_text(entry[key]["versions"]) for key in ("recorded", "current"))
    totals = {key: entry["totals"][key] for key in ("step_s", "collective_bytes", "peak_bytes")}
    rows = total_rows({key: total for key, total in totals.items() if total["change"] != 0})
    figures = "; ".join(f"{title} {new}, was {base} ({change})" for title, base, new, change in rows)
    return [
        f"The {entry['side']} was {entry['reason']}: {recorded}; this is {current}.",
        f"This version plans the same graph with {figures or 'the same totals'}.",
        "No edit caused that difference: limits apply to plans of this version. Store a plan of this version.",
    ]


def list_remarks(report: Document) -> list[str]:
    """Return notes on how the plans were made comparable, and waivers that are not needed."""
    unused = [
        f"the waiver of {waiver['limit']} ({waiver['reason']}) is not needed"
        + (f", and expired on {waiver['expires']}" if waiver["expired"] else "")
        + ": remove it"
        for waiver in report["unused_waivers"]
    ]
    return [*report["notes"], *unused]


def _format_count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
