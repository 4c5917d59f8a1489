"""Prints plans of pipelines on a terminal: certificate, stages, and the schedule in time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from api.cli.tables import build_table
from planner.units import format_bytes, format_share, format_time

Document = dict[str, Any]
GANTT_COLUMNS = 100
MARKS = {"forward": "F", "backward": "B", "weight": "W"}


def render_pipeline(console: Console, plan: Document) -> None:
    """Print a pipeline's plan for review."""
    heading = f"{plan['graph']['name']} in stages of {_describe_meshes(plan)} ({plan['hardware']['name']})"
    parts: list[Any] = [Text(heading, style="bold")]
    parts.append(Text(_describe_certificate(plan)))
    if plan["cost"]:
        verdict = Text("\n".join(format_stage_verdict(plan["verdict"])))
        parts += [_render_stages(plan), _render_timeline(plan), verdict]
    console.print(Group(*(Padding(part, (0, 0, 1, 0)) for part in parts)))


def _describe_meshes(plan: Document) -> str:
    """Return the mesh of all ranks, or those of runs of ranks where they differ."""
    listed = plan["request"]["pipeline"].get("meshes")
    if listed is None:
        return ", ".join(f"{axis['name']}={axis['size']}" for axis in plan["mesh"]["axes"])
    runs = [(notation, len(list(alike))) for notation, alike in groupby(listed)]
    return " / ".join(f"{count} x ({notation})" if count > 1 else notation for notation, count in runs)


def _describe_certificate(plan: Document) -> str:
    solver, cost, schedule = plan["solver"], plan["cost"], plan["schedule"]
    if cost is None:
        return f"{solver['status']}: {solver['reason']}"
    virtual = f", {schedule['virtual_stages']} virtual stages each" if schedule["virtual_stages"] > 1 else ""
    return (
        f"{solver['status']}: step {format_time(cost['step_s'])}, proven not below {format_time(solver['bound_s'])} "
        f"(gap {format_share(solver['gap'])}, {solver['reason']})\n"
        f"{schedule['ranks']} ranks{virtual} on {cost['devices']} devices, {schedule['microbatches']} micro-batches, "
        f"{schedule['name']}: bubble {format_share(cost['bubble'])}, "
        f"model FLOPs utilisation {format_share(cost['mfu'])}{_format_interval(cost)}"
    )


def _format_interval(cost: Document) -> str:
    if cost.get("high_s") is None:
        return ""
    return f"\nexpected between {format_time(cost['low_s'])} and {format_time(cost['high_s'])}"


def _render_stages(plan: Document) -> Table:
    columns = ("stage", "rank", "layers", "forward", "backward", "sends", "update", "all passes", "peak per device")
    table = build_table("Stages", *columns, left=(columns.index("layers"),))
    for number, stage in enumerate(plan["stages"]):
        layers = stage["layers"]
        shown = f"{layers[0]} … {layers[-1]}" if len(layers) > 1 else "".join(layers) or "-"
        sends = stage["send_forward_s"] + stage["send_backward_s"]
        times = (stage["forward_s"], stage["backward_s"] + stage["weight_s"], sends, stage["update_s"], stage["step_s"])
        peak = format_bytes(stage["peak_memory_bytes"])
        table.add_row(str(number), str(stage["rank"]), shown, *map(format_time, times), peak)
    return table


def format_stage_verdict(verdict: Document | None) -> Iterator[str]:
    """Yield the lines of a pipeline's verdict."""
    if verdict is None:
        yield "not run yet (shardplan validate)"
        return
    error, sent = verdict["max_relative_error"], (verdict["counted_sent_bytes"], verdict["predicted_sent_bytes"])
    shown = "not a number" if error is None else f"{error:.1e}"
    where = f"on {verdict['devices']} devices"
    yield f"verdict: {verdict['verdict']} to the unsharded model {where}, largest relative error {shown}"
    yield f"  bytes sent between stages: counted {sent[0]}, predicted {sent[1]}"
    for number, one in enumerate(verdict["stages"]):
        received = f"counted {one['counted_bytes']}, predicted {one['predicted_bytes']}"
        peak = f"counted {one['counted_peak_bytes']}, predicted {one['predicted_peak_bytes']}"
        yield f"  stage {number}, bytes received per device: {received}; peak: {peak}"


def _render_timeline(plan: Document) -> Text:
    """Return the schedule as a Gantt chart in letters: a row for each rank, a column for a share of the step."""
    step_s, rows = plan["cost"]["step_s"], []
    for rank, tasks in enumerate(plan["timeline"]):
        row = ["·"] * GANTT_COLUMNS
        update_s = sum(stage["update_s"] for stage in plan["stages"] if stage["rank"] == rank)
        ended_s = tasks[-1]["end_s"]
        spans = [(MARKS[task["kind"]], task["begin_s"], task["end_s"]) for task in tasks]
        for mark, begin, end in [*spans, ("U", ended_s, ended_s + update_s)]:
            first, last = (round(moment / step_s * GANTT_COLUMNS) for moment in (begin, end))
            row[first:last] = mark * (last - first)
        rows.append(f"{rank:>3} {''.join(row)}")
    legend = "F forward, B backward, W parameters' gradients, U update, · idle; one row a rank"
    return Text("\n".join([f"Schedule over {format_time(step_s)}: {legend}", *rows]))
