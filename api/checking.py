"""`check`: a change held against its base in CI. Exit codes: 0 within limits, 1 error, 2 changed within limits (with
`--detailed-exitcode`), 3 a limit exceeded."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import typer

from api.console import Json, console, print_json
from api.gate.bases import kept_by, pinned, read_base, read_given
from api.gate.junit import junit
from api.gate.markdown import markdown
from api.gate.page import check_page
from api.gate.sarif import sarif
from api.progress import solving
from api.units import parse_bytes
from planner.choose import hardware
from planner.documents.acknowledgements import read_acknowledgements
from planner.documents.gates import gate_document, is_changed
from planner.documents.graphs import read_mesh
from planner.documents.hardware import read_hardware
from planner.documents.writing import check_writable, write_json, write_text
from planner.errors import InvalidRequest
from planner.gating import Question, compared
from planner.judge.gate.thresholds import thresholds
from planner.plans import Request

CHANGED, EXCEEDED = 2, 3
LIMITS = "time>5%,memory>5%"
Server = Annotated[
    str | None, typer.Option(envvar="SHARDPLAN_SERVER", help="Where plans are kept; its key in SHARDPLAN_KEY.")
]
FailOn = Annotated[
    str, typer.Option(help="What may rise by how much: time>5%,bytes[tp]>10%,memory[h.0.mlp]>1GiB,gap>1%.")
]
Base = Annotated[
    str, typer.Option(help="A plan or graph file, the id of a plan on --server, or a git revision: REV, REV:PATH.")
]


def check(
    new: Annotated[Path, typer.Argument(help="A graph document, planned as the base was, or a plan.")],
    base: Base,
    fail_on: FailOn = LIMITS,
    acknowledged: Annotated[Path | None, typer.Option(help="A TOML file of rises that are answered for.")] = None,
    pin: Annotated[
        Path | None, typer.Option(help="Annotations (a pins document), as the base was planned with.")
    ] = None,
    mesh: Annotated[str | None, typer.Option(help="dp=2,tp=4: where neither NEW nor BASE is a plan.")] = None,
    hardware_name: Annotated[str | None, typer.Option("--hardware", help="With --mesh: a profile.")] = None,
    memory_limit: Annotated[str | None, typer.Option(help="With --mesh: per device, e.g. 80GiB.")] = None,
    gap: Annotated[float, typer.Option(help="With --mesh: stop when the proven gap is this small.")] = 1e-6,
    server: Server = None,
    to_markdown: Annotated[Path | None, typer.Option("--markdown", help="For a step summary or a comment.")] = None,
    to_junit: Annotated[Path | None, typer.Option("--junit", help="JUnit XML.")] = None,
    to_sarif: Annotated[Path | None, typer.Option("--sarif", help="SARIF 2.1.0.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Keep the new plan, as the next base.")] = None,
    detailed: Annotated[bool, typer.Option("--detailed-exitcode", help="2 where anything changed.")] = False,
    as_json: Json = False,
) -> None:
    """Hold a change against its base: exit code 3, and why, where a plan became dearer than the limits allow."""
    reports = {"markdown": to_markdown, "junit": to_junit, "sarif": to_sarif}
    for path in filter(None, (*reports.values(), output)):
        check_writable(path)
    limits = thresholds(fail_on, "--fail-on")
    known = read_acknowledgements(acknowledged) if acknowledged else []
    question = _question(mesh, hardware_name, memory_limit, gap)
    sides = pinned(read_base(base, new, server), pin), pinned(read_given(new), pin)
    with solving() as progress:
        found = compared(*sides, question, progress, kept_by(server) if server else None)
    told = gate_document(found, limits, known, date.today())
    _write(told, new, reports)
    if output and found.new:
        write_json(output, found.new.model_dump(mode="json", exclude_unset=True))
    if as_json:
        print_json(told)
    else:
        console().print(check_page(told))
    if told["exceeded"] or (detailed and is_changed(told)):
        raise typer.Exit(EXCEEDED if told["exceeded"] else CHANGED)


def _write(told: dict[str, Any], new: Path, reports: Mapping[str, Path | None]) -> None:
    """The reports that are asked for, by their form."""
    forms: dict[str, Callable[[], str]] = {
        "markdown": lambda: markdown(told, str(new)),
        "junit": lambda: junit(told, str(new)),
        "sarif": lambda: json.dumps(sarif(told, new.as_posix()), ensure_ascii=False, indent=1) + "\n",
    }
    for form, path in reports.items():
        if path:
            write_text(path, forms[form]())


def _question(mesh: str | None, name: str | None, memory_limit: str | None, gap: float) -> Question | None:
    """What two graphs are planned under; None: what the plan among them was."""
    if mesh is None:
        if name is not None or memory_limit is not None:
            raise InvalidRequest("--hardware and --memory-limit go with --mesh", wanted="--mesh, or a plan as base")
        return None
    devices = read_mesh(mesh)
    profile = read_hardware(name or devices.device or hardware.DEFAULT)
    limit = None if memory_limit is None else parse_bytes(memory_limit)
    return Question(replace(devices, device=profile.name), profile, Request(limit, gap, deterministic=True))
