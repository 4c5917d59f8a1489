"""`report`: writes a plan, two plans, a plan in stages, or a capacity answer as one HTML file that opens offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.command_start import command_deadline
from api.cli.options import JsonOption, TimeLimitOption, print_json
from api.cli.progress import report_progress
from planner.documents.capacity_report import FORMAT, checked_capacity
from planner.documents.json_reader import read_json
from planner.documents.json_writer import check_writable, write_text
from planner.documents.pipelines import dump_pipeline_report, is_pipeline
from planner.documents.plans import parse_plan, read_plan
from planner.documents.report import dump_report
from planner.errors import InvalidRequest
from planner.export.report import html_page
from planner.planning.deadline import ProgressReporter


def report(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A plan document, or what `capacity -o` wrote.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE.html", help="Where to write the page.")],
    compare_to: Annotated[Path | None, typer.Option(help="Another plan of the model, to compare with.")] = None,
    *,
    time_limit: TimeLimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a plan as one page that opens offline: certificate, graph with shardings, memory, communication, schedule.

    With --compare-to, the page shows two plans and what changed from the other one to this one. For a capacity answer,
    it draws step time and cost against devices; for a plan in stages, the schedule with a row for each rank.
    """
    check_writable(output)
    with report_progress(command_deadline(time_limit)) as progress:
        page = html_page(_build_report(file, compare_to, progress))
    write_text(output, page)
    if as_json:
        print_json({"file": str(output), "bytes": len(page.encode())})


def _build_report(file: Path, compare_to: Path | None, progress: ProgressReporter) -> dict[str, Any]:
    """Return the document that the page shows."""
    raw = read_json(file)
    if is_pipeline(raw):
        if compare_to:
            raise InvalidRequest("--compare-to with a plan in stages", got=str(compare_to), wanted="a plan without")
        return dump_pipeline_report(raw, str(file))
    if not (isinstance(raw, dict) and raw.get("format") == FORMAT):
        return dump_report(parse_plan(raw, str(file)), read_plan(compare_to) if compare_to else None, progress)
    if compare_to:
        raise InvalidRequest("--compare-to with a capacity answer", got=str(compare_to), wanted="a plan")
    return checked_capacity(raw, str(file))
