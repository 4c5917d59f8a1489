"""Prints on a terminal why a pipeline is cut where it is, and what moving a cut by one unit costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.table import Table
from rich.text import Text

from api.cli.tables import build_table
from planner.choose.cost import PICO
from planner.units import format_bytes, format_share, format_time

Document = dict[str, Any]


def render_stages_overview(explanation: Document) -> Iterator[Any]:
    """Yield the parts of the page about a plan in stages."""
    if "step_ps" not in explanation:
        yield Text(f"{explanation['status']}: {explanation['reason']}", style="bold")
        return
    step = explanation["step_ps"]
    parts = ", ".join(
        f"{name} {_format_part(explanation[key], step)}"
        for name, key in (
            (f"rank {explanation['slowest_rank']}, which computes longest,", "slowest_ps"),
            ("filling and draining the pipeline", "fill_ps"),
            ("sends", "sends_ps"),
        )
    )
    yield Text(f"step {_format_time(step)}: {parts}", style="bold")
    idle = sum(explanation["idle_ps"]) / len(explanation["idle_ps"])
    yield Text(f"bubble {format_share(explanation['bubble'])}: a rank is idle for {format_time(idle * PICO)} of a step")
    yield _render_stages(explanation)
    yield _render_cuts(explanation)
    yield Text(_describe_bound(explanation))


def _render_stages(explanation: Document) -> Table:
    table = build_table("Stages", "stage", "rank", "computes in a step", "at least", "idle", "peak per device")
    for stage in explanation["stages"]:
        idle = explanation["idle_ps"][stage["rank"]]
        times = (_format_time(each) for each in (stage["work_ps"], stage["bound_ps"], idle))
        table.add_row(str(stage["stage"]), str(stage["rank"]), *times, format_bytes(stage["peak_bytes"]))
    return table


def _render_cuts(explanation: Document) -> Table:
    title = "Cuts, and the step with one of them moved by one unit"
    table = build_table(title, "cut before stage", "at", "sends", "one unit earlier", "one unit later")
    for cut in explanation["cuts"]:
        sends = f"{format_bytes(cut['sent_bytes'])}, {_format_time(cut['send_ps'])}"
        moves = (_format_move(move, explanation["step_ps"]) for move in cut["moves"])
        table.add_row(str(cut["stage"]), f"{cut['layer']} (unit {cut['unit']})", sends, *moves)
    return table


def _format_move(move: Document, step: int) -> str:
    if move["step_ps"] is None:
        bound = move["bound_ps"]
        return move["reason"] if bound is None else f"at least {_format_change(bound, step)}: {move['reason']}"
    slowest, change = f"stage {move['slowest']} is the slowest", _format_change(move["step_ps"], step)
    if move["is_solved"]:
        return f"{change}, {slowest}"
    return f"at most {change}, at least {_format_change(move['bound_ps'], step)}, {slowest}"


def _describe_bound(explanation: Document) -> str:
    bound, step = explanation["bound"], explanation["step_ps"]
    number = bound["path_stage"]
    cuts = (
        f"no step with these cuts is below {_format_time(bound['cuts_ps'])} "
        f"({_format_change(bound['cuts_ps'], step)}): the longest path of passes that is bounded goes through "
        f"stage {number}, which computes {_format_time(explanation['stages'][number]['bound_ps'])} at least"
    )
    return (
        f"{cuts}\n{bound['status']}: no step with any cuts is below {_format_time(bound['bound_ps'])} "
        f"({_format_change(bound['bound_ps'], step)}; {bound['reason']}); what sends add is not bounded"
    )


def _format_time(picoseconds: int) -> str:
    return format_time(picoseconds * PICO)


def _format_part(time: int, step: int) -> str:
    return f"{_format_time(time)} ({time / max(step, 1):.1%})"


def _format_change(time: int, step: int) -> str:
    return f"{(time - step) / max(step, 1):+.2%}"
