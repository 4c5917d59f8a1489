"""Prints plans on a terminal, as `show` does."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from api.cli.memory_price import describe_memory_price, describe_next_layout
from api.cli.tables import build_table
from planner.planning.infeasible import describe_infeasible, describe_limits
from planner.units import format_bytes, format_share, format_time

Document = dict[str, Any]
MAX_COLLECTIVES = 8
MAX_SHARDINGS = 24


def render_plan(console: Console, plan: Document) -> None:
    """Print a plan for review: certificate, time, collectives, memory, layouts, standard layouts, verdict."""
    axes = ", ".join(f"{axis['name']}={axis['size']}" for axis in plan["mesh"]["axes"])
    layout = f", layout {name}" if (name := plan["request"].get("layout")) else ""
    title = Text(f"{plan['graph']['name']} on {axes} ({plan['hardware']['name']}){layout}", style="bold")
    parts: list[Any] = [title, _render_certificate(plan)]
    if plan["program"]:
        parts += [_render_time(plan), _render_collectives(plan), _render_memory(plan), _render_shardings(plan)]
    parts += [_named_shardings(plan), _render_verdict(plan["verdict"])]
    console.print(Group(*(Padding(part, (0, 0, 1, 0)) for part in parts)))


def _render_certificate(plan: Document) -> Text:
    solver = plan["solver"]
    if solver["status"] == "infeasible":
        limit = plan["request"]["memory_limit_bytes"]
        least, bound = solver["least_limit_bytes"], solver["least_limit_bound_bytes"]
        return Text(f"infeasible: {describe_infeasible(limit, least, bound, solver['reason'])}")
    if solver["objective_s"] is None:
        limits = describe_limits(solver["least_limit_bytes"], solver["least_limit_bound_bytes"])
        return Text(f"{solver['status']}: no plan found ({solver['reason']}); per device, {limits}")
    if solver.get("objective_bytes") is not None:
        return Text(_format_bytes_objective(plan))
    limit = plan["request"]["memory_limit_bytes"]
    price = describe_memory_price(solver["memory_price_s_per_gib"])
    next_layout = describe_next_layout(solver["objective_s"], limit, plan["baselines"]) if price else ""
    remarks = "".join(f"; {remark}" for remark in (price, next_layout) if remark)
    overlapped = "step"
    if has_overlap(plan):
        overlap = plan["cost"]["overlap"]
        overlapped = (
            f"step {format_time(overlap['step_s'])} with overlap, of any plan not below "
            f"{format_time(overlap['bound_s'])}; one instruction after the other"
        )
    return Text(
        f"{solver['status']}: {overlapped} {format_time(solver['objective_s'])}, proven not below "
        f"{format_time(solver['bound_s'])} (gap {format_share(solver['gap'])}, {solver['reason']}){remarks}"
    )


def has_overlap(plan: Document) -> bool:
    """Return whether collectives that run beside ops shorten the plan's step by its hardware's share of overlap."""
    overlap = plan["cost"].get("overlap")
    return bool(plan["hardware"].get("overlap") and overlap and overlap.get("bound_s") is not None)


def _format_bytes_objective(plan: Document) -> str:
    """Return the certificate of a plan that minimises bytes or memory."""
    solver, verb = plan["solver"], {"bytes": "receives", "memory": "holds"}[plan["request"]["objective"]]
    return (
        f"{solver['status']}: {verb} {format_bytes(solver['objective_bytes'])} per device, proven not below "
        f"{format_bytes(solver['bound_bytes'])} (gap {format_share(solver['gap'])}, {solver['reason']}); "
        f"step {format_time(solver['objective_s'])}"
    )


def _render_time(plan: Document) -> Table:
    cost = plan["cost"]
    table = build_table("Step time", "part", "time", "share")
    for part in ("compute", "communication"):
        seconds = cost[f"{part}_s"]
        table.add_row(part, format_time(seconds), format_share(seconds / cost["step_s"] if cost["step_s"] else 0.0))
    if (count := cost.get("microbatches", 1)) > 1:
        passes = cost["step_s"] - cost["update_s"]
        table.add_row(f"{count} micro-batches, {format_time(passes / count)} each", format_time(passes), "")
        table.add_row("update", format_time(cost["update_s"]), "")
    if plan.get("recomputed"):
        table.add_row(f"recomputation of {len(plan['recomputed'])} ops", format_time(cost["recompute_s"]), "")
    table.add_row("one after the other" if has_overlap(plan) else "step", format_time(cost["step_s"]), "")
    if cost.get("mfu") is not None:
        table.add_row("model FLOPs utilisation", "", format_share(cost["mfu"]))
    if overlap := cost.get("overlap"):
        step_s = overlap["step_s"] if has_overlap(plan) else overlap["scheduled_s"]
        table.add_row("hidden by overlap", format_time(cost["step_s"] - step_s), "")
        table.add_row("step with overlap", format_time(step_s), "")
        table.add_row("lower bound with overlap", format_time(overlap["lower_bound_s"]), "")
    if interval := cost.get("interval"):
        table.add_row("expected between", f"{format_time(interval['low_s'])} and {format_time(interval['high_s'])}", "")
        if outside := interval["out_of_range_s"]:
            table.add_row("ops outside measured shapes", format_time(outside), format_share(outside / cost["step_s"]))
    return table


def _render_collectives(plan: Document) -> Table:
    table = build_table("Most expensive collectives", "collective", "axes", "of value", "time", "bytes per device")
    for entry in plan["cost"]["top_collectives"][:MAX_COLLECTIVES]:
        table.add_row(
            entry["collective"],
            ",".join(entry["axes"]),
            entry["value"],
            format_time(entry["time_s"]),
            format_bytes(entry["bytes"]),
        )
    count = sum(entry["count"] for entry in plan["cost"]["by_collective"])
    table.add_row(f"all {count}", "", "", format_time(plan["cost"]["communication_s"]), _render_received(plan))
    return table


def _render_received(plan: Document) -> str:
    return format_bytes(plan["cost"]["collective_bytes"])


def _render_memory(plan: Document) -> Table:
    memory = plan["memory"]
    table = build_table(f"Peak memory per device, while computing {memory['at']}", "kind", "bytes")
    for kind, size in sorted(memory["by_kind"].items(), key=lambda entry: -entry[1]):
        table.add_row(kind, format_bytes(size))
    table.add_row("peak", format_bytes(memory["peak_bytes"]))
    table.add_row("limit", format_bytes(plan["request"]["memory_limit_bytes"]))
    return table


def _render_shardings(plan: Document) -> Table:
    """Return the parameters; those with equal sharding, shape and name (except for numbers) share a row."""
    rows = Counter(
        (re.sub(r"\d+", "*", entry["name"]), str(entry["shape"]), _format_sharding(plan["shardings"][entry["id"]]))
        for entry in plan["graph"]["document"]["inputs"]
        if entry["kind"] == "parameter"
    )
    table = build_table("Parameters", "name", "shape", "split over", "count")
    for (name, shape, placed), count in list(rows.items())[:MAX_SHARDINGS]:
        table.add_row(name, shape, placed, str(count))
    if len(rows) > MAX_SHARDINGS:
        table.add_row(f"and {len(rows) - MAX_SHARDINGS} more", "", "", "")
    return table


def _format_sharding(sharding: Document) -> str:
    return " ".join("/".join(axes) or "·" for axes in sharding["split_axes"]) or "-"


def _named_shardings(plan: Document) -> Table:
    table = build_table(
        "Standard layouts, same cost model" + (", without overlap" if has_overlap(plan) else ""),
        "layout",
        "step",
        "relative",
        "bytes per device",
        "peak",
        "fits",
    )
    best = plan["solver"]["objective_s"]
    if best is not None:
        table.add_row(
            "this plan",
            format_time(best),
            "1.00",
            _render_received(plan),
            format_bytes(plan["memory"]["peak_bytes"]),
            "yes",
        )
    for entry in plan["baselines"]:
        ratio = f"{entry['step_s'] / best:.2f}" if best else "-"
        size = format_bytes(entry["collective_bytes"])
        fits = "yes" if entry["fits"] else "no"
        table.add_row(entry["name"], format_time(entry["step_s"]), ratio, size, format_bytes(entry["peak_bytes"]), fits)
    return table


def _render_verdict(verdict: Document | None) -> Text:
    return Text("not run yet (shardplan validate)") if verdict is None else Text("\n".join(format_verdict(verdict)))


def format_verdict(verdict: Document) -> Iterable[str]:
    """Yield the lines of a verdict."""
    where = f"on {verdict['devices']} devices{', with shrunk sizes' if verdict['shrunk'] else ''}"
    if verdict["not_run"]:
        yield f"verdict: structural {where}: layouts and sizes agree; values were not computed"
        yield f"  ops known only by their rule: {', '.join(verdict['not_run'])}"
        return
    error = verdict["max_relative_error"]
    shown = "not a number" if error is None else f"{error:.1e}"
    yield f"verdict: {verdict['verdict']} to the unsharded model {where}"
    yield f"  largest relative error {shown} in {verdict['precision']} ({verdict['backend']})"
    yield f"  bytes received per device: counted {verdict['counted_bytes']}, predicted {verdict['predicted_bytes']}"
    counted, predicted = verdict["counted_peak_bytes"], verdict["predicted_peak_bytes"]
    yield f"  peak bytes per device: counted {counted}, predicted {predicted}"
    if difference := verdict.get("difference"):
        yield from _format_difference(difference)


def _format_difference(difference: Document) -> Iterable[str]:
    position = f" at {difference['index']}" if difference["what"] == "value" else ""
    where = f"instruction {difference['instruction']} ({difference['operation']}), device {difference['device']}"
    yield f"  first difference: {difference['what']} of %{difference['value']}, {where}{position}"
    yield f"    got {difference['got']}, wanted {difference['wanted']}"
    for shard in difference["inputs"]:
        elements = "too many elements to show" if shard["elements"] is None else "elements with --json"
        yield f"    read %{shard['value']} on device {shard['device']}, shape {shard['shape']} ({elements})"
