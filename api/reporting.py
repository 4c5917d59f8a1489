"""`report`: a plan, or two side by side, as one HTML file that opens offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from api.console import Json, PlanFile, print_json
from planner.documents.plans import read_plan
from planner.documents.reports import report_document
from planner.documents.writing import check_writable, write_text
from planner.export.report import html_page


def report(
    plan_file: PlanFile,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE.html", help="Where to write the page.")],
    beside: Annotated[Path | None, typer.Option(help="Another plan of the model, to compare with.")] = None,
    as_json: Json = False,
) -> None:
    """Write a plan as one page that opens offline: certificate, graph with shardings, memory, communication, schedule.

    With --beside also what moved from the other plan to this one, both side by side.
    """
    check_writable(output)
    page = html_page(report_document(read_plan(plan_file), read_plan(beside) if beside else None))
    write_text(output, page)
    if as_json:
        print_json({"file": str(output), "bytes": len(page.encode())})
