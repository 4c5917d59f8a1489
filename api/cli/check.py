"""`check`: compares a change with its base in CI.

Exit codes: 0 within limits, 1 error, 2 changed within limits (with `--detailed-exitcode`), 3 limit exceeded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import typer

from api.check.baseline_source import fetch_plans_from, read_base, read_given, with_pins
from api.check.junit import write_junit
from api.check.markdown import write_markdown
from api.check.sarif import build_sarif
from api.cli.command_start import command_deadline
from api.cli.options import JsonOption, TimeLimitOption, console, print_json
from api.cli.progress import report_progress, show_plan_progress
from api.cli.render_check import render_check
from api.options import DEFAULTS
from api.units import parse_bytes
from planner.choose import hardware
from planner.documents.check_report import dump_check, has_changes
from planner.documents.graphs import read_mesh
from planner.documents.hardware import read_hardware
from planner.documents.json_reader import read_json
from planner.documents.json_writer import check_writable, write_json, write_text
from planner.documents.waivers import read_waivers
from planner.errors import InvalidRequest
from planner.judge.check.limits import parse_limits
from planner.planning.deadline import Deadline
from planner.planning.plan_types import Request
from planner.usecases.check import CheckQuestion, ComparedPlans, PlanOrGraph, compare_plans
from planner.usecases.prove import verify_plan

CHANGED, EXCEEDED = 2, 3
LIMITS = "time>5%,memory>5%"
Server = Annotated[
    str | None,
    typer.Option(envvar="SHARDPLAN_SERVER", help="The service that has the base; its API key in SHARDPLAN_KEY."),
]
FailOn = Annotated[str, typer.Option(help="Limits on rises: time>5%,bytes[tp]>10%,memory[h.0.mlp]>1GiB,gap>1%.")]
Base = Annotated[
    str, typer.Option(help="A plan or graph file, the id of a plan on --server, or a git revision: REV, REV:PATH.")
]


def check(
    new: Annotated[Path, typer.Argument(help="A graph document, planned as the base was, or a plan.")],
    base: Base,
    fail_on: FailOn = LIMITS,
    *,
    waivers: Annotated[Path | None, typer.Option(help="A TOML file of rises that are accepted until a date.")] = None,
    pin: Annotated[
        Path | None, typer.Option(help="Annotations (a pins document), as the base was planned with.")
    ] = None,
    proof: Annotated[Path | None, typer.Option(help="The proof of the plan NEW, which must hold.")] = None,
    mesh: Annotated[str | None, typer.Option(help="dp=2,tp=4; needed where neither NEW nor BASE is a plan.")] = None,
    hardware_name: Annotated[str | None, typer.Option("--hardware", help="With --mesh: a profile.")] = None,
    memory_limit: Annotated[str | None, typer.Option(help="With --mesh: per device, e.g. 80GiB.")] = None,
    gap: Annotated[float, typer.Option(help="With --mesh: stop when the proven gap is this small.")] = DEFAULTS.gap,
    server: Server = None,
    time_limit: TimeLimitOption = None,
    to_markdown: Annotated[Path | None, typer.Option("--markdown", help="For a step summary or a comment.")] = None,
    to_junit: Annotated[Path | None, typer.Option("--junit", help="JUnit XML.")] = None,
    to_sarif: Annotated[Path | None, typer.Option("--sarif", help="SARIF 2.1.0.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Keep the new plan, as the next base.")] = None,
    detailed: Annotated[bool, typer.Option("--detailed-exitcode", help="2 where anything changed.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare a change with its base. Where the plan became worse than the limits allow, say why and exit with 3."""
    reports = {"markdown": to_markdown, "junit": to_junit, "sarif": to_sarif}
    for path in filter(None, (*reports.values(), output)):
        check_writable(path)
    limits = parse_limits(fail_on, "--fail-on")
    accepted_rises = read_waivers(waivers) if waivers else []
    deadline = command_deadline(time_limit)
    _verify(new, proof, deadline)
    question = _build_check_request(mesh, hardware_name, memory_limit, gap=gap)
    sides = with_pins(read_base(base, new, server), pin), with_pins(read_given(new), pin)
    comparison = _compare(sides, question, server, deadline=deadline)
    report = dump_check(comparison, limits, accepted_rises, today=date.today())
    _write_reports(report, new, reports)
    if output and comparison.new:
        write_json(output, comparison.new.model_dump(mode="json", exclude_unset=True))
    _print_report(report, as_json)
    if report["exceeded"] or (detailed and has_changes(report)):
        raise typer.Exit(EXCEEDED if report["exceeded"] else CHANGED)


def _verify(new: Path, proof: Path | None, deadline: Deadline) -> None:
    if proof is None:
        return
    with report_progress(deadline) as report:
        verify_plan(read_json(new), read_json(proof), where=str(proof), report=report)


def _compare(
    sides: tuple[PlanOrGraph, PlanOrGraph], question: CheckQuestion | None, server: str | None, *, deadline: Deadline
) -> ComparedPlans:
    with show_plan_progress() as progress:
        stored = fetch_plans_from(server) if server else None
        return compare_plans(*sides, question, progress, stored, deadline=deadline)


def _print_report(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(report)
    else:
        console().print(render_check(report))


def _write_reports(report: dict[str, Any], new: Path, reports: Mapping[str, Path | None]) -> None:
    """Write the requested reports in their formats."""
    forms: dict[str, Callable[[], str]] = {
        "markdown": lambda: write_markdown(report, str(new)),
        "junit": lambda: write_junit(report, str(new)),
        "sarif": lambda: json.dumps(build_sarif(report, new.as_posix()), ensure_ascii=False, indent=1) + "\n",
    }
    for form, path in reports.items():
        if path:
            write_text(path, forms[form]())


def _build_check_request(
    mesh: str | None, name: str | None, memory_limit: str | None, *, gap: float
) -> CheckQuestion | None:
    """Return how two graphs are planned; None where the base is a plan, which records how it was made."""
    if mesh is None:
        if name is not None or memory_limit is not None:
            raise InvalidRequest("--hardware and --memory-limit go with --mesh", wanted="--mesh, or a plan as base")
        return None
    devices = read_mesh(mesh)
    profile = read_hardware(name or devices.device or hardware.DEFAULT_PROFILE)
    limit = None if memory_limit is None else parse_bytes(memory_limit)
    return CheckQuestion(replace(devices, device=profile.name), profile, Request(limit, gap, deterministic=True))
