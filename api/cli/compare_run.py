"""`compare-run`: compares a run in PyTorch with its plan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.options import JsonOption, PlanArgument, print_json_or_lines
from planner.documents.plans import read_plan
from planner.documents.profiler_trace import read_profiler_trace
from planner.documents.run_trace import read_run_trace
from planner.units import format_bytes, format_time
from planner.usecases.compare_run import compare_run as compare

ROWS_SHOWN = 12


def compare_run(
    plan_file: PlanArgument,
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="The folder that SHARDPLAN_TRACE=1 wrote.")],
    profile: Annotated[
        Path | None, typer.Option(help="A Chrome trace of torch.profiler of one process, for times.")
    ] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Compare a run in PyTorch with its plan: bytes of collectives, memory, times (exit code 1 where bytes differ)."""
    rows = read_profiler_trace(profile) if profile else None
    plan = read_plan(plan_file)
    document = compare(plan, read_run_trace(trace, plan.graph.name), rows)
    print_json_or_lines(document, as_json, _format_comparison)
    if document["verdict"] == "different":
        raise typer.Exit(1)


def _format_comparison(document: dict[str, Any]) -> list[str]:
    different = [row for row in document["collectives"] if row["counted_bytes"] != row["predicted_bytes"]]
    lines = [
        f"{document['verdict']}: {len(document['collectives'])} collectives, {len(different)} with other bytes than "
        f"planned; {document['counted_bytes']} B counted on all processes, {document['predicted_bytes']} B planned"
    ]
    lines += [
        f"  {row['value']} ({row['collective'] or 'no collective of the plan'}): {row['counted_bytes']} B counted, "
        f"{row['predicted_bytes']} B planned"
        for row in different[:ROWS_SHOWN]
    ]
    lines += [
        f"rank {row['rank']}: {format_bytes(row['held_bytes'])} held between ops, "
        f"{format_bytes(row['predicted_bytes'])} planned; {format_bytes(row['peak_bytes'])} with temporaries, "
        f"in {row['peak_at'] or 'the arguments'}"
        for row in document["memory"]
    ]
    for title, times in document.get("times", {}).items():
        lines.append(f"{title.replace('_', ' ')}: planned, measured")
        lines += [
            f"  {row['name'] or 'collectives'} ({row['count']}): {format_time(row['predicted_s'])}, "
            f"{format_time(row['measured_s'])}"
            for row in times[:ROWS_SHOWN]
        ]
    return lines
