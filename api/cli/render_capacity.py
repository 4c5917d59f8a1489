"""The tables of `capacity`: the frontier with its figures, a whole run, and why candidates were skipped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from planner.units import format_bytes, format_count, format_share, format_time

TITLES = {
    "layout": "cannot have the layout",
    "stages": "cannot have so many stages",
    "memory": "need more memory than a device has",
    "infeasible": "infeasible, because a mesh that allows more shardings is infeasible",
    "bound": "proven no better than a plan that was found",
    "time": "not planned: out of time",
    "cancelled": "not planned: cancelled",
}
OVERLAP = "steps count collectives that run beside ops; --overlap 0 asks for the sum of all instructions"
LEFT = ("hardware", "mesh", "schedule", "plan")


def print_capacity_tables(out: Console, document: Mapping[str, Any]) -> None:
    """Print the frontier, the best candidates, and why the others were skipped."""
    frontier = document["frontier"]
    if frontier:
        title = "Frontier: no other plan is better in all of devices, time and cost"
        out.print(_table(title, _columns(document), [_cells(point, document) for point in frontier]), "")
        if _has_overlap(document):
            out.print(f"{OVERLAP}\n")
    if frontier and document["run_tokens"]:
        out.print(_run_table(document), "")
    for key in ("smallest_feasible", "cheapest", "fastest"):
        best = document[key]
        answer = (
            ("none fits" if document["complete"] else "none found yet")
            if best is None
            else f"{best['devices']} {best['hardware']} as {_name_mesh(best)}"
        )
        out.print(f"{key.replace('_feasible', ''):<10}{answer}{_format_interval(best)}")
    if not frontier and document["complete"]:
        out.print("larger meshes, smaller micro-batches, --recompute auto and --pipeline need less memory a device")
    _print_skipped(out, document)


def _format_interval(best: Mapping[str, Any] | None) -> str:
    """Return between what the step of a candidate is expected, empty where that is not known."""
    if best is None or best.get("low_s") is None:
        return ""
    return f", a step expected between {format_time(best['low_s'])} and {format_time(best['high_s'])}"


def _print_skipped(out: Console, document: Mapping[str, Any]) -> None:
    reasons = [candidate["skip_reason"] for candidate in document["candidates"] if candidate["skip_reason"]]
    priced = sum(candidate.get("searched") is False for candidate in document["candidates"])
    alone = f", {priced} of them in standard layouts only" if priced else ""
    out.print(f"\n{len(document['candidates'])} meshes, {document['planned']} planned{alone}")
    for key, title in TITLES.items():
        if key in reasons:
            out.print(f"  {reasons.count(key):>5}  {title}")


def _columns(document: Mapping[str, Any]) -> list[str]:
    """Return the titles of the frontier; what is unknown everywhere has no column."""
    graph = ["batch"] if len(document["graphs"]) > 1 or document["request"]["global_batch"] else []
    tokens = (
        ["tokens/s", "tokens/s/dev", _cost_title(document)]
        if document["unit"] == "token"
        else [f"cost of a step{_cost_unit(document)}"]
    )
    plan = ["plan"] if any(point["plan"] for point in document["frontier"]) else []
    stages, bubble = (["stages"], ["schedule", "bubble"]) if document["pipeline"] else ([], [])
    return ["hardware", "mesh", *stages, "devices", *graph, "step", "MFU", *bubble, *tokens, "gap", "memory", *plan]


def _has_overlap(document: Mapping[str, Any]) -> bool:
    """Return whether the step of some plan of the frontier is shorter than the sum of its instructions."""
    return any(point["step_s"] != point["objective_s"] for point in document["frontier"])


def _cost_title(document: Mapping[str, Any]) -> str:
    return "cost/Mtoken" if document["cost_unit"] == "price" else "dev-h/Mtoken"


def _cost_unit(document: Mapping[str, Any]) -> str:
    return "" if document["cost_unit"] == "price" else ", device-seconds"


def _cells(point: Mapping[str, Any], document: Mapping[str, Any]) -> list[str]:
    cells = {
        "hardware": point["hardware"],
        "mesh": point["mesh"],
        "stages": str(point["stages"]),
        "devices": str(point["devices"]),
        "batch": _name_graph(point, document),
        "step": format_time(point["step_s"]),
        "MFU": format_share(point["mfu"]),
        "schedule": _name_schedule(point),
        "bubble": "-" if point["bubble"] is None else format_share(point["bubble"]),
        "tokens/s": format_count(point["tokens_per_s"]),
        "tokens/s/dev": format_count(point["tokens_per_device_s"]),
        "cost/Mtoken": _format_figure(point["cost_per_million_tokens"]),
        "dev-h/Mtoken": _format_figure(point["device_hours_per_million_tokens"]),
        f"cost of a step{_cost_unit(document)}": _format_figure(point["cost"]),
        "gap": format_share(point["step_gap"]),
        "memory": format_bytes(point["peak_bytes"]),
        "plan": _name_plan(point["plan"]),
    }
    return [cells[column] for column in _columns(document)]


def _name_mesh(candidate: Mapping[str, Any]) -> str:
    return candidate["mesh"] if candidate["stages"] == 1 else f"{candidate['stages']} stages of {candidate['mesh']}"


def _name_schedule(point: Mapping[str, Any]) -> str:
    """Return the schedule of a plan in stages, with the virtual stages of each rank where it has any."""
    chunks = point.get("virtual_stages") or 1
    return f"{point['schedule'] or '-'}{f' x {chunks}' if chunks > 1 else ''}"


def _name_graph(point: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    """Return the batch of a graph, times its micro-batches, with its name or length where these differ."""
    graph, graphs = document["graphs"][point["graph"]], document["graphs"]
    words = [f"{graph['batch']} x {graph['microbatches']}" if graph["microbatches"] > 1 else str(graph["batch"])]
    if len({each["name"] for each in graphs}) > 1:
        words.append(graph["name"])
    if len({each["tokens"] / each["batch"] for each in graphs if each["batch"]}) > 1:
        words.append(f"of {graph['tokens'] // graph['batch']}")
    return " ".join(words)


def _name_plan(plan: Mapping[str, Any] | None) -> str:
    return f"{plan['id'][:12]} {plan['verdict'] or ''}" if plan else ""


def _run_table(document: Mapping[str, Any]) -> Table:
    points = document["frontier"]
    columns = ["hardware", "mesh", "devices", "days", "device-hours", "cost", "energy, MWh"]
    rows = [
        [
            point["hardware"],
            point["mesh"],
            str(point["devices"]),
            f"{point['run_days']:,.1f}",
            f"{point['run_device_hours']:,.0f}",
            "-" if point["run_cost"] is None else f"{point['run_cost']:,.0f}",
            "-" if point["run_energy_kwh"] is None else f"{point['run_energy_kwh'] / 1000:,.1f}",
        ]
        for point in points
    ]
    return _table(f"A run of {document['run_tokens']:.4g} tokens (energy: devices at their rated power)", columns, rows)


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="left" if column in LEFT else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _format_figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
